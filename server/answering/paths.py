"""A shortest chain of relations between two entities, which are walked along their arrows and against them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import field

from memlog.canonical import canonical
from memlog.state import State
from server.registry import Result

VISITED_MAX = 200_000

Untried = Literal["too many", "too far"] | None
"""Why a search did not go on from some of the entities that it entered."""


class Step(Result, frozen=True):
    """One edge of a path; `direction` says whether it was walked along or against its arrow."""

    source: str = field(name="from")
    relation_type: str = field(name="relationType")
    target: str = field(name="to")
    direction: Literal["forward", "backward"]


class _Side:
    """One end of a search: by which step each entity was entered from there, and those entered last."""

    def __init__(self, end: str) -> None:
        self.came_by: dict[str, Step | None] = {canonical(end): None}
        self.border = [end]

    @property
    def size(self) -> tuple[int, int]:
        return len(self.border), len(self.came_by)

    def walked(self, name: str) -> list[Step]:
        """The steps by which it entered an entity, the last first."""
        path: list[Step] = []
        step = self.came_by[canonical(name)]
        while step is not None:
            path.append(step)
            step = self.came_by[canonical(step.source)]
        return path


class PathSearch:
    """Breadth first, from both ends: always from where fewer entities were entered last, so that it is over as soon as
    one of the two has nothing more to go on to, and seldom comes by all that a hub is connected with.

    An entity is entered once, by the first edge that reaches it, however it is spelt. A name that only relations have
    connects nothing. `path` is a shortest one, None where there is none; `untried` is why it did not go on.
    """

    def __init__(self, start: str, end: str, depth_max: int, state: State) -> None:
        self._there, self._back = _Side(start), _Side(end)
        self._state = state
        self.untried: Untried = None
        self.path: list[Step] | None = [] if canonical(start) == canonical(end) else None
        depth = 0
        while self.path is None and self._there.border and self._back.border:
            if depth == depth_max:
                self.untried = "too far"
                return
            if not self._widened():
                self.untried = "too many"
                return
            depth += 1

    @property
    def entered(self) -> int:
        return len(self._there.came_by) + len(self._back.came_by)

    def _widened(self) -> bool:
        """Goes on from one side by one relation, to the end or until the two meet; False where that were too many.

        What is met was entered last on the other side, or they would have met before: so the path is a shortest.
        """
        forth = self._there.size <= self._back.size
        here, other = (self._there, self._back) if forth else (self._back, self._there)
        border, here.border = here.border, []
        for name in border:
            if self.entered >= VISITED_MAX:
                return False
            for step in _steps(name, self._state):
                target = canonical(step.target)
                if target in here.came_by or not self._state.entity_id_of(step.target):
                    continue
                here.came_by[target] = step
                if target in other.came_by:
                    there = reversed(self._there.walked(step.target))
                    self.path = [*there, *map(_turned, self._back.walked(step.target))]
                    return True
                here.border.append(step.target)
        return True


def _turned(step: Step) -> Step:
    """The same edge, walked the other way."""
    forward = step.direction == "forward"
    return Step(
        source=step.target,
        relation_type=step.relation_type,
        target=step.source,
        direction="backward" if forward else "forward",
    )


def _steps(name: str, state: State) -> Iterator[Step]:
    for row in state.relations_from(name):
        yield Step(
            source=name, relation_type=row.relation_type, target=row.target, direction="forward"
        )
    for row in state.relations_to(name):
        yield Step(
            source=name, relation_type=row.relation_type, target=row.source, direction="backward"
        )
