"""The URIs of resources: which forms there are, and what one asks for.

    memory://knowledge-graph             the whole graph of a project
    mem://item/{id}                      one record or fact, also a superseded or deleted one
    mem://recent?limit=20                lists of records, the newest first
    mem://by-tags/{tags}?limit=50
    mem://by-type/{type}?limit=100

Each takes `?project=NAME`. A URI is taken apart here, strictly and without looking at the data: what
it names is looked up by key, so nothing in it is ever a path. Whether a limit or a tag is right is
left to `memory_list`, whose arguments they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from memlog.errors import InvalidParameter, invalid_at, shorten
from memlog.rows import labels_of

JSON = "application/json"
"""What each of them is."""

URI_CHARACTERS_MAX = 8_000
"""Twenty tags of a hundred characters, percent-encoded throughout, fit; nothing sensible is longer."""


class Form(msgspec.Struct, frozen=True):
    """One kind of URI: where it lives, what its path segment and its parameters are called."""

    place: str
    segment: str | None
    parameters: tuple[str, ...]
    limit: int = 0
    """How many records a list gives where its URI does not say."""
    toolset: str = "records"
    """With which it is offered."""

    @property
    def template(self) -> str:
        """As RFC 6570 has it."""
        path = f"/{{{self.segment}}}" if self.segment else ""
        return f"{self.place}{path}{{?{','.join(self.parameters)}}}"

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.segment, *self.parameters) if self.segment else self.parameters


GRAPH = Form("memory://knowledge-graph", None, ("project",), toolset="graph")
ITEM = Form("mem://item", "id", ("project",))
RECENT = Form("mem://recent", None, ("limit", "project"), 20)
BY_TAGS = Form("mem://by-tags", "tags", ("limit", "project"), 50)
BY_TYPE = Form("mem://by-type", "type", ("limit", "project"), 100)
FORMS = {form.place: form for form in (GRAPH, ITEM, RECENT, BY_TAGS, BY_TYPE)}

_SPLIT = re.compile(
    r"(?P<scheme>[^:/?#]+)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(\?(?P<query>[^#]*))?"
)
_INTEGER = re.compile("-?[0-9]{1,18}")  # what a limit may say, right or wrong, within 64 bits
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


class UnknownResource(Exception):
    """No form of a resource looks like this URI."""


class GraphAddress(msgspec.Struct, frozen=True):
    project: str | None


class ItemAddress(msgspec.Struct, frozen=True):
    id: str
    project: str | None


class ListAddress(msgspec.Struct, frozen=True):
    """A list, as the arguments of `memory_list` that give it; `usual` is its limit if none is named."""

    arguments: Mapping[str, Any]
    usual: int

    @property
    def project(self) -> str | None:
        name: str | None = self.arguments.get("project")
        return name

    @property
    def labels(self) -> frozenset[str]:
        """Those that a record on it has, all of them."""
        return frozenset(labels_of(self.arguments.get("type"), self.arguments.get("tags", ())))


Address = GraphAddress | ItemAddress | ListAddress


def form_of(uri_template: str) -> Form | None:
    """The form that a client means by a template, or by as much of it as stands before `{?`."""
    for form in FORMS.values():
        if uri_template in (form.template, form.template.partition("{?")[0]):
            return form
    return None


def item_uri(memory_id: str, project: str, active: str) -> str:
    """The URI of a record; it names the project only where that is not the active one."""
    suffix = "" if project == active else f"?project={quote(project, safe='')}"
    return f"mem://item/{memory_id}{suffix}"


def read_address(uri: str) -> Address:
    """What `uri` asks for. Raises UnknownResource, or InvalidParameter where only a part is wrong."""
    if len(uri) > URI_CHARACTERS_MAX:
        raise _malformed(uri, f"{len(uri)} characters are too many. Max {URI_CHARACTERS_MAX}.")
    found = _SPLIT.fullmatch(uri)
    if found is None:
        raise UnknownResource
    form = FORMS.get(f"{found['scheme']}://{found['authority']}".lower())
    segments = found["path"].removesuffix("/").split("/")[1:]
    if form is None or len(segments) != bool(form.segment) or "" in segments:
        raise UnknownResource
    asked = _parameters(uri, found["query"] or "", form)
    if form is GRAPH:
        return GraphAddress(asked.get("project"))
    if form is ITEM:
        return ItemAddress(_decoded(uri, segments[0]), asked.get("project"))
    arguments: dict[str, Any] = dict(asked)
    if _INTEGER.fullmatch(limit := asked.get("limit", "")):
        arguments["limit"] = int(limit)
    if form is BY_TAGS:
        arguments["tags"] = _decoded(uri, segments[0]).split(",")
    elif form is BY_TYPE:
        arguments["type"] = _decoded(uri, segments[0])
    return ListAddress(arguments, form.limit)


def _parameters(uri: str, query: str, form: Form) -> dict[str, str]:
    asked: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in form.parameters:
            raise _malformed(
                uri, f"unknown parameter {shorten(name)!r}. The form is {form.template}"
            )
        if name in asked:
            raise _malformed(uri, f"{name} is given twice")
        if value:  # else a template that was expanded with nothing in it
            asked[name] = _decoded(uri, value)
    return asked


def _decoded(uri: str, part: str) -> str:
    """A part of a URI as the text it stands for."""
    if _NO_ESCAPE.search(part):
        raise _malformed(uri, "% must be followed by two hexadecimal digits (% itself is %25)")
    try:
        text = unquote(part, errors="strict")
        text.encode()
    except UnicodeError:
        raise _malformed(uri, "its percent-encoding is not UTF-8") from None
    if _CONTROL.search(text):
        raise _malformed(uri, "it contains a control character")
    return text


def _malformed(uri: str, problem: str) -> InvalidParameter:
    return invalid_at("uri", problem, value=shorten(uri))
