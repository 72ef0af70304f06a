"""What a body weighs: how many parts it has is counted without reading it as JSON, and yet right."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from server.http.weight import more_requests, parts

_TEXTS = st.text('\\"[]{}:, ab\n\u00e9')
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner),
)


def counted(value: Any) -> int:
    match value:
        case list():
            return 1 + sum(map(counted, value))
        case dict():
            return 1 + len(value) + sum(map(counted, value.values()))
        case _:
            return 0


@given(_JSON, st.booleans(), st.sampled_from([None, 1]))
def test_every_part_is_counted_and_nothing_within_a_text(
    value: Any, in_ascii: bool, indent: int | None
) -> None:
    body = json.dumps(value, ensure_ascii=in_ascii, indent=indent).encode()
    assert parts(body) == counted(value)


def test_a_body_counts_as_a_request_more_for_every_32_kb_and_for_every_100_parts() -> None:
    assert more_requests(32 * 1024 - 1, 99) == 0
    assert more_requests(32 * 1024, 100) == 2
    assert more_requests(4 * 1024 * 1024, 50_000) == 128 + 500
