"""Plain calls of tools, past the SDK's models: what is one, and the bytes that answer it.

What the SDK does with a call (four passes of pydantic, a task, a thread lent for it) takes longer than most
tools. So a message that is plainly a call of a tool is decoded and answered here, for stdio (`direct`, `solo`) and for
HTTP (`http.direct`), by threads that are kept or by whoever read it. Promises the very bytes that the SDK's
way gives, for errors too. Whatever the SDK's models might refuse or understand otherwise is not plain, and left to
them; so are all calls where somebody traces. Running a tool is left to `performing`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import msgspec
import pydantic_core
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    ErrorData,
    JSONRPCError,
    RequestId,
)
from mcp_types.methods import validate_client_request
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from memlog.patience import Impatient
from memlog.projects.project import Origin
from server.addresses import JSON
from server.listing import SharedListings
from server.performing import COMMAND_ID_META, UNFORESEEN, Answer, perform
from server.registry import Call, Tool
from server.session import Session
from server.stdio.faults import FaultBoundary, internal_error
from server.stdio.wire import encode

THREADS_MAX = 40
"""As many calls at once as the SDK's way has."""

LEVELS_MAX = 200
"""The SDK refuses JSON of more levels. As many brackets as levels are the least it takes."""

CLIENT_BYTES_MAX = 2_000
"""Of what a client says of itself in each call; more is left to the SDK, and not kept here."""

_PLAIN = re.compile(rb'0|-?[1-9][0-9]{0,14}|"[ !#-\[\]-~]{1,200}"')
"""An id that is written in one way only, so that it can be repeated as it came."""

_LARGE_FLOAT = re.compile(rb"e(?<=[0-9]e)[0-9]{2,3}[],}]")
"""1e16, which pydantic writes 1e+16."""

_POWER = re.compile(rb"e(?<=[0-9]e)-?[0-9]{1,3}[],}]")
"""1e16 and 1e-7, which Python writes 1e+16 and 1e-07."""

_SMALL = b"0.0000"
"""0.00001, which Python writes 1e-05."""

_encode_json = msgspec.json.Encoder().encode


# -- what is plain


class Meta(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    progress_token: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"0"), name="progressToken")
    """Nothing here reports progress."""
    command_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = msgspec.field(
        default=None, name=COMMAND_ID_META
    )


class Envelope(Meta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each call carries in the era without a handshake."""

    version: str = msgspec.field(name=PROTOCOL_VERSION_META_KEY)
    capabilities: msgspec.Raw = msgspec.field(name=CLIENT_CAPABILITIES_META_KEY)
    client: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name=CLIENT_INFO_META_KEY)


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | None = None
    meta: Meta = msgspec.field(default=Meta(), name="_meta")


class _EnvelopedParams(Params, frozen=True, kw_only=True, forbid_unknown_fields=True):
    meta: Envelope = msgspec.field(name="_meta")


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a tool as almost every client sends it."""

    jsonrpc: Literal["2.0"]
    id: msgspec.Raw
    method: Literal["tools/call"]
    params: Params


class _EnvelopedRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    params: _EnvelopedParams


_decode = msgspec.json.Decoder(Request).decode
_decode_enveloped = msgspec.json.Decoder(_EnvelopedRequest).decode


class PlainCall(NamedTuple):
    id: RequestId
    request: Request

    @property
    def tool(self) -> str:
        return self.request.params.name


def plain_call(message: bytes | bytearray, *, enveloped: bool = False) -> PlainCall | None:
    """The call in `message`, of the era of handshakes or `enveloped`; None for what only the SDK should read."""
    if message.count(b"[") + message.count(b"{") > LEVELS_MAX:
        return None
    try:
        request = _decode_enveloped(message) if enveloped else _decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    meta = request.params.meta
    if not (_PLAIN.fullmatch(request.id) and _PLAIN.fullmatch(meta.progress_token)):
        return None
    if isinstance(meta, Envelope) and not _is_known(meta):
        return None
    request_id: RequestId = msgspec.json.decode(request.id)
    # "7" and 7 are one to who cancels. Such an id is the SDK's, which knows all that are open.
    return None if coerce_request_id(request_id) != request_id else PlainCall(request_id, request)


def _is_known(meta: Envelope) -> bool:
    return (
        meta.version == LATEST_MODERN_VERSION
        and len(meta.client) + len(meta.capabilities) <= CLIENT_BYTES_MAX
        and _introduces_itself(bytes(meta.client), bytes(meta.capabilities))
    )


@lru_cache(256)
def _introduces_itself(client: bytes, capabilities: bytes) -> bool:
    """Whether the SDK takes this for a client: looked at once, since a client says the same in each call."""
    said = {CLIENT_CAPABILITIES_META_KEY: capabilities, CLIENT_INFO_META_KEY: client}
    try:
        meta = {key: json.loads(value) for key, value in said.items() if value}
        meta[PROTOCOL_VERSION_META_KEY] = LATEST_MODERN_VERSION
        params = {"name": "", "_meta": meta}
        validate_client_request("tools/call", LATEST_MODERN_VERSION, params)
    except (ValueError, RecursionError):  # pydantic's error is a ValueError, too
        return False
    return True


def is_untraced(server: Server[Any]) -> bool:
    """Whether `server` does nothing about a call that is not done here too."""
    known = (FaultBoundary, OpenTelemetryMiddleware, SharedListings)
    return isinstance(get_tracer_provider(), ProxyTracerProvider) and all(
        type(each) in known for each in server.middleware
    )


# -- the answer


class Form(Protocol):
    """How the SDK writes messages on one of its ways."""

    def result(self, request_id: bytes, answer: Answer) -> bytes: ...

    def error(self, error: JSONRPCError) -> bytes: ...


class HandshakeForm:
    """As on stdio and in sessions: pydantic's JSON, in the revision of the protocol that was agreed on."""

    def __init__(self, version: str = LATEST_HANDSHAKE_VERSION) -> None:
        self._version = version

    def result(self, request_id: bytes, answer: Answer) -> bytes:
        answer = answer.within(self._version)
        structured = _encode_json(answer.structured)
        content = _content(answer, structured, _encode_json)
        if _LARGE_FLOAT.search(structured):
            plain = msgspec.to_builtins(answer.structured)
            structured = pydantic_core.to_json(plain, inf_nan_mode="null")
        return (
            b'{"jsonrpc":"2.0","id":%b,"result":{"content":[%b],"isError":%b,"structuredContent":%b}}'
        ) % (request_id, content, _truth(answer.failed), structured)

    def error(self, error: JSONRPCError) -> bytes:
        return encode(error)[:-1]


class EnvelopedForm:
    """As over HTTP without sessions: Python's JSON, in ASCII, with who answers."""

    def __init__(self, server: Server[Any]) -> None:
        meta = {SERVER_INFO_META_KEY: server.server_info_stamp}
        self._meta = _dumps(meta)

    def result(self, request_id: bytes, answer: Answer) -> bytes:
        structured = _encode_json(answer.structured)
        content = _content(answer, structured, _ascii)
        odd = _SMALL in structured or b"\x7f" in structured or _POWER.search(structured)
        if odd or not structured.isascii():
            # By way of JSON: what is no number is null there.
            structured = _dumps(msgspec.json.decode(structured))
        return (
            b'{"jsonrpc":"2.0","id":%b,"result":{"content":[%b],"isError":%b,"resultType":"complete",'
            b'"structuredContent":%b,"_meta":%b}}'
        ) % (request_id, content, _truth(answer.failed), structured, self._meta)

    def error(self, error: JSONRPCError) -> bytes:
        return _dumps(error.model_dump(mode="json", by_alias=True, exclude_none=True))


def _content(answer: Answer, structured: bytes, written: Callable[[str], bytes]) -> bytes:
    """What an answer says in texts and links, each text as it is `written`."""
    said = structured if answer.said is answer.structured else _encode_json(answer.said)
    content = [
        b'{"text":%b,"type":"text"}' % written(text) for text in (said.decode(), *answer.more)
    ]
    content += [
        b'{"mimeType":%b,"name":%b,"type":"resource_link","uri":%b}'
        % (written(JSON), written(link.name), written(link.uri))
        for link in answer.links
    ]
    return b",".join(content)


def _truth(value: bool) -> bytes:
    return b"true" if value else b"false"


def _ascii(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Told(NamedTuple):
    """The bytes that answer a call, its outcome for those who count, and the error if it was none of the tool's."""

    message: bytes
    outcome: str
    error: ErrorData | None = None


class Calls:
    """The tools of one session. `answer` may be called from any thread."""

    def __init__(self, session: Session, tools: Mapping[str, Tool]) -> None:
        self._session = session
        self._tools = tools

    def __contains__(self, tool: str) -> bool:
        return tool in self._tools

    def only_reads(self, tool: str) -> bool:
        """Whether a call that was broken off may be begun anew."""
        return not self._tools[tool].writes

    def in_order(self, tool: str) -> bool:
        """Whether calls that were sent after one of it have to wait for it, if they are, too."""
        return self._tools[tool].in_order

    def answer(self, call: PlainCall, form: Form) -> Told:
        """Runs a tool that there is, to its end."""
        request = call.request
        origin = Origin(request.params.meta.command_id, actor=self._session.grant.name)
        tool = self._tools[call.tool]
        try:
            answer = perform(tool, Call(self._session, origin), request.params.arguments)
            return Told(form.result(bytes(request.id), answer), answer.outcome)
        except MCPError as error:
            told = error.error
        except Impatient:
            raise
        except BaseException as error:  # where a library panics it is no Exception
            told = internal_error(error)
        return self.refused(call, form, told)

    def refused(self, call: PlainCall, form: Form, error: ErrorData) -> Told:
        """The answer to a call that no tool answers."""
        message = form.error(JSONRPCError(jsonrpc="2.0", id=call.id, error=error))
        return Told(message, UNFORESEEN, error)
