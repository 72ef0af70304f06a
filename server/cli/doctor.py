"""`memlog doctor`: what runs here, with which settings, and whether it is well."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from stat import S_IMODE, S_ISDIR
from typing import Any

import click

from memlog import __version__
from memlog.configuration import load, unknown
from memlog.errors import MemlogError, ProjectNotFound, StorageError
from memlog.projects.project import Project, clock_us
from memlog.rows import Project as ProjectRow
from memlog.settings import SETTINGS, Settings
from memlog.shell import command_line
from memlog.storage.mounts import kind_of, require_lmdb, unsafe
from server.cli.hints import hint_of
from server.cli.looking import to_look_around
from server.cli.options import json_option
from server.cli.printing import new_table, one_line, open_console, print_json, progress_bar
from server.cli.running import here, service_of, with_settings
from server.opened import Opened
from server.rights.tokens import OF_OTHERS, Tokens, tokens_path
from server.service import Service

PACKAGES = ("mcp", "lmdb", "tantivy", "faiss-cpu", "onnxruntime", "msgspec", "anyio")

_WITH_CREDENTIALS = re.compile(r"(://)[^/?#]*(?=@)|(\?).*")


@click.command("doctor")
@json_option
@with_settings
@click.pass_context
def doctor_command(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """Print the effective settings, the versions, and the health of the data directory.

    A variable that looks like a setting and is none is named. Ends with 1 where a project is not well, or is left
    out of all lists because another has its name or it cannot be read, where it cannot be read which deletions were
    done, and where a server over HTTP does not begin with these settings.

    \b
    Example: memlog doctor
    """
    report: dict[str, Any] = {
        "memlog": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "settings": _settings(settings, ctx.params.get("data_dir")),
        "unknown": unknown(),
    }
    report["data_dir"] = _data_dir(settings.data_dir)
    report["http"], doors = _http(settings)
    report["tokens"] = _tokens(settings) | {name: here(said) for name, said in doors.items()}
    report |= {"embedder": {}, "projects": {}, "left_out": {}, "deletions": {}}
    not_opened: MemlogError | None = None
    try:
        with (
            to_look_around(settings) as looked_at,
            service_of(looked_at) as service,
            progress_bar(hidden=as_json) as progress,
        ):
            report["embedder"] = _embedder(service)
            rows = service.store.projects("all")
            shown = progress.track(rows, description="projects")
            report["projects"] = dict(_projects(service, shown))
            report["left_out"] = service.store.left_out()
            report["deletions"] = _deletions(service)
    except MemlogError as error:
        not_opened = error  # told at the end: which folder it is, and who named it, comes before
    sick = [name for name, each in report["projects"].items() if "error" in each]
    if as_json:
        print_json(report)
    else:
        _print(report)
    if not_opened is not None:
        raise not_opened
    not_well = (
        report["left_out"],
        report["deletions"],
        report["http"],
        "unable" in report["data_dir"],
    )
    if sick or any(not_well):
        sys.exit(1)


def _settings(settings: Settings, data_dir: Any) -> dict[str, dict[str, str]]:
    _, origins = load({"data_dir": data_dir})
    shown = {}
    for setting in SETTINGS:
        value = getattr(settings, setting.field)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        hidden = "(set)" if setting.secret and value else _without_credentials(text)
        shown[setting.field] = {"value": hidden, "from": origins[setting.field]}
    return shown


def _without_credentials(text: str) -> str:
    """An address without user, password and what stands behind `?`, where some services want a key."""
    return _WITH_CREDENTIALS.sub(r"\1\2…", text) if "://" in text else text


def _data_dir(folder: Path) -> dict[str, str]:
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        return {"path": str(folder), "state": "it is not there yet"} | _of_place(folder)
    except OSError as error:
        return {"path": str(folder), "state": f"it cannot be looked at: {error.strerror}"}
    if not S_ISDIR(mode):
        return {"path": str(folder), "state": "it is no folder"}
    mode = S_IMODE(mode)
    report = {"path": str(folder), "mode": f"{mode:04o}"} | _of_place(folder)
    if mode & OF_OTHERS:
        report["hint"] = (
            "Other users of this machine may read it. Unless that is meant: "
            f"{command_line('chmod 700', folder)}"
        )
    try:
        require_lmdb(folder)
    except StorageError as error:
        report["unable"] = f"{error.message}. {here(error.suggestion or '')}"
    except OSError:  # who may not write there may look around
        pass
    return report


def _of_place(folder: Path) -> dict[str, str]:
    """What is known of where it lies, or would."""
    told = {"file_system": kind_of(folder), "unsafe": unsafe(folder)}
    return {name: said for name, said in told.items() if said is not None}


def _tokens(settings: Settings) -> dict[str, str]:
    tokens = Tokens(tokens_path(settings))
    hint = tokens.open_to_others()
    return {"path": str(tokens.path)} | ({} if hint is None else {"hint": hint})


def _http(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Why `memlog serve --transport http` would not begin; empty where it would, and then why nobody could come in, or
    anybody."""
    from server.http.serving import access_and_certificate

    try:
        access, _ = access_and_certificate(settings)
    except MemlogError as error:
        return _told(error), {}
    doors = {"shut": access.shut, "open": access.open}
    return {}, {name: said for name, said in doors.items() if said is not None}


def _embedder(service: Service) -> dict[str, str]:
    if service.embeddings.switched_off:
        if service.settings.search_mode != "semantic":
            return {"state": "switched off: search goes by words only"}
        return {
            "state": "switched off, and search goes by meaning: one that names no other mode is refused",
            "hint": "Set MEMLOG_SEARCH_MODE=text, or another MEMLOG_EMBEDDER.",
        }
    try:
        embedder = service.embeddings.get()
        embedder.query_vector("is anyone there")
    except MemlogError as error:
        told = _told(error)
        return {"state": told["error"], "hint": told["hint"]}
    return {"state": "well", "key": embedder.key, "dimensions": str(embedder.dimensions)}


def _projects(service: Service, rows: Iterable[ProjectRow]) -> Iterator[tuple[str, dict[str, Any]]]:
    """How each is, by name, but for those that were deleted since they were listed."""
    for row in rows:
        with suppress(ProjectNotFound):
            yield row.name, _project(service, row)


def _project(service: Service, row: ProjectRow) -> dict[str, Any]:
    """Raises ProjectNotFound where it was deleted since it was listed."""
    report: dict[str, Any] = {"status": row.status}
    try:
        if row.status == "active":
            report |= _active(service, row.name)
        damage = service.store.by_id(row.id).damage
    except ProjectNotFound:
        raise
    except MemlogError as error:
        return report | _told(error, row.name)
    return report if damage is None else report | _told(damage, row.name)


def _deletions(service: Service) -> dict[str, str]:
    try:
        service.store.deletions.require_readable()
    except MemlogError as error:
        return _told(error)
    return {}


def _active(service: Service, name: str) -> dict[str, Any]:
    from projections.follow import ON_DISK

    opened = service.open(name)
    for index in ON_DISK:
        opened.projections.caught_up(index)
    return {
        "head": opened.project.head(),
        **_ahead(opened.project),
        "projections": opened.projections.positions(),
        "vectors": _vectors(service, opened),
    }


def _told(error: MemlogError, project: str | None = None) -> dict[str, str]:
    return {"error": error.message, "hint": here(hint_of(error, project) or "")}


def _ahead(project: Project) -> dict[str, str]:
    """What a clock that was ahead once leaves behind: an entry is never dated before the one ahead of it."""
    entries = project.head() - project.position_at(clock_us())
    if entries <= 0:
        return {}
    are = "entry is" if entries == 1 else f"{entries:,} entries are"
    told = f"the newest {are} dated later than now, for the clock was ahead"
    return {"ahead": f"{told}: asOf a time from before does not tell them, asOf a position does"}


def _vectors(service: Service, opened: Opened) -> dict[str, dict[str, int]]:
    """Of how many texts each embedder's vector is there; they are shared by all projects."""
    caches = service.embeddings.caches()
    embedded, all_texts = dict.fromkeys(caches, 0), 0
    for texts in opened.projections.texts() if caches else ():
        all_texts += len(texts)
        for key, cache in caches.items():
            embedded[key] += sum(vector is not None for vector in cache.get_many(texts))
    return {
        key: {"embedded": count, "pending": all_texts - count} for key, count in embedded.items()
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _print(report: dict[str, Any]) -> None:
    from rich.markup import escape

    console = open_console()
    tell = partial(console.print, markup=False)
    packages = ", ".join(f"{name} {number}" for name, number in report["packages"].items())
    console.print(f"memlog {report['memlog']} on Python {report['python']} ({packages})")
    table = new_table("setting", "value", "from")
    for field, each in report["settings"].items():
        table.add_row(field, escape(each["value"]), each["from"])
    console.print(table)
    for variable, hint in report["unknown"].items():
        tell(f"{variable} is no setting and does nothing. {hint}")
    for said in ("state", "unsafe", "unable"):
        if said in report["data_dir"]:
            tell(f"data directory {report['data_dir']['path']}: {report['data_dir'][said]}")
    if "hint" in report["data_dir"]:
        tell(f"data directory of mode {report['data_dir']['mode']}. {report['data_dir']['hint']}")
    if "hint" in report["tokens"]:
        tell(report["tokens"]["hint"])
    for door in ("shut", "open"):
        if door in report["tokens"]:
            tell(f"{report['tokens'][door]}.")
    if told := report["http"]:
        tell(f"no server over HTTP: {told['error']}. {told['hint']}")
    if told := report["embedder"]:
        embedder = ", ".join(each for name, each in told.items() if name != "hint")
        tell(f"embedder: {embedder}" + (f". {told['hint']}" if "hint" in told else ""))
    for name, each in report["projects"].items():
        vectors = each.get("vectors", {})
        shown = {key: value for key, value in each.items() if key not in ("vectors", "projections")}
        shown |= each.get("projections", {})
        said = ", ".join(f"{key} {value}" for key, value in shown.items())
        tell(f"project {one_line(name)}: {said}")
        for key, texts in vectors.items():
            counts = f"{texts['embedded']} texts embedded, {texts['pending']} pending"
            tell(f"  vectors of {key}: {counts}")
    if told := report["deletions"]:
        tell(f"deletions: {told['error']}. {told['hint']}")
    for why in report["left_out"].values():
        tell(f"project {why}")
