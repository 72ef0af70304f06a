"""Is a log whole? Read from its file, without trusting LMDB's tree, so that any damage can be told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import lmdb

from memlog.log import Damage
from memlog.repair.damage import examine
from memlog.storage.files import MODE, OF_09, make_room_for_lock
from memlog.storage.gates import Turn
from memlog.storage.pages import Pages
from memlog.storage.proving import newest, unsound_metas


def verify_file(path: Path) -> Iterator[int | Damage]:
    """Each sound position of the log in the file, and a Damage for each unsound or missing one.

    Reads every page and hash; others may write meanwhile, unless this process has the file open. Promises to come
    back from any file, also from one that LMDB cannot open or would die of.
    """
    with _opened(path) as pages:
        yield from examine(pages)


@contextmanager
def _opened(path: Path) -> Iterator[Pages]:
    """The newest commit, whose pages nobody uses again meanwhile.

    Nothing but the meta pages is read through LMDB. Where LMDB takes the file for none, or this process has it open
    already, or the lock file tells of a commit that the file does not have, nobody writes to it meanwhile.
    """
    try:
        environment = None if unsound_metas(path) else _snapshots(path)
    except lmdb.Error:
        environment = None
    if environment is not None:
        with closing(environment), newest(path, environment) as found:
            if found is not None:
                yield found
                return
    with Turn(path), closing(Pages(path)) as pages:
        yield pages


def _snapshots(path: Path) -> lmdb.Environment:
    make_room_for_lock(path)
    return lmdb.open(str(path), subdir=False, readonly=True, max_dbs=1, mode=MODE, **OF_09)
