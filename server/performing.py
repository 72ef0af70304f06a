"""One call of a tool, run to its end: its arguments decoded and judged, its answer in no one's form yet.

A tool that fails is an answer, too; what was not foreseen is raised. Who runs it, and in which form it is told, is left
to `dispatch`, by way of the SDK, and to `calls`, past it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from mcp_types import CallToolResult, ResourceLink, TextContent
from mcp_types.version import is_version_at_least

from memlog.errors import DamagedLog, MemlogError, StorageError
from server.addresses import JSON
from server.answering.cutting import together
from server.input.arguments import decode
from server.reading import settled
from server.refusals import describe, foreseen
from server.registry import Call, Link, Result, Tool
from server.rights.credentials import judge
from server.session import Session

COMMAND_ID_META = "memlog/commandId"
"""A key in a call's `_meta`: the client's own id for a command, with which a retry is safe."""

LINKS_SINCE = "2025-06-18"
"""The revision of the protocol that brought links into the results of tools. Clients before it take no such result."""

UNFORESEEN = "INTERNAL_ERROR"
"""The outcome of a call that ended in an exception."""

_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """What a tool answered, in no one's form yet: the first text says `said` as JSON, `more` stand beside it."""

    structured: Result | dict[str, Any]
    said: Any
    more: Sequence[str] = ()
    links: Sequence[Link] = ()
    outcome: str = "ok"
    """Or the code of the error."""

    @property
    def failed(self) -> bool:
        return self.outcome != "ok"

    def within(self, protocol_version: str) -> Answer:
        """What of it this revision has a form for: results name the URIs that links repeat."""
        has_links = is_version_at_least(protocol_version, LINKS_SINCE)
        return self if has_links else self._replace(links=())

    def as_result(self) -> CallToolResult:
        """In the SDK's form."""
        structured = msgspec.to_builtins(self.structured)
        said = structured if self.said is self.structured else self.said
        return CallToolResult(
            content=[
                TextContent(text=_encode(said).decode()),
                *(TextContent(text=text) for text in self.more),
                *(
                    ResourceLink(uri=link.uri, name=link.name, mime_type=JSON)
                    for link in self.links
                ),
            ],
            structured_content=structured,
            is_error=self.failed,
        )


def perform(tool: Tool, call: Call, arguments: Mapping[str, Any] | None) -> Answer:
    """Runs one tool to its end, whatever that is."""
    decoded: msgspec.Struct | None = None
    try:
        decoded = decode(arguments, tool.arguments)
        doubt = (
            judge(decoded, call.service.settings.secrets, call.origin.command_id)
            if tool.writes
            else None
        )
        called = partial(tool.call, call, decoded)
        result = called() if tool.writes else settled(called)
    except (MemlogError, OSError) as raised:
        error = foreseen(raised)
        damaged = isinstance(error, DamagedLog)
        stored = isinstance(error, StorageError)
        project = _project_of(tool, decoded, call.session) if stored else ""
        where = {"project": call.project} if call.project else {}  # in another it may be there
        beside = tool.beside(call, arguments, error)
        failure = {"error": describe(error, call.session, project), **where, **beside}
        damage = None if damaged else call.damage
        more = () if damage is None else (damage.message,)  # what is not found may be what was lost
        return Answer(failure, failure, more, outcome=error.code)
    warning = None if doubt is None else doubt.said(stored=call.wrote)
    return _succeeded(tool, call, result, warning)


def _project_of(tool: Tool, arguments: msgspec.Struct | None, session: Session) -> str:
    """The name of the project that a call is about: those that manage projects take it as what they work on."""
    named = "name" if tool.toolset == "projects" else "project"
    return getattr(arguments, named, None) or session.active


def _succeeded(tool: Tool, call: Call, result: Result, warning: str | None) -> Answer:
    """The answer; a warning stands in `warnings` for those who read what is structured, and in a text of its own
    for the others, as the tool's own do where its text is a bare part. That the log is damaged stands in `notice`,
    which every tool that reads one has."""
    damage = call.damage  # a write that found it has no notice
    if damage is not None and "notice" in result.__struct_fields__:
        both = together(damage.message, result.notice)  # type: ignore[attr-defined]
        result = msgspec.structs.replace(result, notice=both)
    structured: Result | dict[str, Any] = result
    more: tuple[str, ...] = ()
    if warning is not None:
        told = msgspec.to_builtins(result)
        told["warnings"] = [*told.get("warnings", ()), warning]
        structured, more = told, (f"Warning: {warning}",)
    said = structured if tool.bare is None else tool.bare(result)
    # What the bare part cannot say is said beside it: some clients show models the texts only.
    if tool.bare is not None:
        notice: str | None = getattr(result, "notice", None)
        own = (f"Warning: {each}" for each in getattr(result, "warnings", ()))
        more = (*filter(None, [notice]), *own, *more)
    linked = tool.links if call.service.settings.resource_links else None
    links = tuple(linked(result)) if linked else ()
    return Answer(structured, said, more, links)
