"""What is whole of a damaged log, so that it can be read until the log is restored.

The file is not touched, and LMDB not let near it. What `mending` makes of its entries is copied to

    DATA/salvaged/<how the file was>/<id>/log.mdb

where the state is evolved from them, and stand there as a project that can be read and not be written to.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from memlog.errors import DamagedLog
from memlog.events import ProjectCreated
from memlog.projects.contents import DATABASES
from memlog.projects.project import LOG_FILE, Project
from memlog.repair.damage import damages_in, mark, standing_in
from memlog.repair.mending import whole_of
from memlog.storage.disk import stands
from memlog.storage.environment import Environment
from memlog.storage.errors import storage_error
from memlog.storage.filling import fill
from memlog.storage.gates import Turn
from memlog.storage.pages import Pages
from memlog.storage.structure import Stamp, stamp
from memlog.storage.tables import place

log = logging.getLogger("memlog.salvaging")


class Salvaged(Project):
    """A project read from what is whole of its log. `replaced` tells when the log is another one."""

    def __init__(
        self, source: Path, seen: Stamp, folder: Path, damage: DamagedLog, clock: Callable[[], int]
    ) -> None:
        self._source, self._seen, self._damage = source, seen, damage
        super().__init__(folder, clock=clock, damage=damage)

    @property
    def moved(self) -> bool:
        return False

    @property
    def replaced(self) -> bool:
        try:
            return stamp(os.stat(self._source)) != self._seen
        except FileNotFoundError:
            return True

    def stored(self) -> NoReturn:
        """Nobody makes a backup of a part, or takes it for the whole."""
        raise self._damage

    def erase(self, chosen: Any) -> NoReturn:
        raise self._damage

    def remove(self, command_id: str | None = None, *, only_bare: bool = False) -> NoReturn:
        raise self._damage


def salvage(
    source: Path, home: Path, clock: Callable[[], int], project: ProjectCreated
) -> Salvaged:
    """Raises DamagedLog where nothing of the log is whole, StorageError where there is no room for a copy.

    `project` is what was created, should the log not tell. Whoever calls this keeps others from doing so at the
    same time.
    """
    try:
        # In its turn: who was writing has finished, and whoever is next finds the note.
        with Turn(source), closing(Pages(source)) as pages:
            seen = stamp(os.stat(source))
            whole = whole_of(pages, standing_in(pages), project)
            damages = damages_in(pages)
            mark(source, damages)
        kept = whole.whole if whole else 0
        beyond = [each for each in damages if each.position > kept] or damages
        problem = f"position {beyond[0].position}: {beyond[0].problem}" if beyond else "cut"
        told = any(each.position <= kept for each in damages)
        damage = DamagedLog(kept, problem, nothing_left=whole is None, told=told)
        if whole is None:
            raise damage
        folder = home / "-".join(map(str, seen)) / source.parent.name
        if not stands(folder / LOG_FILE):
            if damages:
                log.warning("%s", damage.message)
            _copy(whole.entries, folder)
    except OSError as error:
        raise storage_error(source, error) from error
    return Salvaged(source, seen, folder, damage, clock)


def _copy(entries: Sequence[tuple[int, bytes]], folder: Path) -> None:
    made = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    with closing(Environment(made / LOG_FILE, DATABASES)) as copy:
        fill(copy, "log", ((place(position), value) for position, value in entries))
    made.rename(folder)
