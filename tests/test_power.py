"""A loss of power: what has a name on the disk, and which of two names, once whoever asked was told that it is done.

What is written into a log LMDB syncs itself; this is about the folders in which logs and other files stand.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memlog.commands import CreateEntities, NewEntity
from memlog.context import Context
from memlog.copies.backup import back_up
from memlog.copies.taking_in import restore
from memlog.projects.project import LOG_FILE
from memlog.projects.purging import Target
from memlog.projects.store import Store
from memlog.storage.disk import sync, write_whole
from server.cli.drafts import written_whole
from tests.vectors_by_hash import numbered, opened

Identity = tuple[int, int]


class Disk:
    """What was synced, and what was changed since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files: set[Identity] = set()
        self._folders: dict[Identity, list[str]] = {}
        """What stood in each when it was synced."""
        self._changed: list[tuple[Identity, Path, Path]] = []
        """A folder, what it was called, and what got a name in it or lost one, until it is synced."""
        self.named_too_soon: list[Path] = []
        """Files, but for LMDB's, that got their name before they were synced."""
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._renaming(getattr(os, name)))
        monkeypatch.setattr(os, "fsync", self._syncing(os.fsync))

    def knows(self, path: Path) -> bool:
        """Whether its folder was synced with it in there, and that folder's own with that."""
        folders = [_identity(os.stat(each)) for each in path.parents[:2]]
        names = [path.name, path.parent.name]
        return all(
            name in self._folders.get(folder, ())
            for folder, name in zip(folders, names, strict=True)
        )

    def has(self, file: Path) -> bool:
        """Whether it was synced by somebody else than LMDB."""
        return _identity(os.stat(file)) in self._files

    def may_lose(self) -> list[Path]:
        """What may be called again as it was before: of what stands there still."""
        return [path for _, folder, path in self._changed if folder.exists() and path.exists()]

    def _renaming(
        self, rename: Callable[[Path, Path], None]
    ) -> Callable[[str | Path, str | Path], None]:
        def renamed(source: str | Path, target: str | Path) -> None:
            old, new = Path(source), Path(target)
            if (
                old.is_file()
                and old.suffix != ".mdb"
                and _identity(os.stat(old)) not in self._files
            ):
                self.named_too_soon.append(new)
            for folder in {old.parent, new.parent}:
                self._changed.append((_identity(os.stat(folder)), folder, new))
            rename(old, new)

        return renamed

    def _syncing(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(handle: int) -> None:
            sync(handle)
            status = os.fstat(handle)
            found = _identity(status)
            if stat.S_ISDIR(status.st_mode):
                self._folders[found] = os.listdir(handle)
            else:
                self._files.add(found)
            self._changed = [each for each in self._changed if each[0] != found]

        return synced


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def remember(store: Store, *names: str) -> None:
    entities = [NewEntity(name=name, entity_type="thing") for name in names]
    store.project("work").execute(CreateEntities(entities=entities), Context(), lambda _: None)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_file_that_is_written_whole_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, disk: Disk
) -> None:
    write_whole(tmp_path / "note", b"all of it")
    assert not disk.named_too_soon
    assert not disk.may_lose()


def test_a_file_that_a_command_wrote_is_there_after_a_loss_of_power(
    tmp_path: Path, disk: Disk
) -> None:
    with written_whole(tmp_path / "memory.json") as file:
        file.write(b"all of it")
    assert not disk.named_too_soon
    assert not disk.may_lose()


def test_a_project_that_was_made_is_found_after_a_loss_of_power(tmp_path: Path, disk: Disk) -> None:
    with closing(Store(tmp_path)) as store:
        store.create("work")
    (log,) = tmp_path.rglob(LOG_FILE)
    assert disk.knows(log)


def test_a_project_stands_where_its_life_put_it_also_after_a_loss_of_power(
    tmp_path: Path, disk: Disk
) -> None:
    with closing(Store(tmp_path)) as store:
        store.create("work")
        store.archive("work")
        assert not disk.may_lose()
        store.restore("work")
        assert not disk.may_lose()


def test_what_was_erased_does_not_come_back_with_a_loss_of_power(
    tmp_path: Path, disk: Disk
) -> None:
    with closing(Store(tmp_path)) as store:
        store.create("work")
        remember(store, "Jon", "Ann")
        store.purge("work", Target(entities=("Jon",)))
    assert not disk.may_lose()


def test_a_backup_is_there_after_a_loss_of_power_and_forgets_what_was_erased(
    tmp_path: Path, disk: Disk
) -> None:
    backup = tmp_path / "backup"
    with closing(Store(tmp_path / "data")) as store:
        store.create("work")
        remember(store, "Jon", "Ann")
        back_up(store, backup)
        (copy,) = backup.rglob(LOG_FILE)
        assert disk.knows(copy)
        assert not disk.may_lose()
        store.purge("work", Target(entities=("Jon",)))
        back_up(store, backup)
    assert disk.knows(copy)
    assert not disk.may_lose()


@pytest.mark.parametrize("replace", [False, True])
def test_what_was_restored_is_there_after_a_loss_of_power(
    tmp_path: Path, disk: Disk, replace: bool
) -> None:
    with closing(Store(tmp_path / "data")) as store:
        store.create("work")
        remember(store, "Jon")
        back_up(store, tmp_path / "backup")
        if replace:
            remember(store, "Ann")
    with closing(Store(tmp_path / "data" if replace else tmp_path / "other")) as store:
        restore(store, tmp_path / "backup", replace=replace)
        log = store.project("work").folder / LOG_FILE
    assert disk.knows(log)
    assert not disk.may_lose()


def test_a_copy_to_which_nothing_is_added_is_on_the_disk_before_it_counts_as_restored(
    tmp_path: Path, disk: Disk
) -> None:
    """As that of a log which has its state already: of another, the state is written to it, and all is synced."""
    with closing(Store(tmp_path / "data")) as store:
        store.create("work")
        remember(store, "Jon")
    with closing(Store(tmp_path / "other")) as store:
        restore(store, tmp_path / "data" / "projects")
        assert disk.has(store.project("work").folder / LOG_FILE)


def test_vectors_are_on_the_disk_before_they_take_the_place_of_older_ones(
    tmp_path: Path, disk: Disk
) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 300))
    projector.save()
    assert not disk.named_too_soon
    assert not disk.may_lose()


@pytest.mark.parametrize("refused", [None, errno.ENOTTY, errno.EIO])
def test_where_the_disk_itself_can_be_asked_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int | None
) -> None:
    """macOS: `fsync` alone leaves in the disk's own cache what was written."""
    asked: list[int] = []

    def control(_: int, command: int) -> None:
        asked.append(command)
        if refused is not None:
            raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    with (tmp_path / "any").open("wb") as file:
        if refused == errno.EIO:
            with pytest.raises(OSError, match="Input/output"):
                sync(file.fileno())
        else:
            sync(file.fileno())
    assert asked == [51]
