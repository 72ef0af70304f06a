"""The service of a test: real store, real indexes, real tools; no transport, no model unless asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memlog.projects.project import Origin
from memlog.settings import Settings
from server.performing import perform
from server.registry import Call, tools
from server.service import Service
from server.session import Session


class Refused(Exception):
    """A tool answered with an error; `error` is what it said."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.error = error


class Client:
    """Calls tools as `tools/call` does, and gives back `structuredContent`. `texts` are the first texts of all
    answers, `beside` the others of the last one."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.session = Session(service, service.settings.project)
        self.tools = tools(service.settings.toolsets, read_only=service.settings.read_only)
        self.texts: list[str] = []
        self.beside: list[str] = []

    def __call__(self, tool: str, arguments: Any = None, /, **keywords: Any) -> dict[str, Any]:
        """`client("open_nodes", names=["Jon"])`. Raises Refused for an answer with isError."""
        return self.as_command(None, tool, keywords if arguments is None else arguments)

    def as_command(self, command_id: str | None, name: str, arguments: Any) -> dict[str, Any]:
        call = Call(self.session, Origin(command_id=command_id))
        result = perform(self.tools[name], call, arguments).as_result()
        self.texts.append(result.content[0].text)  # type: ignore[union-attr]
        self.beside = [each.text for each in result.content[1:] if each.type == "text"]
        answer: dict[str, Any] = result.structured_content or {}
        if result.is_error:
            raise Refused(answer["error"])
        return answer


@contextmanager
def client_on(data_dir: Path, **settings: Any) -> Iterator[Client]:
    """A client of a service over `data_dir`; search by words only unless `embedder` is given."""
    service = Service(Settings(data_dir=data_dir, **{"embedder": "none", **settings}))
    try:
        yield Client(service)
    finally:
        service.close()


@contextmanager
def remembering(data_dir: Path, facts: Iterable[str]) -> Iterator[Client]:
    """A client whose service has these facts, each a memory of its own, and the model."""
    with client_on(data_dir, embedder="minilm") as client:
        for fact in facts:
            client("store_memory", content=fact)
        yield client
