"""The requests that are not settled yet: answered, or never to be answered."""

from __future__ import annotations

from collections import Counter

import anyio
from mcp_types import RequestId


class Pending:
    """Requests by id, of which a careless client may use one twice."""

    def __init__(self) -> None:
        self._counts: Counter[RequestId] = Counter()
        self._idle = anyio.Event()
        self._idle.set()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._counts

    def open(self, request_id: RequestId) -> None:
        if not self._counts:
            self._idle = anyio.Event()
        self._counts[request_id] += 1

    def settle(self, request_id: RequestId | None) -> None:
        """One is settled; ids that were never opened (lasting, malformed) are ignored."""
        if request_id is None or request_id not in self._counts:
            return
        self._counts[request_id] -= 1
        if not self._counts[request_id]:
            del self._counts[request_id]
        if not self._counts:
            self._idle.set()

    async def wait_idle(self) -> None:
        await self._idle.wait()
