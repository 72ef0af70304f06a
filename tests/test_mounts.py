"""Where memory is not safe, or cannot be at all, is said by whoever is asked."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from pathlib import Path
from stat import S_ISDIR
from typing import BinaryIO

import lmdb
import pytest

from memlog.errors import StorageError
from memlog.storage import mounts
from memlog.storage.environment import Environment
from memlog.storage.mounts import kind_of, require_lmdb, unsafe
from tests.command_line import CommandLine
from tests.service import client_on

LINES = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:29 / /srv/team\\040memory rw,relatime - nfs4 nas:/export rw,vers=4.2
32 22 0:30 / /srv/host rw,relatime shared:7 master:2 - 9p host rw,trans=virtio
33 32 0:31 / /srv/host rw,relatime - tmpfs tmpfs rw
34 22 0:32 / /srv/hostess rw,relatime - fuse.sshfs me@there: rw
"""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(LINES)
    monkeypatch.setattr(mounts, "MOUNTS", table)


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/ann/.local/share/memlog", "ext4"),
        ("/srv/team memory", "nfs4"),
        ("/srv/team memory/not/there/yet", "nfs4"),
        ("/srv/team", "ext4"),
        ("/srv/host/data", "tmpfs"),
        ("/srv/hostess", "fuse.sshfs"),
    ],
)
def test_a_folder_lies_on_what_was_mounted_last_and_nearest_above_it(
    folder: str, kind: str
) -> None:
    assert kind_of(Path(folder)) == kind
    told = unsafe(Path(folder))
    if kind in ("nfs4", "fuse.sshfs"):
        assert f"({kind})" in (told or "")
    else:
        assert told is None


def test_where_the_system_does_not_tell_what_is_mounted_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "nothing")
    assert kind_of(tmp_path) is None
    assert unsafe(tmp_path) is None


@pytest.mark.parametrize(
    ("folder", "named"),
    [
        ("Dropbox/memory", "Dropbox"),
        ("Dropbox (Acme)/memory", "Dropbox (Acme)"),
        ("OneDrive - Acme/Documents/memory", "OneDrive - Acme"),
        ("Library/Mobile Documents/com~apple~CloudDocs/memory", "Mobile Documents"),
        ("Library/CloudStorage/GoogleDrive-ann@example.org/My Drive", "CloudStorage"),
        ("Google Drive/memory", "Google Drive"),
        ("SynologyDrive/memory", "SynologyDrive"),
        ("src/dropbox-client/memory", None),
        ("src/onedrives/memory", None),
        ("memory", None),
    ],
)
def test_a_folder_that_is_copied_to_other_machines_is_named(
    folder: str, named: str | None, tmp_path: Path
) -> None:
    told = unsafe(tmp_path / folder)
    assert told is None if named is None else told is not None and f"'{named}'" in told


@pytest.mark.parametrize(
    ("mark", "program"),
    [
        (".stfolder", "Syncthing"),
        (".sync_1a2b3c4d5e6f.db", "Nextcloud"),
        (".git/annex", "git-annex"),
    ],
)
def test_a_folder_with_what_a_program_leaves_that_copies_it_is_named(
    mark: str, program: str, tmp_path: Path
) -> None:
    (tmp_path / "desk" / mark).mkdir(parents=True)
    for folder in ("desk", "desk/memory"):
        assert f"in 'desk', a folder of {program}, which" in (unsafe(tmp_path / folder) or "")
    assert unsafe(tmp_path / "memory") is None


def test_the_doctor_and_the_log_of_a_server_say_that_memory_is_not_safe_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "Dropbox" / "memory"
    folder.mkdir(parents=True)
    told = unsafe(folder)
    assert told is not None
    ended = CommandLine(folder)("doctor", "--json")
    assert (ended.code, ended.json["data_dir"]["unsafe"]) == (0, told)
    assert told in CommandLine(folder)("doctor").stdout.replace("\n", " ")
    assert list(folder.iterdir()) == []
    coming = CommandLine(folder / "coming")("doctor", "--json").json["data_dir"]
    assert (coming["state"], coming["unsafe"]) == ("it is not there yet", unsafe(folder / "coming"))
    with caplog.at_level(logging.WARNING), client_on(folder) as client:
        client.service._warm()
    assert f"{folder}: the data directory. {told}" in caplog.messages


@pytest.mark.parametrize("number", [19, 1, 22, 95, 38])
def test_a_file_system_that_cannot_do_what_lmdb_needs_is_told_as_such(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, *_: object) -> Environment:
        raise lmdb.Error(f"{path}: {os.strerror(number)}")

    require_lmdb(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("memlog.storage.environment.opened_alone", refused)
    with pytest.raises(StorageError) as raised:
        require_lmdb(tmp_path)
    assert os.strerror(number) in raised.value.message
    assert "Keep the data directory on a disk of this machine" in (raised.value.suggestion or "")
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_gives_a_lock_only_to_who_may_write_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS 4 does, where a backup may well be written to."""
    flock = fcntl.flock

    def of_a_writer(file: int | BinaryIO, kind: int) -> None:
        number = file if isinstance(file, int) else file.fileno()
        is_folder = S_ISDIR(os.fstat(number).st_mode)  # these are locked on this machine alone
        reads = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if kind & fcntl.LOCK_EX and reads and not is_folder:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", of_a_writer)
    with client_on(tmp_path / "data") as client:
        client("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
    data = CommandLine(tmp_path / "data")
    assert data("backup", str(tmp_path / "backup")).code == 0
    assert CommandLine(tmp_path / "back")("restore", str(tmp_path / "backup")).code == 0
    assert "unable" not in data("doctor", "--json").json["data_dir"]


def test_what_gives_no_lock_is_not_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS would keep the file under a hidden name then, and with it the folder that the doctor tried."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(StorageError) as raised:
        Environment(tmp_path / "any.mdb", ("any",))
    assert raised.value.message == "any.mdb: No locks available"
    ours = [os.path.realpath(each) for each in Path("/dev/fd").iterdir() if each.is_symlink()]
    assert not any(each.startswith(str(tmp_path)) for each in ours)


def test_a_file_system_whose_locks_keep_out_their_holder_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SMB does, where a lock is of one opening and what is written by another is denied."""

    def written(*_: object) -> None:
        raise lmdb.ReadonlyError("mdb_txn_commit: Permission denied")

    monkeypatch.setattr("memlog.storage.environment.require_own_lock", written)
    with pytest.raises(StorageError) as raised:
        require_lmdb(tmp_path)
    assert "The file system does not do what LMDB needs" in (raised.value.suggestion or "")
    assert list(tmp_path.iterdir()) == []
