"""The stored form of entries: round trips, the chain, and files written long ago."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from memlog import codec
from memlog.codec import CHAIN_END, GENESIS, Stored, decode, digest, encode, today
from memlog.errors import StorageError
from memlog.events import EntityCreated, Erased, Event, Id, ObservationAdded
from memlog.ids import Prefix

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden" / "entries.json").read_text(encoding="utf-8")
)
"""Entries as they were first written. They are never written again, only added to, at the end: `value` is what `encode`
gives for the next position, behind the chain of the entry before, at a time of 1_700_000_000_000_000 + position."""

EVENTS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(Stored)
}


def _is_whole(golden: dict[str, Any]) -> bool:
    """Whether it has all the fields that its event has today: one may have got more since."""
    return bool(golden["fields"].keys() == set(EVENTS[golden["event"]].__struct_fields__))


WHOLE = list(filter(_is_whole, GOLDEN))


def _event(golden: dict[str, Any]) -> msgspec.Struct:
    """The event as its fields describe it; a list in JSON is a tuple in an event."""
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in golden["fields"].items()
    }
    return EVENTS[golden["event"]](**values)


@pytest.mark.parametrize("number", range(len(GOLDEN)), ids=lambda n: GOLDEN[n]["event"])
def test_an_entry_written_long_ago_is_read_and_written_alike(number: int) -> None:
    golden, value = GOLDEN[number], bytes.fromhex(GOLDEN[number]["value"])
    position = number + 1
    before = bytes.fromhex(GOLDEN[number - 1]["value"])[1:CHAIN_END] if number else GENESIS

    entry = decode(position, value)

    assert entry.event == today(_event(golden))
    assert not isinstance(entry.event, Erased)
    assert entry.time_us == 1_700_000_000_000_000 + position
    if golden not in WHOLE or EVENTS[golden["event"]] not in get_args(Event):
        return  # nobody writes it any more
    written, again = encode(
        before, position, entry.time_us, entry.command_id, entry.thread, entry.actor, entry.event
    )
    assert again == value
    assert written == entry


def test_every_event_has_a_golden_entry_with_all_its_fields() -> None:
    assert set(EVENTS) == {golden["event"] for golden in WHOLE}, "add one, as GOLDEN says"


@pytest.mark.parametrize("golden", WHOLE, ids=lambda golden: golden["event"])
def test_the_fields_of_type_id_are_those_in_which_an_id_stands(golden: dict[str, Any]) -> None:
    """A purge looks for names in what somebody wrote, which is all else."""
    declared = {each.name for each in fields(EVENTS[golden["event"]]) if each.type == Id}
    prefixes = tuple(f"{prefix}_" for prefix in get_args(Prefix))
    assert declared == {
        name for name, value in golden["fields"].items() if str(value).startswith(prefixes)
    }


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    content=texts, thread=st.none() | texts, time_us=st.integers(0, 2**62), share=st.floats(0, 1)
)
def test_an_entry_comes_back_as_it_went(
    content: str, thread: str | None, time_us: int, share: float
) -> None:
    event = ObservationAdded("obs_1", "ent_1", content, share, share)
    entry, value = encode(GENESIS, 7, time_us, "cmd_1", thread, None, event)
    assert decode(7, value) == entry


def test_the_chain_depends_on_position_content_and_what_came_before() -> None:
    one = codec.chain(GENESIS, 1, b"a" * 32)
    assert codec.chain(GENESIS, 2, b"a" * 32) != one
    assert codec.chain(GENESIS, 1, b"b" * 32) != one
    assert codec.chain(one, 1, b"a" * 32) != one


GOLDEN_ERASED = (
    "011d73e8f13ba2338cfeb758181c10bdab984333b7f714297544159f19a5037758"
    "ade16ee3f2267618139e22c9bb3fc091e7aee6571b3427e82a0b70a30c9f7ac1"
    "00060a24181e4014"
)
"""The 20th golden entry as it stands once it is erased."""


def test_an_erased_entry_is_stored_as_it_was_long_ago() -> None:
    value = bytes.fromhex(GOLDEN[19]["value"])
    erased = codec.erase(20, value, decode(20, value).time_us)
    assert erased.hex() == GOLDEN_ERASED


GOLDEN_MENDED = (
    "02" + "07" * 32 + "75543df66a8c5bf4abcf75a2db7afc9ca6b14a05e456578841425c3ad4f44764"
    "95cd03e8a86d656e6465645f39c0ad6d656d6c6f672072657061697296b1656e"
    "746974795f637265617465642e7631a5656e745f31aa6c6f737420656e745f31"
    "a46c6f7374cb3ff0000000000000cb3fe0000000000000"
)


def test_what_stands_in_for_a_lost_entry_is_stored_as_it_was_long_ago() -> None:
    link = b"\x07" * 32
    event = EntityCreated("ent_1", "lost ent_1", "lost")
    said = (1_000, "mended_9", None, "memlog repair")
    value = codec.mend(9, link, *said, event)
    assert value.hex() == GOLDEN_MENDED
    assert decode(9, value) == codec.Entry(9, *said, event, link)
    nothing = codec.mend(9, link, *said)
    assert decode(9, nothing) == codec.Entry(9, *said, Erased(lost=True), link)
    assert codec.erase(9, value, 1_000) == codec.mend(9, link, 1_000)


def test_an_erased_entry_keeps_digest_chain_and_time_and_nothing_else() -> None:
    event = ObservationAdded("obs_1", "ent_1", "secret")
    entry, value = encode(GENESIS, 1, 77, "cmd_1", "thread", "actor", event)
    erased = codec.erase(1, value, entry.time_us)
    assert digest(erased) == digest(value)
    assert decode(1, erased) == codec.Entry(1, 77, "", None, None, Erased(), entry.chain)
    for text in (b"secret", b"obs_1", b"ent_1", b"cmd_1", b"thread", b"actor"):
        assert text in value
        assert text not in erased
    assert codec.erase(1, erased, entry.time_us) == erased


def test_an_entry_of_an_unknown_kind_or_length_is_refused_by_position() -> None:
    _, value = encode(GENESIS, 1, 77, "cmd_1", None, None, ObservationAdded("o", "e", "c"))
    for damaged in (b"\x02" + value[1:], codec.erase(1, value, 77)[:-1]):
        with pytest.raises(StorageError, match="position 3"):
            decode(3, damaged)


@pytest.mark.parametrize("end", [b"", b"\0" * 7, b"\0" * 40, b"\xff" * 8])
def test_what_was_erased_follows_only_with_a_time_behind_what_the_chain_proves(end: bytes) -> None:
    _, value = encode(GENESIS, 1, 77, "cmd_1", None, None, ObservationAdded("o", "e", "c"))
    erased = codec.erase(1, value, 77)
    assert codec.follows(GENESIS, 1, erased)
    assert not codec.follows(GENESIS, 1, erased[: codec.DIGEST_END] + end)


def test_an_entry_of_a_newer_memlog_is_refused_by_position() -> None:
    body = msgspec.msgpack.encode([0, "cmd_1", None, None, ["entity_teleported.v9", "ent_1"]])
    with pytest.raises(StorageError, match="position 12"):
        decode(12, bytes([codec.WRITTEN]) + GENESIS + body)


class _Said(msgspec.Struct, frozen=True, array_like=True, tag="said.v1"):
    """A format that is superseded, as one may be some day."""

    id: Id
    subject: Id
    text: str


class _Body(msgspec.Struct, frozen=True, array_like=True):
    time_us: int
    command_id: str
    thread: str | None
    actor: str | None
    event: Event | _Said


def _today(said: _Said) -> Event:
    return ObservationAdded(observation_id=said.id, entity_id=said.subject, content=said.text)


def test_an_entry_of_a_superseded_format_is_the_event_that_says_the_same_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "_decode", msgspec.msgpack.Decoder(_Body).decode)
    monkeypatch.setitem(codec.UPCASTS, _Said, _today)
    body = _Body(7, "cmd_1", None, None, _Said("obs_1", "ent_1", "likes tea"))

    entry = decode(1, bytes(CHAIN_END) + msgspec.msgpack.encode(body))

    said = ObservationAdded(observation_id="obs_1", entity_id="ent_1", content="likes tea")
    assert entry.event == said
