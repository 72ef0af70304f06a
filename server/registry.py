"""The one list of tools: listing, schemas, annotations, dispatch and documentation derive from it.

A tool is a function from a call and its decoded arguments to a result; the decorator `tool` says the
rest. What its docstring says is what a language model reads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from memlog.commands import AnyCommand, ProjectName
from memlog.errors import (
    DamagedLog,
    InvalidParameter,
    LimitExceeded,
    MemlogError,
)
from memlog.projects.project import Origin, Outcome
from server.opened import Opened
from server.rights.grants import EVERYTHING, Grant, Right
from server.service import Service
from server.session import Session


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the arguments of tools that are no command."""

    looked_up: ClassVar[frozenset[str]] = frozenset()
    """As `Command.looked_up`."""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what tools return."""


Returned = TypeVar("Returned", bound=Result)

ProjectArgument = Annotated[ProjectName | None, msgspec.Meta(description="If not the active one")]


class Link(msgspec.Struct, frozen=True):
    """A resource that a result speaks of, to be offered beside it."""

    uri: str
    name: str


ThreadId = Annotated[str, msgspec.Meta(min_length=1, max_length=200, examples=["planning-2026"])]
WroteThread = Annotated[str, msgspec.Meta(min_length=1, description="Only what this thread wrote")]
"""The argument `threadId` of a tool that reads."""

_DESCRIBED = msgspec.Meta(description="Conversation id")
_THREAD = (
    "thread_id",
    Annotated[ThreadId, _DESCRIBED] | None,
    msgspec.field(default=None, name="threadId"),
)
_THREAD_REQUIRED = ("thread_id", Annotated[ThreadId, _DESCRIBED], msgspec.field(name="threadId"))


class Call(msgspec.Struct):
    """Where a call comes from and what it may reach."""

    session: Session
    origin: Origin = Origin()
    opened: Opened | None = None
    """The project it works in, once that is known."""
    project: str = ""
    """The name of that project."""
    wrote: bool = True
    """False once it is known that its command changed nothing."""

    @property
    def service(self) -> Service:
        return self.session.service

    def open(self, arguments: Any) -> tuple[str, Opened]:
        """The project the call works in: its name, and the project opened."""
        self.project, self.opened = self.session.open(getattr(arguments, "project", None))
        return self.project, self.opened

    @property
    def damage(self) -> DamagedLog | None:
        """That the log of this project is damaged: what is told of it is the part that can be read."""
        return None if self.opened is None else self.opened.project.damage

    def execute(
        self,
        command: AnyCommand,
        answer: Callable[[Outcome], Returned],
        result: type[Returned],
    ) -> Returned:
        """Makes `command` true, in the project that is open or that it names. With a command id of the client's, a
        retry gives the stored answer."""
        opened = self.opened or self.open(command)[1]

        def noted(outcome: Outcome) -> Returned:
            self.wrote = bool(outcome.entries)
            return answer(outcome)

        if self.origin.command_id is None:
            return self.service.execute(opened, command, noted, self.origin)
        stored = self.service.execute(
            opened, command, lambda outcome: msgspec.to_builtins(noted(outcome)), self.origin
        )
        return msgspec.convert(stored, result)


Handler = Callable[[Call, Any], Result]
Unfit = Callable[[Call, Mapping[str, Any] | None, MemlogError], dict[str, Any]]


class Tool(msgspec.Struct, frozen=True):
    """A tool as it was declared. `bare` gives what stands in the text of the answer, `links` the
    resources that are offered beside it, `unfit` what stands beside the error of a request that was wrong."""

    name: str
    toolset: str
    title: str
    description: str
    arguments: type[msgspec.Struct]
    result: type[Result]
    handler: Handler
    writes: bool
    destructive: bool
    idempotent: bool
    bare: Callable[[Any], Any] | None
    links: Callable[[Any], Iterable[Link]] | None
    unfit: Unfit | None
    switches: bool

    @property
    def in_order(self) -> bool:
        """Whether calls that were sent after it may go wrong before it is done."""
        return self.writes or self.switches

    @property
    def right(self) -> Right:
        """What a client must be granted to be offered it."""
        if not self.writes:
            return "read"
        return "admin" if self.toolset == "projects" else "write"

    def beside(
        self, call: Call, arguments: Mapping[str, Any] | None, error: MemlogError
    ) -> dict[str, Any]:
        """What the answer says beside `error`."""
        if self.unfit is None or not isinstance(error, (InvalidParameter, LimitExceeded)):
            return {}
        return self.unfit(call, arguments, error)

    def call(self, call: Call, arguments: msgspec.Struct) -> Result:
        """Runs the tool; the thread that the arguments name is recorded on every event."""
        thread = getattr(arguments, "thread_id", None) if self.writes else None
        if thread is not None:
            call.origin = msgspec.structs.replace(call.origin, thread=thread)
        return self.handler(call, arguments)


_Handler = TypeVar("_Handler", bound=Callable[..., Result])
_tools: dict[str, Tool] = {}


def tool(
    toolset: str,
    title: str,
    *,
    writes: bool = False,
    destructive: bool = False,
    idempotent: bool = True,
    bare: Callable[[Any], Any] | None = None,
    links: Callable[[Any], Iterable[Link]] | None = None,
    unfit: Unfit | None = None,
    switches: bool = False,
    in_project: bool = True,
    thread_required: bool = False,
) -> Callable[[_Handler], _Handler]:
    """Declares the decorated function as a tool. Its second parameter's type is its arguments.

    A tool that works inside a project takes `project` beside the fields of that type, one that writes
    takes `threadId`. `bare` picks the part of the result that stands alone in the text, where the
    contract wants it so; `links` names the resources that the result leads to; `unfit` is told of each request that was
    itself wrong, whoever found that, with the arguments as they came, and gives what clients look for beside the error.
    One that `switches` changes the session alone: which project others work in.
    """

    def declare(handler: _Handler) -> _Handler:
        signature = inspect.signature(handler, eval_str=True)
        _, arguments = signature.parameters.values()
        name = handler.__name__
        added: list[tuple[str, Any, Any]] = []
        if writes:
            added.append(_THREAD_REQUIRED if thread_required else _THREAD)
        if in_project:
            added.append(("project", ProjectArgument, None))
        _tools[name] = Tool(
            name=name,
            toolset=toolset,
            title=title,
            description=inspect.cleandoc(handler.__doc__ or ""),
            arguments=_extended(arguments.annotation, added, stores=writes),
            result=signature.return_annotation,
            handler=handler,
            writes=writes,
            destructive=destructive,
            idempotent=idempotent,
            bare=bare,
            links=links,
            unfit=unfit,
            switches=switches,
        )
        return handler

    return declare


def _extended(
    arguments: type[msgspec.Struct], added: list[tuple[str, Any, Any]], *, stores: bool
) -> type[msgspec.Struct]:
    """The same arguments, and what every tool of its kind takes; of those that only find nothing is stored."""
    if not added:
        return arguments
    names = {*arguments.__struct_fields__, *(name for name, _, _ in added)}
    return msgspec.defstruct(
        arguments.__name__,
        added,
        bases=(arguments,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        module=arguments.__module__,
        namespace={} if stores else {"looked_up": frozenset(names)},
    )


def tools(
    toolsets: Iterable[str], *, read_only: bool = False, grant: Grant = EVERYTHING
) -> Mapping[str, Tool]:
    """The tools of these toolsets that are granted, in the order of their declaration."""
    import server.tools  # noqa: F401  (declares them)

    wanted = set(toolsets)
    return {
        name: each
        for name, each in _tools.items()
        if each.toolset in wanted
        and not (read_only and each.writes)
        and grant.allows(each.right)
        and grant.offers(each.toolset)
    }
