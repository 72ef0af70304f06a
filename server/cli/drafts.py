"""A file that is written whole or not at all: as a draft beside it, which takes its place at the end.

    FILE.<process id>.new

Nobody but its owner may read a draft, and it goes with whatever ends the command but a kill or a loss of power. What
is left then is removed by whoever writes the same file next.
"""

from __future__ import annotations

import errno
import glob
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from memlog.storage.disk import led_to, sync, sync_folder
from server.cli import output
from server.cli.stopping import terminated_in_order

_OWNERS_ONLY = 0o600


@contextmanager
def written_whole(file: Path) -> Iterator[BinaryIO]:
    """What is written takes the place of `file` at the end, all of it, or nothing does.

    A pipe or a device has no content to lose, and nothing may take its place: it is written to as it is.
    Raises OSError with the name of `file`, whatever it was that could not be written.
    """
    if str(file) == "-":
        output.require()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with _in_place_of(file) as opened:
            yield opened
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from error


@contextmanager
def _in_place_of(file: Path) -> Iterator[BinaryIO]:
    # Opened by the name that was given: /dev/stdout and what `>(…)` stands for are links to a pipe, which has no name.
    if file.exists() and not file.is_file():
        with file.open("wb") as opened:
            yield opened
        return
    target = led_to(file)  # where it is a link, what it leads to is replaced
    if target.is_symlink():  # one of a circle, which leads to no file
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    _clear(target)
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    with terminated_in_order():
        try:
            with open(draft, "xb", opener=_private) as opened:
                yield opened
                opened.flush()
                sync(opened.fileno())
            draft.chmod(target.stat().st_mode if target.exists() else _usual_mode())
            draft.replace(target)
            with suppress(PermissionError):  # of a folder that may be written and not be read
                sync_folder(target.parent)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNERS_ONLY)


def _usual_mode() -> int:
    """That of a new file. The umask is only told by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


def _clear(target: Path) -> None:
    """Removes the drafts of this file whose process is gone."""
    for draft in target.parent.glob(f"{glob.escape(target.name)}.*.new"):
        process = draft.name.split(".")[-2]
        if process.isdecimal() and not _runs(int(process)):
            with suppress(OSError):  # somebody else's, who has to see to it
                draft.unlink()


def _runs(process: int) -> bool:
    """Whether another process with this number is there. In a container all may have the same, one after another."""
    if process == os.getpid():
        return False
    try:
        with suppress(PermissionError):
            os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True
