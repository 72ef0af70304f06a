"""Files and folders for nobody but their owner to look into, and what makes a rename last."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NOT_KNOWN = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


def led_to(path: Path) -> Path:
    """What `path` leads to where it is a link, or lies beyond one. Links that lead in a circle stay what they are:
    `Path.resolve` raises RuntimeError over them before Python 3.13.
    """
    return Path(os.path.realpath(path))


def stands(path: Path) -> bool:
    """Whether anything does there, and no link that leads nowhere or in a circle. Raises OSError where the system does
    not tell, which `Path.exists` takes for nothing since Python 3.14."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in _NOTHING:
            return False
        raise
    return True


def make_private(folder: Path) -> None:
    """Makes `folder`, and those it lies in as the system makes any, where it is not there.

    One that is there is left as it is, for somebody may share it on purpose. Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class NotSynced(OSError):
    """What was written stands there for all to read, and a loss of power may bring back what was there before."""


def write_whole(path: Path, content: bytes) -> None:
    """Makes this all of the file, for its owner alone: whoever reads it finds what was there before or all of this, and
    all of this once it returned, also after a loss of power. Raises OSError: NotSynced where all but the last is done.
    """
    import tempfile

    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise NotSynced(error.errno, error.strerror, path) from error


def sync(handle: int) -> None:
    """Has what was written on the disk itself. On macOS `fsync` leaves it in the disk's own cache, and not every file
    system knows how to ask for more. Raises OSError."""
    os.fsync(handle)
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _NOT_KNOWN:
                raise


def sync_folder(folder: Path) -> None:
    """A rename is on disk once its folders are."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)
