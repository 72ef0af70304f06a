"""A process that dies while it reads must not make the file grow for ever: old pages are used again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb

from memlog.environment import Environment
from tests.served import REPOSITORY, environment

MAP_BYTES = 1 << 20
READER = """
import sys
from pathlib import Path
from memlog.environment import Environment

with Environment(Path(sys.argv[1]), ("rows",)).read():
    print("reading", flush=True)
    sys.stdin.read()
"""


def test_the_pages_that_a_killed_reader_held_are_used_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.mdb"
    rows = Environment(file, ("rows",), map_bytes=MAP_BYTES)

    def change(number: int) -> None:
        def body(transaction: lmdb.Transaction) -> None:
            for key in range(10):
                value = bytes([number % 256]) * 2_000
                transaction.put(b"%d" % key, value, db=rows.databases["rows"])

        rows.write(body)

    change(0)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(file)],
        cwd=REPOSITORY,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reading\n"
        for number in range(10):
            change(number)
    finally:
        reader.kill()
        reader.communicate()
    for number in range(500):
        change(number)
    rows.close()
    assert file.stat().st_size <= MAP_BYTES
