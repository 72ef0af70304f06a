"""The settings as a process is given them: from the environment and flags to their values, and which those may be."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from memlog.canonical import characters
from memlog.closest import did_you_mean
from memlog.commands import PROJECT_NAME_CHARACTERS_MAX
from memlog.errors import InvalidParameter, Problem, counted, refuse, shorten
from memlog.settings import SETTINGS, TOOLSETS, VARIABLES, LogLevel, Settings

LEVELS_ELSEWHERE: dict[str, LogLevel] = {
    "trace": "debug",
    "warning": "warn",
    "critical": "error",
    "fatal": "error",
}
"""What other loggers call their levels."""
_FILES_ELSEWHERE = ("MEMORY_FILE_PATH", "MEMORY_PATH")
"""By these other memory servers are told of their file, which is none of ours."""
PLACEHOLDER = re.compile(r"\$\{[^{}]*\}")
"""A variable that a client was to put a value in place of: `${workspaceFolder}`."""
_VARIABLE = re.compile(rf"{PLACEHOLDER.pattern}|(?<![^/])(?:\$\w+|%\w+%)(?![^/\\])")
"""One in a path: a placeholder; `$HOME` or `%APPDATA%` where it is a folder's whole name."""
_FOREIGN = re.compile(r"[A-Za-z]+:[\\/]|\\\\|[\"']")
"""How a path of Windows, an address, or one that is still in quotes begins."""
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def load(flags: Mapping[str, Any] | None = None) -> tuple[Settings, dict[str, str]]:
    """The effective settings, and for each field where it came from: a variable, a flag, "default".

    Flags that are None were not given, nor were empty variables, but for that of the project. Raises
    InvalidParameter with every value that does not fit.
    """
    values: dict[str, Any] = {}
    origins = {setting.field: "default" for setting in SETTINGS}
    abouts = {setting.field: f"{setting.about}." for setting in SETTINGS}
    shared = {variable for setting in SETTINGS if setting.shared for variable in setting.also}
    for setting in SETTINGS:
        for variable in setting.variables:
            value = os.environ.get(variable)
            if value or (value is not None and setting.field == "project"):
                values[setting.field] = value
                origins[setting.field] = variable
                break
    for field, value in (flags or {}).items():
        if value is not None:
            values[field] = value
            origins[field] = f"--{field.removeprefix('http_').replace('_', '-')}"
    problems = []
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    for name, value in list(values.items()):
        try:
            values[name] = _convert(name, value, fields[name].type)
        except ValueError as error:
            if origins[name] in shared:
                origins[name] = f"default, for {origins[name]} is {shorten(value)!r}"
                del values[name]
                continue
            problem = Problem(origins[name], str(error), abouts[name], value)
            problems.append((InvalidParameter, problem))
    refuse(problems)
    return Settings(**values), origins


def unknown() -> dict[str, str]:
    """The variables that look like settings and are none, and for each the nearest that is one; and those which other
    memory servers are told of their files by, or of their database where DATABASE_URL names one."""
    found = {
        variable: did_you_mean(variable, VARIABLES) or "docs/settings.md lists them all."
        for variable in sorted(os.environ)
        if variable.startswith("MEMLOG_") and variable not in VARIABLES
    }
    for variable in _FILES_ELSEWHERE:
        if os.environ.get(variable):
            found[variable] = (
                "Memory is kept in a folder, which MEMLOG_DATA_DIR names; `memlog import` takes such a file."
            )
    if os.environ.get("DATABASE_URL", "").lower().startswith("postgres"):
        found["DATABASE_URL"] = "Memories are kept in files; MEMLOG_DATA_DIR says where."
    return found


def allowed(wanted: Any) -> list[str]:
    """What a setting of this type takes, in words; or each of the words it takes."""
    kind, meta = get_args(wanted) if get_origin(wanted) is Annotated else (wanted, Meta())
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if kind is bool:
        return ["1", "0"]
    if kind in (int, float):
        return [f"{'an integer' if kind is int else 'a number'}{_between(meta)}"]
    if kind in (Path, Path | None):
        return ["a path"]
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        each = "names" if item is str else f"{allowed(item)[0]}; several"
        return [f"{each}, with commas between"]
    return [meta.description or "text"]


def _between(meta: Meta) -> str:
    if meta.gt is not None:
        return f" above {meta.gt}"
    if meta.ge is None:
        return ""
    return f" of at least {meta.ge}" if meta.le is None else f" from {meta.ge} to {meta.le}"


def _convert(name: str, value: Any, wanted: Any) -> Any:
    """Raises ValueError, which says what is taken. Case does not count where there are words to choose from."""
    if isinstance(value, str) and wanted not in (Path, Path | None):
        _require_text(value)
    if name == "toolsets" and isinstance(value, str):
        return _toolsets(value)
    if name == "project" and isinstance(value, str):
        return _project(value)
    if get_origin(wanted) is tuple and isinstance(value, str):
        items = (each.strip() for each in value.split(","))
        return tuple(_convert(name, each, get_args(wanted)[0]) for each in items if each)
    if wanted in (Path, Path | None):
        return _path(value) if value else None
    given = value.strip() if isinstance(value, str) and wanted is not str else value
    if isinstance(given, str) and (wanted is bool or get_origin(wanted) is Literal):
        given = given.lower()
    if name == "log_level":
        given = LEVELS_ELSEWHERE.get(given, given)
    if wanted is bool and given in _YES | _NO:
        return given in _YES
    try:
        return msgspec.convert(given, wanted, strict=wanted is bool)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"{name} is {shorten(value)!r}: say {' or '.join(allowed(wanted))}"
        ) from error


def _require_text(value: str) -> None:
    """Raises ValueError for bytes that are no text, as an environment may have them; a path is one all the same."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        where = counted(error.start, "characters")
        raise ValueError(f"what stands behind {where} is not valid UTF-8: write it anew") from error


def _path(value: str | Path) -> Path:
    """Raises ValueError for a folder that nobody means, as a client makes of a variable that it does not know."""
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"no home directory is known for the ~ in {str(value)!r}: write the path out"
        ) from error
    variable = _VARIABLE.search(str(value))
    if variable is not None and not os.path.exists(path):
        raise ValueError(
            f"nobody put its value in place of {shorten(variable[0])} in {shorten(str(value))!r}: write the path out"
        )
    if _FOREIGN.match(str(value)) and not os.path.exists(path):
        raise ValueError(
            f"{shorten(str(value))!r} is no path of this system: write it out, from / on"
        )
    return path


def _project(text: str) -> str:
    if not text.strip():
        return ""
    if characters(text) > PROJECT_NAME_CHARACTERS_MAX:
        longest = f"a project's name has {PROJECT_NAME_CHARACTERS_MAX} characters at most"
        raise ValueError(f"{shorten(text)!r} is too long: {longest}")
    return text


def _toolsets(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in TOOLSETS:
            near = did_you_mean(name, TOOLSETS) or f"There are {', '.join(TOOLSETS)}."
            raise ValueError(f"there is no toolset {shorten(name)!r}. {near}")
    return names or TOOLSETS
