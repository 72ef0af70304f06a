"""What was refused on purpose, as clients read it: in the result of a tool, or as a JSON-RPC error.

Tools answer with results that carry `isError`; resources, prompts and completions have only protocol
errors. The codes of those differ by era: a resource that is not there was -32002 until 2025-11-25 and
is -32602 from 2026-07-28 on. (-32002 is also what `faults` gives for a call before `initialize`; the
words tell them apart.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NotRequired, TypedDict

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, PaginatedRequestParams
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from memlog.closest import did_you_mean
from memlog.errors import (
    PROBLEMS_MAX,
    EmbeddingError,
    MemlogError,
    MemoryNotFound,
    Problem,
    ProjectArchived,
    ProjectNotFound,
    StorageError,
    counted,
    least,
    shorten,
)
from memlog.shell import of_project
from memlog.storage.errors import for_shortage
from server.advice import followable
from server.answering.cutting import ANSWER_CHARACTERS, within_budget
from server.session import Session

PROBLEMS_CHARACTERS = ANSWER_CHARACTERS // 2
"""Half of an answer: save_memory says them in two ways."""

RESOURCE_NOT_FOUND = -32002

_NOT_THERE = (MemoryNotFound, ProjectNotFound, ProjectArchived)
_NOT_THE_CALLERS = (StorageError, EmbeddingError)


class Described(TypedDict):
    """An error as the contract spells it; the problems are `memlog.errors.Problem`."""

    code: str
    message: str
    suggestion: NotRequired[str]
    problems: NotRequired[list[dict[str, Any]]]


def describe(error: MemlogError, session: Session, project: str = "") -> Described:
    """An error in words, with what of its advice can be followed in this session; about `project`, where that is
    known."""
    described: Described = {"code": error.code, "message": error.message}
    if (suggestion := followable(session, error.suggestion)) is not None:
        described["suggestion"] = of_project(suggestion, project) if project else suggestion
    if error.problems:
        problems = [
            msgspec.structs.replace(each, suggestion=followable(session, each.suggestion))
            for each in _told(error.problems)
        ]
        described["problems"] = msgspec.to_builtins(problems)
    return described


def foreseen(error: MemlogError | OSError) -> MemlogError:
    """Of what the system says only what a process has too little of, which anything may meet: raises all else."""
    if isinstance(error, MemlogError):
        return error
    what_to_do = for_shortage(error)
    if what_to_do is None:
        raise error
    return StorageError(error.strerror or str(error), suggestion=what_to_do)


def _told(problems: Sequence[Problem]) -> list[Problem]:
    """As many as a model can mend at once, and how many more there are."""
    told = list(within_budget(problems[:PROBLEMS_MAX], most=PROBLEMS_CHARACTERS))
    if len(told) == len(problems):
        return told
    told = told[: PROBLEMS_MAX - 1]
    more = counted(len(problems) - len(told), "more problems")
    return [*told, Problem("arguments", f"{least(len(problems))}{more}", "Mend these first.")]


def not_found_code(protocol_version: str) -> int:
    """The JSON-RPC code for a resource that is not there."""
    handshake = protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return RESOURCE_NOT_FOUND if handshake else INVALID_PARAMS


@contextmanager
def refusing(session: Session, protocol_version: str | None = None, **data: Any) -> Iterator[None]:
    """Turns what is `foreseen` and raised within into a JSON-RPC error with `data` and its description.

    `protocol_version` is given where a resource is asked for, and what is not there has a code.
    """
    try:
        yield
    except (MemlogError, OSError) as raised:
        error = foreseen(raised)
        code = INVALID_PARAMS
        if isinstance(error, _NOT_THE_CALLERS):
            code = INTERNAL_ERROR
        elif protocol_version is not None and isinstance(error, _NOT_THERE):
            code = not_found_code(protocol_version)
        described = describe(error, session)
        raise MCPError(code, _in_words(described), {**data, **described}) from raised


def _in_words(described: Described) -> str:
    """The message and what to do instead, as one text."""
    message = described["message"]
    if "suggestion" not in described:
        return message
    return f"{message.rstrip('.')}. {described['suggestion']}"


def unknown(what: str, name: str, known: Collection[str]) -> MCPError:
    """That a client named `what` is not there, and which it may have meant."""
    near = did_you_mean(name, known) or f"There are: {', '.join(known) or 'none'}."
    return MCPError(INVALID_PARAMS, f"{what} {shorten(name)!r}. {near}")


def refuse_cursor(params: PaginatedRequestParams) -> None:
    """For a list that is told on one page. Raises MCPError."""
    if params.cursor:
        raise MCPError(INVALID_PARAMS, "cursor: there is only one page; leave it out")
