"""Whether a state is one that commands can have left, by whatever way it is read."""

from __future__ import annotations

from collections import Counter

from memlog.canonical import canonical
from memlog.rows import Memory, decode_observation
from memlog.state import State


def flaws(state: State) -> list[str]:
    """What no command leaves."""
    found: list[str] = []
    listed = [each.value for each in state.versions(b"O") if each.until is None]
    for row in map(decode_observation, listed):
        if state.entity(row.entity_id) is None:
            found.append(f"{row.id} is a fact about nothing: {row.content}")
        if not row.living or state.observation(row.id) != row:
            found.append(f"{row.id} is listed and is not there")
    edges = list(state.relations())
    ends = Counter((canonical(e.source), e.relation_type, canonical(e.target)) for e in edges)
    found += [f"{edge} is there {count} times" for edge, count in ends.items() if count > 1]
    for edge in edges:
        there = state.relations_from(edge.source), state.relations_to(edge.target)
        if not all(edge in each for each in there):
            found.append(f"{edge.id} is not found at its ends")
        if state.relation_between(edge.source, edge.relation_type, edge.target) != edge:
            found.append(f"{edge.id} is not found by its names")
    memories = [memory for each in state.memory_ids("") if (memory := state.memory(each))]
    found += [f"{each.id} supersedes itself" for each in memories if _comes_round(each, state)]
    for listed_by in ((), *((label,) for label in state.labels())):
        gone = (each for each in state.memories(listed_by) if not each.active)
        found += [f"{each.id} is gone and listed by {listed_by}" for each in gone]
    return found


def _comes_round(memory: Memory, state: State) -> bool:
    """Whether what superseded it, what superseded that, and so on, is a circle."""
    passed, newest = {memory.id}, memory.superseded_by
    while newest is not None and newest not in passed:
        passed.add(newest)
        following = state.memory(newest)
        newest = None if following is None else following.superseded_by
    return newest is not None
