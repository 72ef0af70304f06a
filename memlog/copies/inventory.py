"""What is in a backup: its copies, what each is called, and which projects its last run found alive.

    FOLDER/<project id>/log.mdb
    FOLDER/projects.json          which projects the last run found

A copy stays when its project is deleted, and another may be given its name. So a restore has to know which copies are
of what there was in the end, and which are kept in case somebody wants them. Files are only read here, but for the
note of a run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from memlog import codec
from memlog.canonical import canonical
from memlog.errors import MemlogError
from memlog.events import ProjectCreated
from memlog.projects.project import LOG_FILE
from memlog.repair.damage import LOG_TABLE, values
from memlog.storage.disk import stands, write_whole
from memlog.storage.pages import Pages

NOTE, BESIDE, ERASED = "projects.json", "beside", ".erased"
"""In a backup: what its last run found, where a copy is made anew, and the end of the name of the old copy."""

log = logging.getLogger("memlog.inventory")


class _Note(msgspec.Struct):
    """The ids of the projects that a run found, archived ones too, be their logs whole or not."""

    found: list[str]


class Held(NamedTuple):
    """A copy: its folder, the name of its project (None where that cannot be read), and whether that was `alive` at the
    last run, as far as is known."""

    folder: Path
    name: str | None
    alive: bool

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def called(self) -> str:
        return self.id if self.name is None else self.name


def inventory(folder: Path) -> list[Held]:
    """All copies in a backup: the living first, of these the newest project, and so the others. Of a backup of before
    runs noted what they found, all count as alive."""
    found = _found(folder)
    held = [
        Held(each, _name(each / LOG_FILE), found is None or each.name in found)
        for each in copies(folder)
    ]
    return sorted(held, key=lambda each: (each.alive, each.id), reverse=True)


def pick(held: Sequence[Held], names: Iterable[str]) -> tuple[list[Held], list[str]]:
    """The copies of these names or ids, and for which there is none; no name given: those of all that is alive.

    Of namesakes it is the first.
    """
    first: dict[str, Held] = {}
    for each in held:
        first.setdefault(each.id if each.name is None else canonical(each.name), each)
    by_id = {each.id: each for each in held}
    wanted = list(names)
    if not wanted:
        return _in_order(each for each in first.values() if each.alive), []
    picked = {name: by_id.get(name) or first.get(canonical(name)) for name in wanted}
    missing = [name for name, each in picked.items() if each is None]
    return _in_order(each for each in picked.values() if each is not None), missing


def _in_order(held: Iterable[Held]) -> list[Held]:
    """Each once, the oldest project first."""
    return sorted(set(held), key=lambda each: each.id)


def note(folder: Path, found: Sequence[str]) -> None:
    """Notes the ids of the projects that a run found. One that found none leaves what the one before noted: a data
    directory that is empty tells of a mistake, or of a loss, rather than that nothing is wanted any more.

    Raises OSError.
    """
    if found:
        write_whole(folder / NOTE, msgspec.json.encode(_Note(sorted(found))))


def _found(folder: Path) -> frozenset[str] | None:
    try:
        told = (folder / NOTE).read_bytes()
        return frozenset(msgspec.json.decode(told, type=_Note).found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # no JSON, or no text
        log.warning("which projects the last run found cannot be read from %s: %s", folder, error)
        return None


def _name(file: Path) -> str | None:
    """What the first entry of a log says, without a look at the others: whoever takes the copy in proves all of it."""
    try:
        with closing(Pages(file)) as pages:
            table = pages.table(LOG_TABLE)
            position, value = next(values(pages, table), (0, b"")) if table else (0, b"")
            proved = position == 1 and codec.follows(codec.GENESIS, position, value)
            event = codec.decode(position, value).event if proved else None
    except (OSError, MemlogError) as error:
        log.debug("what %s is called cannot be read: %s", file, error)
        return None
    return event.name if isinstance(event, ProjectCreated) else None


def copies(folder: Path) -> list[Path]:
    """The folders of the copies in a backup. Where a run was killed just before a copy that was made anew took
    its place, that copy."""
    found = {each.name: each for each in folder.glob("prj_*") if _is_copy(each)}
    for gone in folder.glob(f"*{ERASED}"):
        found.pop(gone.name, None)
        anew = made_anew(folder, gone)
        if stands(anew):
            found.setdefault(anew.name, anew)
    return [found[each] for each in sorted(found)]


def _is_copy(folder: Path) -> bool:
    """True, too, where the system does not tell: whoever takes it in is told why."""
    try:
        return stands(folder / LOG_FILE)
    except OSError:
        return True


def made_anew(folder: Path, gone: Path) -> Path:
    """Where the copy stands that is to take the place of an old one, which is `gone`."""
    return folder / BESIDE / gone.name.removesuffix(ERASED)
