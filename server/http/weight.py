"""What a body weighs, before anybody reads what it asks for.

It is read whole, and up to six times, by C that nobody interrupts. Names and brackets take most of the time, and lists
make the collector walk all that there is besides. So a body has only so many parts, and counts as more than one request
where it is large or has many.
"""

from __future__ import annotations

PARTS_MAX = 50_000
"""Arrays, objects and their members in a body. 1,000 items of a call may have 50 each."""

BYTES_A_REQUEST = 32 * 1024
PARTS_A_REQUEST = 100
"""What takes as long as a small request does, where it takes longest: objects that the SDK makes models of."""

_OTHERS = bytes(set(range(256)) - set(b'"[{:'))


def parts(body: bytes) -> int:
    """How many arrays, objects and members of objects it has, if it is JSON. What stands within texts is none."""
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    # Two quotes with nothing between are a text of which nothing counts, or join two texts into one.
    return sum(map(len, bare.replace(b'""', b"").split(b'"')[::2]))


def more_requests(bytes_total: int, parts_total: int) -> int:
    """As how many requests a body counts beside its own."""
    return bytes_total // BYTES_A_REQUEST + parts_total // PARTS_A_REQUEST
