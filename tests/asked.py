"""Arguments of imaginary tools, and what is said about a wrong call of one."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta, field

from memlog.errors import MemlogError, Problem
from server.input.arguments import decode


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class Item(Request):
    content: Annotated[str, Meta(min_length=1, max_length=100)]
    confidence: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Person(Request):
    name: Annotated[str, Meta(min_length=1, max_length=20, examples=["john-doe"])]
    entity_type: Annotated[str, Meta(min_length=1, max_length=20, examples=["person"])] = field(
        name="entityType"
    )
    observations: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=5)
    ] = []
    notes: list[str | Item] = []


class Create(Request):
    aliases: ClassVar[dict[str, str]] = {"people": "entities"}

    entities: Annotated[list[Person], Meta(min_length=1, max_length=3)]
    if_exists: Literal["replace", "merge", "skip"] | None = field(default=None, name="ifExists")
    thread_id: str | msgspec.UnsetType = field(default=msgspec.UNSET, name="threadId")


class Save(Request):
    content: dict[str, Any] | str
    confidence: Annotated[float, Meta(ge=0, le=1, examples=[0.9])]
    tags: Annotated[
        list[Annotated[str, Meta(pattern="^[a-z0-9:_-]{1,100}$", examples=["topic:tea"])]],
        Meta(max_length=3),
    ] = []
    limit: Annotated[int, Meta(ge=1, le=50)] = 10
    as_of: str | int | None = field(default=None, name="asOf")
    weight: float = 1.0
    final: bool = False


class Tree(Request):
    kids: list[Tree] = []


class Meeting(Request):
    when: datetime.datetime
    attendees: dict[str, int] = {}


PERSON = {"name": "Jon", "entityType": "person"}
SAVE = {"content": "tea", "confidence": 0.5}


def refusal(arguments: Any, into: type[msgspec.Struct]) -> MemlogError:
    with pytest.raises(MemlogError) as caught:
        decode(arguments, into)
    return caught.value


def problem(arguments: Any, into: type[msgspec.Struct]) -> Problem:
    (only,) = refusal(arguments, into).problems
    return only
