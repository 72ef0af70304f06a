"""The resources: listed, described by templates, and read. `addresses` says which URIs there are.

Offered with the toolset that they belong to: the knowledge graph with `graph`, records with `records`.
A list of records is what `memory_list` answers. What is not there is a JSON-RPC error that says which
forms there are. Telling clients about changes is left to `subscriptions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from memlog.canonical import canonical_json
from memlog.commands import MemoryId
from memlog.decisions.memories import required_memory
from memlog.errors import MemlogError, MemoryNotFound, NoActiveProject, invalid_at, shorten
from memlog.rows import Memory
from server.addresses import (
    BY_TAGS,
    BY_TYPE,
    FORMS,
    GRAPH,
    ITEM,
    JSON,
    RECENT,
    Address,
    GraphAddress,
    ItemAddress,
    ListAddress,
    UnknownResource,
    item_uri,
    read_address,
)
from server.answering.packing import one_line
from server.answering.portions import view_entity
from server.answering.views import view_relation
from server.input.arguments import decode
from server.reading import read_in_thread
from server.refusals import not_found_code, refuse_cursor, refusing
from server.registry import Call, Tool
from server.session import Session
from server.tools.records import MemoryList, limit_of, list_records, record_content

RECENT_LISTED = 20
HEADLINE_CHARACTERS_MAX = 80
NAMING_KEYS = ("title", "summary", "name", "text")

Context = ServerRequestContext[Any, Any]

_encode = msgspec.json.Encoder().encode

_DESCRIBED = {
    GRAPH: (
        "knowledge-graph",
        "Knowledge Graph",
        "The full knowledge graph with all entities and relations",
    ),
    ITEM: (
        "record",
        "A record",
        "A record or fact in full, by its id; also one that was superseded or deleted",
    ),
    RECENT: ("recent-records", "Recent records", "The records saved last, newest first"),
    BY_TAGS: (
        "records-by-tags",
        "Records by tags",
        "Records that have all of these tags (separated by commas), newest first",
    ),
    BY_TYPE: ("records-by-type", "Records by type", "Records of a type, newest first"),
}
"""Name, title and description by form; those of the graph are the reference server's."""


class Resources:
    """The resources of one connection."""

    def __init__(self, session: Session, tools: Mapping[str, Tool]) -> None:
        self._session = session
        self._list = tools.get("memory_list")
        toolsets = {tool.toolset for tool in tools.values()}
        self.offered = [form for form in FORMS.values() if form.toolset in toolsets]

    def add_to(self, server: Server[Any]) -> None:
        server.add_request_handler("resources/list", PaginatedRequestParams, self._on_list)
        server.add_request_handler(
            "resources/templates/list", PaginatedRequestParams, self._on_list_templates
        )
        server.add_request_handler("resources/read", ReadResourceRequestParams, self._on_read)

    # -- reading

    def address(self, uri: str) -> Address:
        """What `uri` asks for, if it is on offer. Raises UnknownResource or InvalidParameter."""
        address = read_address(uri)
        form = GRAPH if isinstance(address, GraphAddress) else ITEM
        if form not in self.offered:
            raise UnknownResource
        return address

    def require(self, address: Address) -> None:
        """Raises the MemlogError with which reading it would be refused."""
        match address:
            case ItemAddress():
                self._memory(address)
            case ListAddress():
                self._listing(address)
                self._session.project(address.project)
            case GraphAddress():
                self._session.project(address.project)

    def read(self, address: Address) -> bytes:
        """The resource as JSON. Raises a MemlogError where it cannot be had."""
        match address:
            case ItemAddress():
                project, row = self._memory(address)
                self._session.service.usage.read([row.id])
                return _encode({"project": project, **record_content(row)})
            case ListAddress():
                arguments = self._listing(address)
                return _encode(list_records(Call(self._session), arguments, address.usual))
            case GraphAddress():
                return self._graph(address)

    def _graph(self, address: GraphAddress) -> bytes:
        _, project = self._session.project(address.project)
        with project.read() as state:
            entities = [view_entity(row, state) for row in state.entities()]
            relations = [view_relation(row) for row in state.relations()]
        return _encode({"entities": entities, "relations": relations})

    def _memory(self, address: ItemAddress) -> tuple[str, Memory]:
        name, project = self._session.project(address.project)
        try:
            memory_id = msgspec.convert(address.id, MemoryId)
        except msgspec.ValidationError:
            raise MemoryNotFound(f"Memory with ID {shorten(address.id)} not found") from None
        with project.read() as state:
            return name, required_memory(memory_id, "uri", state)

    def _listing(self, address: ListAddress) -> MemoryList:
        assert self._list is not None, "lists are on offer where memory_list is"
        _require_number(address.arguments.get("limit"))
        arguments = decode(address.arguments, self._list.arguments)
        assert isinstance(arguments, MemoryList)
        limit_of(self._session.service.settings, arguments.limit)
        return arguments

    # -- listing

    def listed(self) -> list[Resource]:
        """The graph, and the records saved last in the active project."""
        found = []
        if GRAPH in self.offered:
            name, title, description = _DESCRIBED[GRAPH]
            found.append(
                Resource(
                    uri=GRAPH.place, name=name, title=title, description=description, mime_type=JSON
                )
            )
        if ITEM in self.offered:
            found += [
                Resource(uri=item_uri(row.id, "", ""), name=record_name(row), mime_type=JSON)
                for row in self._recent()
            ]
        return found

    def _recent(self) -> list[Memory]:
        """None where there is no project to read: listing is no reason to make one."""
        try:
            with self._session.existing(None).read() as state:
                return list(islice(state.memories(), RECENT_LISTED))
        except MemlogError:
            return []

    def templates(self) -> list[ResourceTemplate]:
        found = []
        for form in self.offered:
            name, title, description = _DESCRIBED[form]
            found.append(
                ResourceTemplate(
                    uri_template=form.template,
                    name=name,
                    title=title,
                    description=description,
                    mime_type=JSON,
                )
            )
        return found

    # -- MCP

    async def _on_list(
        self, context: Context, params: PaginatedRequestParams
    ) -> ListResourcesResult:
        refuse_cursor(params)
        return ListResourcesResult(resources=await read_in_thread("resources/list", self.listed))

    async def _on_list_templates(
        self, context: Context, params: PaginatedRequestParams
    ) -> ListResourceTemplatesResult:
        refuse_cursor(params)
        return ListResourceTemplatesResult(resource_templates=self.templates())

    async def _on_read(
        self, context: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        uri = params.uri
        address = self.found(uri, context.protocol_version)
        with self.refusing(uri, context.protocol_version):
            text = await read_in_thread(type(address).__name__, partial(self.read, address))
        contents = TextResourceContents(uri=uri, mime_type=JSON, text=text.decode())
        return ReadResourceResult(contents=[contents])

    def found(self, uri: str, protocol_version: str) -> Address:
        """`address`, its refusals as JSON-RPC errors."""
        try:
            with self.refusing(uri):
                return self.address(uri)
        except UnknownResource:
            raise MCPError(
                not_found_code(protocol_version),
                f"Resource not found: {shorten(uri)}. {self.forms()}",
                {"uri": shorten(uri)},
            ) from None

    @contextmanager
    def refusing(self, uri: str, protocol_version: str | None = None) -> Iterator[None]:
        """Turns a MemlogError raised within, about `uri`, into the JSON-RPC error for this client."""
        with refusing(self._session, protocol_version, uri=shorten(uri)):
            try:
                yield
            except NoActiveProject as error:  # which advises those who call a tool
                behind = "&" if "?" in uri else "?"
                error.suggestion = f"The URI can name one: …{behind}project=NAME."
                raise

    def forms(self) -> str:
        """A sentence that says which URIs there are."""
        return f"There are: {', '.join(form.template for form in self.offered) or 'none'}"


def _require_number(limit: int | str | None) -> None:
    """Raises InvalidParameter for a limit that was left a text, which the words for arguments would take for JSON."""
    if isinstance(limit, str):
        raise invalid_at(
            "limit",
            f'expected an integer, got the string "{shorten(limit)}"',
            "Write it in digits, 18 at most: limit=20, for example.",
            shorten(limit),
        )


def record_name(row: Memory) -> str:
    """The type of a record and the beginning of what it says."""
    return f"{one_line(row.memory_type)}: {headline(row.content)}"


def headline(content: str | dict[str, Any]) -> str:
    """What the content is about, in one short line: its title if it has one, else its beginning."""
    if isinstance(content, dict):
        named = (content[key] for key in NAMING_KEYS if isinstance(content.get(key), str))
        content = next(named, None) or canonical_json(content)
    text = one_line(content)
    if len(text) <= HEADLINE_CHARACTERS_MAX:
        return text
    return text[:HEADLINE_CHARACTERS_MAX].rstrip() + "…"
