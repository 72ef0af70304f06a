"""Clients told that a resource changed: `resources/subscribe` until 2025-11-25, `subscriptions/listen` since.

What changed is read off the log (`changes`). A write of this process is looked at right away, those of others
within `POLL_SECONDS`, for which the heads of the projects concerned are compared, each looked up once for all
sessions; while nobody listens nothing is done at all. A notification means "read it again": changes that come together
are one, and a client may be told once too often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from memlog.errors import MemlogError, StorageError
from server.addresses import ITEM, Address, UnknownResource
from server.changes import Asked, Changes, Head, changes_between, head_of
from server.resources import Resources
from server.service import Service
from server.session import Session
from server.threads import in_thread

POLL_SECONDS = 0.5
URIS_MAX = 1_000
"""Of one client: of its session, or of the one request that listens."""
URIS_TOGETHER_MAX = 4_000
URIS_GRANTED = 20
"""Where the clients of one door listen to so many together, each still gets so few: nobody takes all places."""
Context = ServerRequestContext[Any, Any]

logger = logging.getLogger("memlog.subscriptions")


class _Glances:
    """The heads of projects as they were in the present tick, for all sessions of a service: a tick is one poll."""

    def __init__(self) -> None:
        self._tick = 0
        self._heads: dict[str, Head] = {}
        self._looking = anyio.Lock()

    async def head(self, name: str, look: Callable[[], Head]) -> Head:
        """The head of the project of this name, at some moment since the tick began; `look` is run by a thread."""
        async with self._looking:
            if (tick := int(time.monotonic() / POLL_SECONDS)) != self._tick:
                self._tick, self._heads = tick, {}
            if name not in self._heads:
                self._heads[name] = await in_thread(look)
            return self._heads[name]


_glances: WeakKeyDictionary[Service, _Glances] = WeakKeyDictionary()


class _Watched(msgspec.Struct):
    """A URI that somebody listens to: what it means, how many listen."""

    address: Address
    listeners: int = 0


class Subscriptions:
    """Who listens to what on one server, and the task that tells them."""

    def __init__(self, session: Session, resources: Resources) -> None:
        self._session = session
        self._resources = resources
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._watched: dict[str, _Watched] = {}
        self._watching_list = 0
        self._subscribed: dict[str, ServerSession] = {}
        """By URI, through which the one client of this server is told, until 2025-11-25."""
        self._told: set[str] = set()
        """Of these, which it was told of since its stream began."""
        self._untaken: set[str] = set()
        """Which it was told of by a stream before, or by none."""
        self._heads: dict[Asked, Head] = {}
        self._glances = _glances.setdefault(session.service, _Glances())

    def add_to(self, server: Server[Any]) -> None:
        if self._session.lasting:  # else nobody could be told, nor would ever unsubscribe
            server.add_request_handler(
                "resources/subscribe", SubscribeRequestParams, self._on_subscribe
            )
            server.add_request_handler(
                "resources/unsubscribe", UnsubscribeRequestParams, self._on_unsubscribe
            )
            self._session.listens_anew = self._listens_anew
            self._session.subscribed = self._subscribed
        server.add_request_handler(
            "subscriptions/listen", SubscriptionsListenRequestParams, self._on_listen
        )
        server.lifespan = self._lifespan

    # -- until 2025-11-25: a subscription for each resource

    async def _on_subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        uri = params.uri
        address = self._resources.found(uri, context.protocol_version)
        with self._resources.refusing(uri, context.protocol_version):
            await in_thread(partial(self._resources.require, address))
        if uri not in self._subscribed:
            self._watch({uri: address}, listened=len(self._subscribed))
        self._subscribed[uri] = context.session
        if self._session.goes_on:  # by a stream that may have brought it before
            self._told.add(uri)
        await self._note_heads({address.project})
        with suppress(StorageError):  # it is told of for as long as this server is there
            await in_thread(self._session.changed)
        return EmptyResult()

    async def _on_unsubscribe(
        self, context: Context, params: UnsubscribeRequestParams
    ) -> EmptyResult:
        if self._subscribed.pop(params.uri, None) is not None:
            self._unwatch([params.uri])
            self._told.discard(params.uri)
        return EmptyResult()

    def _listens_anew(self) -> None:
        self._untaken |= self._told
        self._told.clear()
        self._wake()

    async def _tell_again(self) -> None:
        """Nobody learns what of a stream that broke had arrived."""
        while self._untaken:
            await self._tell_subscriber(self._untaken.pop())

    # -- since 2026-07-28: one request that lasts

    async def _on_listen(
        self, context: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """As the protocol has it, what does not exist is accepted and never changes."""
        wanted = params.notifications
        addresses = dict(self._known(wanted.resource_subscriptions or ()))
        watching_list = bool(wanted.resources_list_changed)
        self._watch(addresses)
        self._watching_list += watching_list
        try:
            await self._note_heads(self._projects())
            return await self._listen(context, params)
        finally:
            self._watching_list -= watching_list
            self._unwatch(addresses)

    def _known(self, uris: Iterable[str]) -> Iterator[tuple[str, Address]]:
        for uri in uris:
            with suppress(UnknownResource, MemlogError):
                yield uri, self._resources.address(uri)

    # -- what is watched

    def _watch(self, addresses: Mapping[str, Address], *, listened: int = 0) -> None:
        """For a client that listens to so many already."""
        wanted, together = listened + len(addresses), len(self._watched.keys() | addresses.keys())
        if wanted > URIS_MAX:
            raise _too_many(f"More than {URIS_MAX} resources are subscribed to")
        if wanted > URIS_GRANTED and together > URIS_TOGETHER_MAX:
            raise _too_many(
                f"All clients together subscribe to {URIS_TOGETHER_MAX} resources; of more, each may have "
                f"{URIS_GRANTED}, not {wanted}"
            )
        for uri, address in addresses.items():
            self._watched.setdefault(uri, _Watched(address)).listeners += 1

    def _unwatch(self, uris: Iterable[str]) -> None:
        for uri in uris:
            self._watched[uri].listeners -= 1
            if not self._watched[uri].listeners:
                del self._watched[uri]
        self._forget_heads()

    def _projects(self) -> set[Asked]:
        projects: set[Asked] = {watched.address.project for watched in self._watched.values()}
        return projects | {None} if self._watching_list else projects

    async def _note_heads(self, projects: set[Asked]) -> None:
        """From here on changes count. The client hears of its subscription only after this."""
        for asked in projects - self._heads.keys():
            head = await in_thread(partial(head_of, asked, self._session))
            self._heads.setdefault(asked, head)
        self._wake()

    def _forget_heads(self) -> None:
        for asked in self._heads.keys() - self._projects():
            del self._heads[asked]

    # -- the task

    @asynccontextmanager
    async def _lifespan(self, server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        self._awake = anyio.Event()
        loop = asyncio.get_running_loop()

        def wrote() -> None:
            if not self._heads:  # as of most sessions, of which a server may have hundreds
                return
            with suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._wake)

        stop_listening = self._session.service.listen(wrote)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run)
                yield {}
                tasks.cancel_scope.cancel()
        finally:
            stop_listening()
            self._listen.close()  # over HTTP each request that listens runs outside: it ends with its answer

    def _wake(self) -> None:
        self._awake.set()

    async def _run(self) -> None:
        while True:
            until_tick = POLL_SECONDS - time.monotonic() % POLL_SECONDS
            with anyio.move_on_after(until_tick if self._projects() else None):
                await self._awake.wait()
            woken = self._awake.is_set()
            self._awake = anyio.Event()
            try:
                await self._tell_again()
                if woken or await self._moved():
                    await self._look()
            except Exception:
                logger.exception("could not look for changes; the next look tries again")

    def _noted(self) -> dict[Asked, Head]:
        """The heads at the last look, of what somebody listens to."""
        return {asked: self._heads[asked] for asked in self._projects() & self._heads.keys()}

    async def _moved(self) -> bool:
        """Whether a head is another one than noted."""
        for asked, before in self._noted().items():
            try:
                name = self._session.project_name(asked)
            except MemlogError:  # none is active, or it is out of reach
                if before != Head():
                    return True
                continue
            if await self._glances.head(name, partial(head_of, name, self._session)) != before:
                return True
        return False

    async def _look(self) -> None:
        heads = self._noted()
        if not heads:
            return
        found = await in_thread(partial(self._compare, heads))
        self._heads.update((asked, head) for asked, (head, _) in found.items())
        self._forget_heads()
        # Matched with who listens by now: the head noted for someone new may be from before this look.
        for uri, watched in list(self._watched.items()):
            _, changes = found.get(watched.address.project, (None, None))
            if changes is not None and changes.concern(watched.address):
                await self._tell(uri)
        _, active = found.get(None, (None, None))
        holds_records = ITEM in self._resources.offered
        if active is not None and holds_records and (active.everything or active.memories):
            await self._bus.publish(ResourcesListChanged())

    async def _tell(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri))
        await self._tell_subscriber(uri)

    async def _tell_subscriber(self, uri: str) -> None:
        if (session := self._subscribed.get(uri)) is not None:
            self._told.add(uri)
            await session.send_resource_updated(uri)

    # -- looking, in a worker thread

    def _compare(self, heads: Mapping[Asked, Head]) -> dict[Asked, tuple[Head, Changes | None]]:
        """The heads now, and what changed since those given, if anything."""
        found: dict[Asked, tuple[Head, Changes | None]] = {}
        for asked, before in heads.items():
            head = head_of(asked, self._session)
            changes = (
                None if head == before else changes_between(before, head, asked, self._session)
            )
            found[asked] = head, changes
        return found


def _too_many(what: str) -> MCPError:
    return MCPError(
        INVALID_REQUEST,
        f"{what}. Unsubscribe from some, or subscribe to a list such as mem://recent instead.",
    )
