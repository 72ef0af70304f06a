"""What can go wrong, as one small tree. The core raises these with fields; the edges turn them into words.

    MemlogError
    ├── InvalidParameter      INVALID_PARAMETER      the request itself is wrong
    ├── LimitExceeded         LIMIT_EXCEEDED         the request is larger than memlog takes
    ├── NoActiveProject       NO_ACTIVE_PROJECT
    ├── ProjectNotFound       PROJECT_NOT_FOUND
    │   └── PutAway                                  what was open of it is not any more
    ├── ProjectExists         PROJECT_EXISTS
    ├── ProjectArchived       PROJECT_ARCHIVED
    ├── EntityNotFound        ENTITY_NOT_FOUND
    ├── EntityExists          ENTITY_EXISTS
    ├── ObservationNotFound   OBSERVATION_NOT_FOUND
    ├── MemoryNotFound        MEMORY_NOT_FOUND
    ├── Conflict              CONFLICT               true of the request, false of the moment
    ├── StorageError          STORAGE_ERROR          the disk, the log or an index
    │   ├── Unlisted                                 a change that only the list of projects lacks
    │   ├── LogReplaced                              another file stands in the place of the log
    │   ├── Closed                                   a file was closed before it was read
    │   └── DamagedLog                               and up to which position it is whole
    └── EmbeddingError        EMBEDDING_ERROR        the model or its endpoint

The codes are a closed set and part of the tool contract.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar

import msgspec

VALUE_CHARACTERS_MAX = 80
PROBLEMS_MAX = 50
"""So many of a request are told."""

COUNTED_MAX = 10_000
"""So many are counted, and nothing more is looked at: a thousand lists of a thousand would take seconds."""

MEND_ALL = "Mend every item under `problems`, then send the whole request again."


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with a request: where it sits (`entities[3].name`), what, and how to mend it."""

    path: str
    problem: str
    suggestion: str | None = None
    value: Any = None
    entity: str | None = None


class MemlogError(Exception):
    """Base of everything memlog raises on purpose."""

    code: ClassVar[str] = "STORAGE_ERROR"

    def __init__(
        self, message: str, *, suggestion: str | None = None, problems: Iterable[Problem] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion
        self.problems = tuple(problems)


class InvalidParameter(MemlogError):
    code = "INVALID_PARAMETER"


class LimitExceeded(MemlogError):
    code = "LIMIT_EXCEEDED"


class NoActiveProject(MemlogError):
    code = "NO_ACTIVE_PROJECT"


class ProjectNotFound(MemlogError):
    code = "PROJECT_NOT_FOUND"


class PutAway(ProjectNotFound):
    """What was open of a project is not any more. Whoever opens it anew learns why, or finds it there again."""

    def __init__(self) -> None:
        super().__init__("This project was put away or deleted a moment ago")


class ProjectExists(MemlogError):
    code = "PROJECT_EXISTS"


class ProjectArchived(MemlogError):
    code = "PROJECT_ARCHIVED"

    @classmethod
    def named(cls, name: str) -> ProjectArchived:
        return cls(
            f"Project '{name}' is archived: nobody reads or writes it",
            suggestion=f"Call restore_project with {as_arguments(name=name)}, "
            "or switch_project to another one.",
        )


class EntityNotFound(MemlogError):
    code = "ENTITY_NOT_FOUND"


class EntityExists(MemlogError):
    code = "ENTITY_EXISTS"


class ObservationNotFound(MemlogError):
    code = "OBSERVATION_NOT_FOUND"


class MemoryNotFound(MemlogError):
    code = "MEMORY_NOT_FOUND"


class Conflict(MemlogError):
    code = "CONFLICT"


class StorageError(MemlogError):
    code = "STORAGE_ERROR"


class Unlisted(StorageError):
    """A change of a project is in its log, and only the list of projects lacks it."""

    remedy = "Free some space on the disk, or mend what keeps it from being written"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"The change is done, but the list of projects could not be written: {why}",
            suggestion=f"{self.remedy}. The list shows the change then; there is nothing to call again.",
        )


class LogReplaced(StorageError):
    """Another file stands in the place of the log since it was opened; nothing was done."""

    def __init__(self) -> None:
        super().__init__(
            "This project's log was replaced a moment ago: something was erased from it, a backup "
            "was restored, or it was repaired; nothing was done",
            suggestion="Call again.",
        )


class Closed(StorageError):
    """A file was closed before it was read, as an index is whose project is put away."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} was closed a moment ago: its project was put away or deleted, or the server ends",
            suggestion="Call again.",
        )


class DamagedLog(StorageError):
    """The log is not what was written. `whole` is the position up to which it is, or what is damaged is `told` by the
    rest of it; `problem`, what is wrong then; `nothing_left`, that no entry beyond is whole either, but for `copies`
    by other names."""

    def __init__(
        self,
        whole: int,
        problem: str,
        *,
        nothing_left: bool = False,
        copies: Sequence[str] = (),
        told: bool = False,
    ) -> None:
        so_far = f"whole up to position {whole}" if whole else "not whole from its first entry on"
        kept = f"can be made {so_far}" if told else f"is {so_far}"
        way = of_copies(copies) if copies else _way_back(nothing_left)
        super().__init__(
            f"The log of this project is damaged, it {kept}: {problem}",
            suggestion="What is whole can be read, nothing is written. `memlog verify` says what is "
            f"damaged; {way}",
        )
        self.whole, self.problem, self.copies = whole, problem, copies


def _way_back(nothing_left: bool) -> str:
    if nothing_left:
        return (
            "`memlog restore FOLDER PROJECT --replace` brings the project back from a backup; without one, `memlog "
            "projects delete PROJECT` removes it."
        )
    return (
        "`memlog repair PROJECT` goes on with what is whole, and with `--backup FOLDER` takes the rest from "
        "a backup."
    )


def of_copies(names: Sequence[str]) -> str:
    """What to do where a log is gone and these stand where it was."""
    stand = "a copy stands" if len(names) == 1 else "copies stand"
    return (
        f"{stand} there, {', '.join(map(repr, names))}: end all servers, give the one to go on with the name log.mdb, "
        "and start them again."
    )


class EmbeddingError(MemlogError):
    code = "EMBEDDING_ERROR"


def shorten(value: Any) -> Any:
    """`value` as it may stand in an error: long strings cut, containers named by size."""
    if isinstance(value, str):
        shown = value.encode("utf-8", "backslashreplace").decode("utf-8")
        return shown if len(shown) <= VALUE_CHARACTERS_MAX else shown[:VALUE_CHARACTERS_MAX] + "…"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {counted(len(value), 'keys')}"
    return value


def as_arguments(**given: str) -> str:
    """As they are sent with a call."""
    return json.dumps(given, ensure_ascii=False)


def changed_meanwhile(project: str, unseen: int, fate: str, undone: str) -> Conflict:
    """The error for what was confirmed by sight, where by now more would meet that `fate`; nothing was `undone`."""
    entries = counted(unseen, "entries")
    return Conflict(
        f"Project '{project}' changed meanwhile: {entries} would {fate} that nobody was told of; nothing was {undone}",
        suggestion="Run the command again, and look at what it tells.",
    )


def counted(count: int, things: str) -> str:
    """So many of `things`, which are named in a plural that ends in s: 1 key, 1,200 keys, 1 entry, 2 entries."""
    one = f"{things[:-3]}y" if things.endswith("ies") else things.removesuffix("s")
    return f"{count:,} {one if count == 1 else things}"


def invalid_at(
    path: str, problem: str, suggestion: str | None = None, value: Any = None
) -> InvalidParameter:
    """The error for the one thing that is wrong with a request; its message begins with where that sits."""
    told = Problem(path, problem, suggestion, value)
    return InvalidParameter(f"{path}: {problem}", suggestion=suggestion, problems=[told])


Refusal = tuple[type[MemlogError], Problem]
"""One thing wrong with a request, and of which kind that is."""


def refuse(found: Iterable[Refusal]) -> None:
    """Raises the `refusal` of what is found first, if anything is."""
    if first := list(islice(found, COUNTED_MAX)):
        raise refusal(first)


def least(problems: int) -> str:
    """What is said before the number of problems that were counted: beyond the last there may be more."""
    return "at least " if problems >= COUNTED_MAX else ""


def refusal(found: Sequence[Refusal]) -> MemlogError:
    """One error for everything wrong with a request; of the kind all problems share, if they do."""
    kinds = {kind for kind, _ in found}
    kind = kinds.pop() if len(kinds) == 1 else InvalidParameter
    first = found[0][1]
    if len(found) == 1:
        return kind(first.problem, suggestion=first.suggestion, problems=(first,))
    return kind(
        f"{least(len(found))}{len(found)} problems, nothing was done. First: {first.problem} (at {first.path})",
        suggestion=MEND_ALL,
        problems=(problem for _, problem in found),
    )
