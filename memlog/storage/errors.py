"""What LMDB and the system say of a file, in words for the reader, with what he may do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import lmdb

from memlog.crew import MORE_THREADS
from memlog.errors import MemlogError, StorageError

DAMAGES = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.VersionMismatchError,
    lmdb.PageNotFoundError,
    lmdb.BadTxnError,  # of a root that it could not read, and went on without
)
"""What LMDB says of a file that is not, or no longer, one of its files."""

_NOT_OURS = "denied"
_READ_ONLY = "Read-only file system"
_COPIED = "copy the data directory (cp -r DIR COPY && chmod -R u+w COPY) and name the copy (--data-dir COPY)"
"""What to do with one that cannot be written to: whoever reads a log makes a lock file beside it."""
_NUMBER_TAKEN = "Resource temporarily unavailable"
"""How LMDB tells that another process has this one's number among those who read: they are of two containers."""
_MORE_MEMORY = "Give the process more memory, or more addresses where they are limited (ulimit -v), then call again."
_SHORTAGES = {
    "Too many open files": "Raise the limit of open files (ulimit -n), or use fewer projects and connections at a "
    "time, then call again.",
    "Cannot allocate memory": _MORE_MEMORY,
    "std::bad_alloc": _MORE_MEMORY,
    "Failed to spawn": MORE_THREADS,
    "temporarily unavailable (os error": MORE_THREADS,
    "No locks available": "Keep the data directory on a local disk, as one of the network may give no locks, "
    "or end programs that hold many, then call again.",
}
"""What a process, and not the disk, may have too little of: how it is told, by onnxruntime and tantivy in their own
words, and what to do."""
_TOO_LARGE = "File too large"
_NOT_ABLE = (
    "No such device",
    "Operation not permitted",
    "Invalid argument",
    "not supported",
    "not implemented",
    "mdb_txn_commit: Permission denied",
)
"""How LMDB tells that a file system maps no files into memory, or gives no locks. The last is told of SMB, where a lock
keeps from the file whoever has it open a second time, its holder, too: LMDB had opened it for writing, so that no right
is missing."""
_QUOTA = "Disk quota"
_DISK_FULL = "No space left"
_DISK_FAILING = "Input/output error"
"""How a failing disk is told; by LMDB a full one, too, that took a part of what it wrote."""


def for_shortage(error: BaseException) -> str | None:
    """What to do where the process has too little of something; None where it is the file that is wrong."""
    return next((what for said, what in _SHORTAGES.items() if said in str(error)), None)


def is_damage(error: StorageError) -> bool:
    """Whether it says that a file is not, or no longer, one of LMDB's."""
    return isinstance(error.__cause__, DAMAGES)


def is_elsewhere(error: MemlogError) -> bool:
    """Whether it says that a file or its folder is not there, as where the folder was moved just then."""
    cause = error.__cause__
    missing = isinstance(cause, lmdb.Error) and getattr(cause, "code", 0) == errno.ENOENT
    moved = isinstance(cause, FileExistsError)  # made by another, and gone when that was looked at
    return missing or moved or isinstance(cause, FileNotFoundError)


def storage_error(
    path: Path, error: Exception, *, derived: bool = False, within: Path | None = None
) -> StorageError:
    """`error` of LMDB or the system, in words for the reader, who is told where `within` that folder it is. What is in
    a `derived` file is there again by itself."""
    name = path.name if within is None else path.relative_to(within)
    doctor = "Run `memlog doctor` to see the state of the data directory."
    suggestion = advice(path, error, derived=derived) or doctor
    return StorageError(f"{name}: {reason(path, error)}", suggestion=suggestion)


def displaced(path: Path) -> StorageError:
    """What is said of a file that stands in the place of one that is still open, here or in another process, or is open
    beside another lock file there, or on another machine: of a lock file on the network neither sees what the other
    writes."""
    return StorageError(
        f"{path.name}: another file was put in its place while it was in use, as by a copy or a synchronization, or "
        "the lock file beside it was removed, or the disk failed amid a commit, or another machine wrote to it, which "
        "has the same disk; nothing was written",
        suggestion="Call again in a minute: by then all who serve may have let go of the former file. Where they have "
        "not, end all servers on this data directory and start them again. `memlog restore` brings back a project "
        "while servers run. Of several machines let one serve the others over HTTP.",
    )


def advice(path: Path, error: BaseException, *, derived: bool = False) -> str | None:
    """What mends the cause; None where that is not known."""
    no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
    if no_folder and (in_the_way := _no_folder_above(path)) is not None:
        return f"'{in_the_way.name}' is no folder, or a link that leads nowhere: move it away, then call again."
    if _TOO_LARGE in str(error):
        return (
            "The system lets no file grow so large. Raise the limit where there is one (ulimit -f), or take a file "
            "system for larger files, then call again; nothing was written."
        )
    if _QUOTA in str(error):
        return (
            "Who owns these files has used up the quota on this disk: remove some of them, or have it raised, then "
            "call again; nothing was written."
        )
    if isinstance(error, lmdb.DiskError) or _DISK_FULL in str(error):
        return "Free some space on the disk and call again; nothing was written."
    if _DISK_FAILING in str(error) and isinstance(error, lmdb.Error):
        return (
            "Free some space on the disk. Where it has enough it is failing, and the system's own log (dmesg) says "
            "how. Mend that, then call again; nothing was written."
        )
    if _DISK_FAILING in str(error):
        return (
            "The disk is failing, or what it is reached by: the system's own log (dmesg) says how. Mend that, or take "
            "another disk and bring the projects back from a backup (`memlog restore`), then call again."
        )
    if _READ_ONLY in str(error):
        return (
            f"It is mounted for reading only: mount it for writing, then call again; of a snapshot, {_COPIED}. "
            "Where nobody chose that, the system did after a failure of the disk, and its own log says which."
        )
    if isinstance(error, lmdb.Error) and any(said in str(error) for said in _NOT_ABLE):
        return (
            "The file system does not do what LMDB needs, which is to map files into memory and to lock them. Keep the "
            "data directory on a disk of this machine (--data-dir or MEMLOG_DATA_DIR); under WSL within Linux, not "
            "below /mnt/c. Write a backup to such a disk, too, and copy it from there."
        )
    if isinstance(error, (PermissionError, lmdb.ReadonlyError)) or _NOT_OURS in str(error):
        return (
            f"Give this user (number {os.getuid()}) the right to read and write the file and its "
            f"folder, then call again. To read what is someone else's, {_COPIED}."
        )
    if isinstance(error, lmdb.Error) and _NUMBER_TAKEN in str(error):
        return (
            f"A process of another container has the same number, {os.getpid()}, and LMDB tells readers "
            "apart by it: two containers cannot serve one volume. Commands go into the one that "
            "serves: docker exec CONTAINER python -m memlog doctor."
        )
    if isinstance(error, DAMAGES) and derived:
        return "The file is damaged and begun anew, no memory is lost with it: call again."
    if isinstance(error, DAMAGES):
        return (
            "The file is damaged. `memlog verify` says where; `memlog restore` brings a project back "
            "from a backup, indexes are built anew by themselves."
        )
    return for_shortage(error)


def _no_folder_above(path: Path) -> Path | None:
    """What stands where a folder of this path should."""
    return next(
        (each for each in path.parents if os.path.lexists(each) and not os.path.isdir(each)), None
    )


def reason(path: Path, error: BaseException) -> str:
    """What the system says is wrong with what is at `path`, without telling a client where that is."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).replace(f"{path}: ", "").replace(os.fspath(path.parent), "…")
