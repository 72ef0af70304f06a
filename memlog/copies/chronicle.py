"""The whole history of a project as readable lines of JSON, out and in again without losing a bit.

    {"memlog":"history","version":1,"project":"prj_…","generation":0,"entries":3}
    {"position":2,"time_us":1750000000000000,"command":"cmd_…","thread":null,"actor":null,
     "event":{"type":"entity_created.v1","entity_id":"ent_…","name":"Jon", …},"chain":"9f…"}
    {"position":3,"time_us":…,"erased":"<digest of what was erased>","chain":"…"}

Promises: the chain of hashes runs over the very bytes that are stored, so a history that was read back
has the digests it had, or is refused whole with the line that is wrong. An entry that JSON cannot say to
the byte, one stored in an older form for instance, carries its bytes beside, as `stored`. Receipts are
no history and stay behind: after an import a retry of an old command is a new one (`backup` keeps them).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import takewhile
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from memlog import codec, events
from memlog.codec import CHAIN_END, DIGEST_END, ERASED_BYTES, GENESIS, MENDED, WRITTEN
from memlog.errors import InvalidParameter, MemlogError, Problem, refusal
from memlog.projects.project import Project
from memlog.times import LATEST_US

VERSION = 1

_KINDS: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in get_args(codec.Stored)}
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Heading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line. `generation` counts how often something was erased, in four bytes, and goes on with each purge;
    `entries` are so many lines, which an older memlog did not say."""

    memlog: Annotated[str, Meta(pattern="^history$")]
    version: int
    project: Annotated[str, Meta(pattern=r"^prj_[0-9a-z]{26}\Z")]
    generation: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    entries: int | None = None


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of the log."""

    position: int
    time_us: Annotated[int, Meta(ge=0, le=2**62)]
    chain: Hex
    command: str | None = None
    thread: str | None = None
    actor: str | None = None
    event: dict[str, Any] | None = None
    erased: Hex | None = None
    stored: str | None = None
    mended: bool = False
    """Whether it stands in for an entry that was lost: with the event that had to be there, or none."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode
_decode_heading = msgspec.json.Decoder(Heading).decode


def is_history(data: bytes) -> bool:
    """Whether a file begins as one."""
    return data.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b'{"memlog":')


# -- out


def write(project: Project) -> Iterator[bytes]:
    """The lines, each ending in a newline, of one snapshot. Raises DamagedLog at the first entry that was changed:
    what follows could not be read in again."""
    with project.stored() as (log, _):
        name, generation = project.folder.name, project.generation
        yield _encode(Heading("history", VERSION, name, generation, log.position())) + b"\n"
        before = GENESIS
        for position, value in log.stored():
            codec.require_follows(before, position, value)
            yield _encode(_line(position, value)) + b"\n"
            before = value[1:CHAIN_END]


def _line(position: int, value: bytes) -> Line:
    entry = codec.decode(position, value)
    chain = entry.chain.hex()
    mended = codec.is_mended(value)
    if value[0] != WRITTEN and not mended:
        return Line(position, entry.time_us, chain, erased=value[CHAIN_END:DIGEST_END].hex())
    line = Line(
        position,
        entry.time_us,
        chain,
        entry.command_id,
        entry.thread,
        entry.actor,
        None if isinstance(entry.event, events.Erased) else _readable(entry.event),
        mended=mended,
    )
    if _value(_decode(_encode(line)), entry.chain) != value:
        stored = base64.b64encode(value[CHAIN_END:]).decode()
        line = msgspec.structs.replace(line, stored=stored)
    return line


def _readable(event: events.Happened) -> dict[str, Any]:
    tag, *values = msgspec.to_builtins(event)
    fields = type(event).__struct_fields__
    return {"type": tag, **dict(zip(fields, values, strict=True))}


# -- in


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that say something, each with its number. Of a large file nothing is held twice."""
    numbered = enumerate(BytesIO(data.removeprefix(b"\xef\xbb\xbf")), 1)
    return ((number, text) for number, text in numbered if text.strip())


def read(data: bytes) -> tuple[Heading, Iterator[tuple[int, bytes]]]:
    """The heading, and each position with the value to store for it, read as they are asked for.

    Raises InvalidParameter, and so does what it gives, where a line says something else than the chain of
    hashes, or nothing.
    """
    entries = lines(data)
    _, text = next(entries, (1, b""))
    try:
        heading = _decode_heading(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _wrong(1, f"this is no heading of a history: {error}") from error
    if heading.version != VERSION:
        raise _wrong(1, f"version {heading.version} is not known here: upgrade memlog")
    return heading, _values(entries, heading.entries or 0)


def _values(lines: Iterable[tuple[int, bytes]], least: int) -> Iterator[tuple[int, bytes]]:
    before, time_us = GENESIS, 0
    number, position = 1, 0
    for position, (number, text) in enumerate(lines, 1):
        try:
            line = _decode(text)
            value = _value(line, bytes.fromhex(line.chain))
        except (MemlogError, ValueError, KeyError, OverflowError, RecursionError) as error:
            raise _wrong(number, f"this is no entry of a log: {error}") from error
        if line.position != position:
            raise _wrong(number, f"position {line.position} stands where {position} should")
        if not codec.follows(before, position, value):
            raise _wrong(number, f"the entry at position {position} does not match its chain")
        try:
            entry = codec.decode(position, value)
        except MemlogError as error:
            raise _wrong(number, error.message) from error
        if entry.time_us < time_us:
            raise _wrong(number, "its time is before that of the entry ahead of it")
        if entry.time_us > LATEST_US:
            raise _wrong(number, "its time is beyond the year 9999")
        yield position, value
        before, time_us = entry.chain, entry.time_us
    if position < least:
        raise _wrong(
            number, f"the file ends after entry {position} of {least}: the rest was cut off"
        )


def _value(line: Line, chain: bytes) -> bytes:
    """What is stored for a line. Raises ValueError where it says nothing, or more than one thing."""
    if line.erased is not None:
        head = bytes([codec.ERASED]) + chain + bytes.fromhex(line.erased)
        value = head + line.time_us.to_bytes(8, "big")
        assert len(value) == ERASED_BYTES
        return value
    if line.stored is not None:
        kind = bytes([MENDED if line.mended else WRITTEN])
        return kind + chain + base64.b64decode(line.stored, validate=True)
    event = None if line.event is None else _event(line.event)
    if line.command is None or (event is None and not line.mended):
        raise ValueError("an entry has an event and a command, or is erased")
    said = (line.time_us, line.command, line.thread, line.actor)
    if event is None or line.mended:
        return codec.mend(line.position, chain, *said, event)
    _, value = codec.encode(GENESIS, line.position, *said, event)
    return bytes([WRITTEN]) + chain + value[CHAIN_END:]


def _event(named: dict[str, Any]) -> Any:
    """The event as it is stored: no longer than the line, for its last fields may be younger than that."""
    fields = dict(named)
    kind = _KINDS.get(str(fields.pop("type", "")))
    if kind is None:
        raise ValueError(f"the event {named.get('type')!r} is not known")
    names = kind.__struct_fields__
    if (unknown := next((each for each in fields if each not in names), None)) is not None:
        raise ValueError(f"the event has no field {unknown!r}")
    told = list(takewhile(fields.__contains__, names))
    if len(told) < max(len(fields), len(names) - len(kind.__struct_defaults__)):
        raise ValueError(f"the event lacks its field {names[len(told)]!r}")
    stored = [kind.__struct_config__.tag, *map(fields.get, told)]
    return msgspec.to_builtins(msgspec.convert(stored, kind))[: len(stored)]


def _wrong(number: int, problem: str) -> MemlogError:
    suggestion = "Nothing was imported. Take the file whole, and as it was exported."
    return refusal([(InvalidParameter, Problem(f"line {number}", problem, suggestion))])
