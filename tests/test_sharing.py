"""A data directory that a group shares: what one of its users makes, the others may read and write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.service import client_on


@contextmanager
def masked(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def entity(name: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": [f"fact of {name}"]}


def use(folder: Path) -> None:
    with client_on(folder) as client:
        for name in "abc":
            client("create_entities", entities=[entity(name)])
            assert client("search_nodes", query="fact")["entities"]
        client("get_analytics")


def test_what_memlog_makes_the_group_may_write_where_the_umask_lets_it(tmp_path: Path) -> None:
    with masked(0o007):
        use(tmp_path / "data")
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "data").rglob("*")}
    assert not [path.name for path, mode in modes.items() if mode & 0o060 != 0o060]
    assert {mode & 0o007 for mode in modes.values()} == {0}


def test_what_memlog_makes_is_for_its_owner_where_the_umask_says_so(tmp_path: Path) -> None:
    with masked(0o077):
        use(tmp_path / "data")
    assert not [path for path in (tmp_path / "data").rglob("*") if path.stat().st_mode & 0o077]
