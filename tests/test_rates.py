"""How often a client may call."""

from __future__ import annotations

import pytest

from server.http.limits import Rates


def test_of_more_clients_than_are_remembered_the_one_that_was_away_longest_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.http.limits.CLIENTS_MAX", 2)
    rates = Rates(per_second=1e-6)
    for client in ("phone", "editor"):
        assert rates.take(client) == 0
        assert rates.take(client) > 0
    rates.take("desktop")
    assert rates.take("editor") > 0
    assert rates.take("phone") == 0
