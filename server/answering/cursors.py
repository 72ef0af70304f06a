"""Cursors: where the next page of a long answer begins.

A cursor is good for the tool and the project that gave it out, and for the arguments it was given out for.
"""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from memlog.errors import InvalidParameter, Problem, invalid_at, refuse, shorten
from server.input.kinds import READ

MARK_BYTES = 6
ARGUMENT_BYTES = 2

FREE = frozenset({"project", "limit", "cursor", "provenance"})
"""Arguments that may be others on each page: nothing stands elsewhere for them. The mark knows the project."""

Limit = Annotated[int, Meta(ge=1, le=1_000)]
"""The argument `limit` of a tool that answers in pages."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number in a cursor. Anybody can write what looks like a cursor, so all that one says has bounds."""

Position = Annotated[int, Meta(ge=0, le=2**62)]
"""That of the log at which an answer in pages stands, in a cursor; there is always one beyond it."""

Born = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""The position at which something was born, in a cursor."""

Id = Annotated[str, Meta(max_length=64)]
"""An id in a cursor, or none, if empty."""

Cursor = TypeVar("Cursor", bound=msgspec.Struct)


def write_cursor(
    following: msgspec.Struct | None, project_id: str, arguments: msgspec.Struct
) -> str | None:
    """`nextCursor` of the answer to a call with these arguments, if a page is `following`."""
    if following is None:
        return None
    given = _given(arguments)
    data = _mark(type(following), project_id, given) + b"".join(map(_digest, given.values()))
    data += msgspec.msgpack.encode(following)
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_cursor(wanted: type[Cursor], project_id: str, arguments: Any) -> Cursor | None:
    """The cursor among the arguments, if there is one.

    Raises InvalidParameter for what no answer ever gave out, one of another tool or project, or one that was given
    out for other arguments.
    """
    text: str | None = arguments.cursor
    if text is None:
        return None
    given = _given(arguments)
    digests = MARK_BYTES + ARGUMENT_BYTES * len(given)
    data = _data(text)
    try:
        if not data.startswith(_mark(wanted, project_id, given)):
            raise ValueError("positions and ids mean something else there")
        decoded: Any = msgspec.msgpack.decode(data[digests:], type=wanted)
    except (ValueError, msgspec.DecodeError) as error:
        raise _no_cursor(text) from error
    _require_same(given, data[MARK_BYTES:digests])
    return decoded  # type: ignore[no-any-return]


def _data(text: str, path: str = "cursor") -> bytes:
    """What a cursor says. Raises InvalidParameter for a text that can be none of any tool."""
    try:
        data = base64.urlsafe_b64decode((text + "=" * (-len(text) % 4)).encode())
    except ValueError:
        data = b""
    if len(data) < MARK_BYTES:
        raise _no_cursor(text, path)
    return data


def _no_cursor(text: str, path: str = "cursor") -> InvalidParameter:
    problem = "not a cursor that an answer of this tool gave out for this project"
    suggestion = "Pass `nextCursor` of the answer before, unchanged, or leave it out."
    return invalid_at(path, problem, suggestion, shorten(text))


CursorText = Annotated[str, Meta(extra={READ: _data})]
"""The argument `cursor`."""


def _require_same(given: dict[str, Any], digests: bytes) -> None:
    problems = [
        Problem(
            name,
            f"{name} is not what it was in the call that gave out this cursor",
            "Send the same arguments as before with the cursor, or leave the cursor out.",
            shorten(value),
        )
        for at, (name, value) in enumerate(given.items())
        if not digests.startswith(_digest(value), at * ARGUMENT_BYTES)
        if not (name == "asOf" and value is None)  # the cursor knows the moment
    ]
    refuse((InvalidParameter, problem) for problem in problems)


def _given(arguments: msgspec.Struct) -> dict[str, Any]:
    """What is the same on every page, as a client spells it."""
    kind = type(arguments)
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {told: getattr(arguments, name) for name, told in names if name not in FREE}


def _digest(value: Any) -> bytes:
    return blake2b(msgspec.json.encode(value), digest_size=ARGUMENT_BYTES).digest()


def _mark(kind: type[msgspec.Struct], project_id: str, given: dict[str, Any]) -> bytes:
    """What the cursors of one tool for one project begin with."""
    told = " ".join([kind.__name__, project_id, *given])
    return blake2b(told.encode(), digest_size=MARK_BYTES).digest()
