"""Completions for the variables of resource templates and the arguments of prompts.

A value is completed if it begins like what was typed, whatever the case, the accents and the Unicode form, as search
finds it. Every answer costs a bounded number of reads: of very many names, those beyond the bound are not offered.

Some clients (VS Code) take the first that is offered where a person leaves an argument empty. So the active project
comes first, and for another argument that a prompt can do without nothing is offered until something is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    PromptReference,
    ResourceTemplateReference,
)

from memlog.canonical import plain
from memlog.errors import MemlogError, shorten
from memlog.state import State
from server.addresses import GRAPH, form_of
from server.prompts import LABELS_READ_MAX, Prompts
from server.reading import read_in_thread
from server.refusals import unknown
from server.resources import Resources
from server.session import Session

VALUES_MAX = 100
TYPED_CHARACTERS_MAX = 2_000
IDS_READ_MAX = 2_000
ENTITIES_READ_MAX = 50_000
LIMITS_OFFERED = ("10", "20", "50", "100")

Context = ServerRequestContext[Any, Any]


class Matches(NamedTuple):
    """What completes the typed text, in the order to offer it, and whether that is all there is."""

    values: list[str]
    complete: bool = True


class Completions:
    """The completions of one connection."""

    def __init__(self, session: Session, resources: Resources, prompts: Prompts) -> None:
        self._session = session
        self._resources = resources
        self._prompts = prompts

    def add_to(self, server: Server[Any]) -> None:
        server.add_request_handler("completion/complete", CompleteRequestParams, self._on_complete)

    async def _on_complete(self, context: Context, params: CompleteRequestParams) -> CompleteResult:
        name, typed = params.argument.name, params.argument.value
        known = self._known(params.ref)
        if name not in known:
            raise unknown("Unknown argument", name, known)
        given = (params.context.arguments if params.context else None) or {}
        matches = (
            Matches([])
            if not typed and self._better_left_out(params.ref, name)
            else await read_in_thread(
                f"completion of {name}", partial(self._matches, name, typed, given)
            )
        )
        values = matches.values[:VALUES_MAX]
        return CompleteResult(
            completion=Completion(
                values=values,
                total=len(matches.values) if matches.complete else None,
                has_more=len(values) < len(matches.values) or not matches.complete,
            )
        )

    def _known(self, ref: PromptReference | ResourceTemplateReference) -> Sequence[str]:
        """The arguments of what is meant. Raises MCPError for what is not on offer."""
        if isinstance(ref, PromptReference):
            prompt = self._prompts.prompt(ref.name)
            return [argument.name for argument in prompt.arguments or ()]
        form = form_of(ref.uri)
        if form is None or form not in self._resources.offered:
            raise MCPError(
                INVALID_PARAMS,
                f"Unknown template {shorten(ref.uri)!r}. {self._resources.forms()}",
            )
        return form.variables

    def _better_left_out(self, ref: PromptReference | ResourceTemplateReference, name: str) -> bool:
        """Whether leaving the argument empty says something else than the first that would be offered for it."""
        if name == "project" or not isinstance(ref, PromptReference):
            return False
        arguments = self._prompts.prompt(ref.name).arguments or ()
        return any(each.name == name and not each.required for each in arguments)

    def _matches(self, name: str, typed: str, given: Mapping[str, str]) -> Matches:
        """Nothing where there is no project to read, or nothing to offer for an argument."""
        if name == "limit":
            return Matches([limit for limit in LIMITS_OFFERED if limit.startswith(typed)])
        if len(typed) > TYPED_CHARACTERS_MAX:
            return Matches([])
        way = _WAYS.get(name)
        if way is _names and GRAPH not in self._resources.offered:
            return Matches([])  # names of entities are the graph's
        try:
            if name == "project":
                found = _sorted(typed, (row.name for row in self._session.projects()))
                return Matches(sorted(found.values, key=lambda each: each != self._session.active))
            if way is None:
                return Matches([])
            with self._session.existing(given.get("project")).read() as state:
                return way(typed, state)
        except MemlogError:
            return Matches([])


def _ids(typed: str, state: State) -> Matches:
    """Ids sort by their time: the newest first, and of very many the newest alone."""
    beginning = typed.lower()
    ids = list(islice(state.memory_ids(beginning), IDS_READ_MAX + 1))
    if len(ids) <= IDS_READ_MAX:
        return Matches(ids[::-1])
    newest = (row.id for row in islice(state.memories(), VALUES_MAX))
    return Matches([each for each in newest if each.startswith(beginning)] or ids, complete=False)


def _types(typed: str, state: State) -> Matches:
    return _labels("type:", typed, state)


def _tags(typed: str, state: State) -> Matches:
    """Several tags are separated by commas; the last one is completed, and none is offered twice."""
    before, comma, last = typed.rpartition(",")
    done = {tag.strip() for tag in before.split(",")}
    found = _labels("tag:", last.strip(), state)
    return found._replace(
        values=[f"{before}{comma}{tag}" for tag in found.values if tag not in done]
    )


def _labels(kind: str, typed: str, state: State) -> Matches:
    labels = list(islice(state.labels(), LABELS_READ_MAX + 1))
    found = _sorted(typed, (each.removeprefix(kind) for each in labels if each.startswith(kind)))
    return found._replace(complete=len(labels) <= LABELS_READ_MAX)


def _names(typed: str, state: State) -> Matches:
    """What is recalled is mostly asked about somebody or something."""
    entities = list(islice(state.entities(), ENTITIES_READ_MAX + 1))
    found = _sorted(typed, (row.name for row in entities[:ENTITIES_READ_MAX]))
    return found._replace(complete=len(entities) <= ENTITIES_READ_MAX)


def _sorted(typed: str, values: Iterable[str]) -> Matches:
    """Those that begin like what was typed, sorted, case, accents and Unicode form left aside in both."""
    beginning = plain(typed)
    return Matches(
        sorted((each for each in values if plain(each).startswith(beginning)), key=plain)
    )


_WAYS: dict[str, Callable[[str, State], Matches]] = {
    "id": _ids,
    "tags": _tags,
    "type": _types,
    "query": _names,
}
"""How an argument is completed, by its name; all other text is the user's own."""
