"""The log of an HTTP server: a JSON object a line on stderr, with the id of the request it belongs to.

The id is the client's `X-Request-Id` where that is short and plain, else made here; it comes back with
the answer. Neither tokens nor what is stored is logged; paths are, and they may name projects. Whatever stands in one,
a line is one line, and nothing in it is obeyed by a terminal.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memlog.controls import safe
from memlog.times import iso
from server.http.errors import refused
from server.stdio.unread import stderr_handler
from server.threads import NoThread

REQUEST_ID_HEADER = "X-Request-Id"
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}")

ASKED_ALL_DAY = frozenset({"/healthz", "/readyz", "/metrics"})
"""By what watches a server: that it is well is no news."""

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

logger = logging.getLogger("memlog.http")


class JsonLines(logging.Formatter):
    """`extra={"fields": {…}}` adds what is known beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": iso(int(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        asked = request_id.get()
        if asked is not None:
            line["request_id"] = asked
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return safe(json.dumps(line, ensure_ascii=False))


def log_json_to_stderr(level: int) -> None:
    handler = stderr_handler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Each request is one line of ours. The loader of faiss would tell which variants it tried,
    # and of the last two one logs every answer that it streams, the other every look at an index.
    for chatty in ("mcp", "uvicorn", "faiss", "asyncio", "sse_starlette", "filelock"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    # It would repeat a foreign Host or Origin whole, from whoever connects; our line has the status.
    logging.getLogger("mcp.server.transport_security").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_is_not_told_by_us)
    logging.getLogger("mcp.server.streamable_http").addFilter(_is_news)
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str, category: type[Warning], *where: object, **more: object
) -> None:
    """In place of the lines that Python writes to stderr itself, which are no JSON."""
    logger.warning("%s: %s", category.__name__, message)


def _is_not_told_by_us(record: logging.LogRecord) -> bool:
    """What is no HTTP has a line of ours (`Logged.refused_below`)."""
    return not record.getMessage().startswith("Invalid HTTP request")


def _is_news(record: logging.LogRecord) -> bool:
    """That a session ended before a request was handed over is none: the client is told 404, which is a line."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (anyio.ClosedResourceError, anyio.BrokenResourceError))


class Logged:
    """Middleware: a line for each answer, and an answer also where something failed unforeseen."""

    def __init__(self, app: ASGIApp, answered: Callable[[int], None]) -> None:
        self._app = app
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        asked = given if _PLAIN.fullmatch(given) else secrets.token_hex(8)
        request_id.set(asked)  # of this task; uvicorn starts one for each request
        status, began = 0, time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(raw=message["headers"])[REQUEST_ID_HEADER] = asked
                self._report(scope, status, time.perf_counter() - began)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except NoThread as error:
            if status:
                raise
            refusal = refused(
                HTTPStatus.SERVICE_UNAVAILABLE, error.message, error.data["suggestion"]
            )
            await refusal(scope, receive, send_with_id)
        except Exception:
            logger.exception("a request failed in a way nobody foresaw")
            if status:
                raise  # half an answer is out: uvicorn closes the connection
            answer = refused(
                HTTPStatus.INTERNAL_SERVER_ERROR, f"Internal error (request {asked} in the log)"
            )
            await answer(scope, receive, send_with_id)

    def refused_below(self, status: HTTPStatus, why: str, client: str) -> str:
        """Counts and logs what never came as far as this; returns the id that it is answered with."""
        self._answered(status)
        # Not by the context: it is that of a request before, on the same connection.
        asked = secrets.token_hex(8)
        fields = {"request_id": asked, "status": status.value, "why": why, "client": client}
        logger.info(f"{status.value} {status.phrase}", extra={"fields": fields})
        return asked

    def _report(self, scope: Scope, status: int, seconds: float) -> None:
        self._answered(status)
        unremarkable = status == HTTPStatus.OK and scope["path"] in ASKED_ALL_DAY
        level = logging.DEBUG if unremarkable else logging.INFO
        if not logger.isEnabledFor(level):
            return
        user = scope.get("user")
        fields = {
            "method": scope["method"][:20],
            "path": scope["path"][:200],
            "status": status,
            "ms": round(1_000 * seconds, 3),
            "client": (scope.get("client") or ("",))[0],
            "actor": user.username if isinstance(user, AuthenticatedUser) else None,
        }
        said = f"{status} {HTTPStatus(status).phrase}"
        logger.log(level, said, extra={"fields": fields})
