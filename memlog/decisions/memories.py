"""Decisions about memories: facts that supersede each other, and records that are saved once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from memlog.canonical import canonical, text_of
from memlog.commands import CreateMemory, ForgetMemory, StoreMemory, SupersedeMemory
from memlog.context import Context
from memlog.decisions.names import named_by_id
from memlog.decisions.touching import memory_positions
from memlog.errors import (
    Conflict,
    LimitExceeded,
    MemoryNotFound,
    Problem,
    Refusal,
    refusal,
    refuse,
    shorten,
)
from memlog.events import Event, MemoryDeleted, MemoryMerged, MemoryStored, MemorySuperseded
from memlog.ids import is_id
from memlog.rows import Memory
from memlog.state import State

FACT = "fact"
IDS_COMPARED_MAX = 10_000
ID_START_MIN = 18  # mem_, and enough beyond the time an id begins with to mean one memory
SLIPS_MAX = 2

NOTHING_TO_SUPERSEDE = "It is out of every list and search already: there is nothing to do."
STORE_AGAIN = "Store it again with store_memory first."


def store_memory(command: StoreMemory, context: Context) -> Iterator[Event]:
    refuse(_too_long(command.content, context))
    yield MemoryStored(
        context.new_id("mem"), FACT, command.content, command.source, command.confidence
    )


def create_memory(command: CreateMemory, state: State, context: Context) -> Iterator[Event]:
    content = command.content
    refuse((*_too_long(content, context), *_too_many_tags(command, context)))
    like = state.memory_like(command.memory_type, command.source, content)
    tags = tuple(dict.fromkeys(command.tags))
    if like is None:
        yield MemoryStored(
            context.new_id("mem"),
            command.memory_type,
            content,
            command.source,
            command.confidence,
            tags,
        )
    else:
        united = tuple(dict.fromkeys((*like.tags, *tags)))
        yield MemoryMerged(like.id, united, max(like.confidence, command.confidence))


def supersede_memory(command: SupersedeMemory, state: State) -> Iterator[Event]:
    old, new = command.old_memory_id, command.new_memory_id
    retired, successor = _both(old, new, state)
    if old == new:
        raise Conflict(
            f"Memory {old} cannot supersede itself",
            suggestion="Pass the id of the older memory and the id of the newer one.",
        )
    if retired.superseded_by == new:
        return
    if any(each.id == old for each in _successors(successor, state)):
        raise Conflict(
            f"Memory {new} was superseded by {old} already: the other way round would close a circle",
            suggestion="Store what is true now with store_memory and supersede the others by it.",
        )
    if not retired.active:
        raise _gone(retired, new, NOTHING_TO_SUPERSEDE, state)
    if not successor.active:
        raise _gone(successor, old, STORE_AGAIN, state)
    yield MemorySuperseded(old, new)


def forget_memory(command: ForgetMemory, state: State) -> Iterator[Event]:
    row = required_memory(command.id, "id", state)
    if row.deleted_us is None:
        yield MemoryDeleted(row.id)


def _both(old: str, new: str, state: State) -> tuple[Memory, Memory]:
    """Both memories. Raises MemoryNotFound with each that is missing."""
    retired, successor = state.memory(old), state.memory(new)
    if retired is not None and successor is not None:
        return retired, successor
    named = (("old_memory_id", old, retired), ("new_memory_id", new, successor))
    raise refusal([missing_memory(each, path, state) for path, each, row in named if row is None])


def required_memory(memory_id: str, path: str, state: State) -> Memory:
    """Raises MemoryNotFound."""
    row = state.memory(memory_id)
    if row is None:
        raise refusal([missing_memory(memory_id, path, state)])
    return row


def missing_memory(memory_id: str, path: str, state: State) -> Refusal:
    gone = max(memory_positions(memory_id, state), default=None)
    suggestion = (
        _how_to_find(memory_id, state)
        if gone is None
        else f'It was there until position {gone}: undo {{"position": {gone}}} brings it back.'
    )
    problem = f"Memory with ID {shorten(memory_id)} not found"
    return MemoryNotFound, Problem(path, problem, suggestion, shorten(memory_id))


def _how_to_find(memory_id: str, state: State) -> str:
    meant = _meant(memory_id, state)
    if meant is not None:
        return f"Did you mean '{meant}'?"
    other = _of_another_kind(memory_id, state)
    if other is not None:
        return other
    first = (
        "If it is of another project, name that in `project`."
        if is_id(memory_id, "mem")
        else "Pass an id as an answer gave it: mem_ and 26 characters."
    )
    return f"{first} Call search_memories or list_recent_memories to find it."


def _of_another_kind(memory_id: str, state: State) -> str | None:
    """What to do with it where it is the id of something that is no memory."""
    name = named_by_id(memory_id, state)
    if name is not None:
        return (
            f"That is the id of the entity '{shorten(name)}': the tools for entities take its name."
        )
    fact = state.observation(memory_id) if is_id(memory_id, "obs") else None
    owner = state.entity(fact.entity_id) if fact is not None and fact.living else None
    if owner is None:
        return None
    return (
        f"That is the id of a fact of '{shorten(owner.name)}': "
        "update_observation and delete_observations take it, with that name."
    )


def _meant(memory_id: str, state: State) -> str | None:
    """The active memory whose text stands here for its id, or the only one whose id is nearly this."""
    from rapidfuzz.distance import OSA

    text, wanted = canonical(memory_id), memory_id.strip().lower().rstrip(".…")
    wanted = wanted.rpartition("/")[2].partition("?")[0]  # an address ends in the id
    near = []
    for memory in islice(state.memories(), IDS_COMPARED_MAX):
        if isinstance(memory.content, str) and canonical(memory.content) == text:
            return memory.id
        begins = len(wanted) >= ID_START_MIN and memory.id.startswith(wanted)
        if begins or OSA.distance(wanted, memory.id, score_cutoff=SLIPS_MAX) <= SLIPS_MAX:
            near.append(memory.id)
    return near[0] if len(near) == 1 else None


def _gone(memory: Memory, other: str, where_deleted: str, state: State) -> Conflict:
    """`other` is the second one of the call; `where_deleted` is advised where nothing active is left of the first."""
    if memory.superseded_by is None:
        return Conflict(f"Memory {memory.id} was deleted", suggestion=where_deleted)
    *_, newest = _successors(memory, state)
    suggestion = f"Use its newest version instead: {newest.id}."
    if newest.id == other:
        suggestion = NOTHING_TO_SUPERSEDE
    elif not newest.active:
        suggestion = f"Its newest version, {newest.id}, was deleted. {where_deleted}"
    return Conflict(
        f"Memory {memory.id} was superseded already by {memory.superseded_by}",
        suggestion=suggestion,
    )


def _successors(memory: Memory, state: State) -> Iterator[Memory]:
    """What superseded it, what superseded that, and so on to the newest; once round, where an earlier version of
    repair left a circle."""
    passed: set[str] = set()
    while memory.superseded_by is not None and memory.superseded_by not in passed:
        passed.add(memory.superseded_by)
        successor = state.memory(memory.superseded_by)
        assert successor is not None, "a chain of memories has no gaps"
        memory = successor
        yield memory


def predecessors(memory: Memory, state: State) -> Iterator[Memory]:
    """What it superseded last, what that had superseded last, and so on; once round, as `_successors`."""
    passed = {memory.id}
    while memory.supersedes is not None and memory.supersedes not in passed:
        passed.add(memory.supersedes)
        older = state.memory(memory.supersedes)
        if older is None:
            return
        memory = older
        yield memory


def _too_long(content: str | dict[str, Any], context: Context) -> Iterator[Refusal]:
    characters, most = len(text_of(content)), context.content_characters_max
    if characters > most:
        text = f"content is too long ({characters} characters). Max {most}."
        advice = "Save a summary, or several memories that share a tag."
        yield LimitExceeded, Problem("content", text, advice, shorten(content))


def _too_many_tags(command: CreateMemory, context: Context) -> Iterator[Refusal]:
    if len(command.tags) > context.tags_max:
        text = f"Too many tags ({len(command.tags)}). Max {context.tags_max}."
        advice = "Keep the tags that you will search by."
        yield LimitExceeded, Problem("tags", text, advice, shorten(command.tags))
