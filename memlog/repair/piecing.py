"""The entries of a damaged log as far as the chain of hashes proves them, and the holes between them.

They are looked for in every page that stands in the file, in use or not, for LMDB leaves old pages as they were, and
in a backup where there is one. The tree is not needed, whose root is the first thing that goes with the end of a file.

One wrong byte in an entry is made right: of all bytes that could stand there, one fits the chain. So is the end of one
that was erased, of which nothing but the time stands there. Behind a hole the log goes on from the first entry that
another follows: its chain, by which the other is proved, is stored with it. That entry itself is lost too, for what
came before it is not there to prove its content.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from memlog import codec
from memlog.codec import CHAIN_END, DIGEST_END, ERASED, ERASED_BYTES, GENESIS, MENDED, WRITTEN
from memlog.storage.tables import place

Standing = dict[int, set[bytes]]
"""What looks like an entry, by its position."""

OTHERS = tuple(range(1, 256)), tuple(1 << bit for bit in range(8))
COST_MAX, COSTS_MAX = 2**30, 2**33
"""How many bytes are hashed in search of a wrong one, for an entry and in all: about a second, and eight."""
WRONG_BITS_MAX = 32
"""A chain that is stored with this many wrong bits of 256 is still the one that was computed, and no other."""
POSITION_BITS = 64


class Piece(NamedTuple):
    """One position: the chain there (empty where nothing proves it), and the entry as stored (None for a hole)."""

    link: bytes
    value: bytes | None


def pieces(standing: Standing) -> list[Piece]:
    """Every position from the first up to the last entry that is proved."""
    return _Assembly(standing).pieces()


class _Assembly:
    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._positions = sorted(standing)
        self._left = COSTS_MAX

    def pieces(self) -> list[Piece]:
        found: list[Piece] = []
        link = GENESIS
        while True:
            position = len(found) + 1
            value = self._entry(link, position)
            if value is not None:
                link = value[1:CHAIN_END]
                found.append(Piece(link, value))
                continue
            beyond = self._beyond(position)
            if beyond is None:
                return found
            end, link = beyond
            found += [Piece(b"", None)] * (end - position) + [Piece(link, None)]

    def _at(self, position: int) -> set[bytes]:
        return self._standing.get(position, set())

    def _entry(self, link: bytes, position: int) -> bytes | None:
        """The entry that follows `link`. What was lost once goes before what stands in for it, and what was erased
        stays erased. Of two, as a commit that was cut short may have left one, it is the one that another follows."""
        found = self._following(link, position) or list(self._strayed(link, position))
        found = found or list(self._corrected(link, position))
        return max(found, key=lambda each: self._worth(each, position), default=None)

    def _worth(self, value: bytes, position: int) -> tuple[bool, bool, int]:
        followers = len(self._following(value[1:CHAIN_END], position + 1))
        return not codec.is_mended(value), value[0] == ERASED, followers

    def _following(self, link: bytes, position: int) -> list[bytes]:
        return [each for each in self._at(position) if codec.follows(link, position, each)]

    def _strayed(self, link: bytes, position: int) -> Iterator[bytes]:
        """Entries that stand under a key with one wrong bit."""
        for bit in range(POSITION_BITS):
            for value in self._at(position ^ 1 << bit):
                if not codec.is_mended(value) and codec.follows(link, position, value):
                    yield value

    # -- behind a hole

    def _beyond(self, position: int) -> tuple[int, bytes] | None:
        """The last position of the hole that begins at `position`, and the chain there; None where it has no end."""
        for at in self._positions[bisect_left(self._positions, position) :]:
            if any(_stands_alone(each, at) for each in self._at(at)):
                return at - 1, b""
            links = {value[1:CHAIN_END] for value in self._at(at)}
            proved = [link for link in links if self._written_after(link, at)]
            if len(proved) > 1:
                return at, max(proved, key=partial(self._run, position=at))
            if proved:  # without going along all that follows
                return at, proved[0]
        return None

    def _run(self, link: bytes, position: int) -> int:
        """How many entries, of those that were written, follow each other behind `position`."""
        length = 0
        while following := self._written_after(link, position + length):
            link = following[0][1:CHAIN_END]
            length += 1
        return length

    def _written_after(self, link: bytes, position: int) -> list[bytes]:
        following = self._following(link, position + 1)
        return [each for each in following if not codec.is_mended(each)]

    # -- what is wrong by little

    def _corrected(self, link: bytes, position: int) -> Iterator[bytes]:
        for found in self._at(position):
            yield from _other_kind(link, position, found)
            value = _telling_time(found)
            computed = codec.chain(link, position, codec.digest(value))
            wrong = int.from_bytes(computed) ^ int.from_bytes(value[1:CHAIN_END])
            if wrong.bit_count() <= WRONG_BITS_MAX:
                yield value[:1] + computed + value[CHAIN_END:]
            if value[0] == WRITTEN:
                yield from self._other_byte(link, position, value)

    def _other_byte(self, link: bytes, position: int, value: bytes) -> Iterator[bytes]:
        """The entry with one other byte in its body. All 255 are tried where it is short, single bits where not."""
        body, wanted = value[CHAIN_END:], value[1:CHAIN_END]
        others = next((each for each in OTHERS if _cost(body, each) <= COST_MAX), ())
        self._left -= _cost(body, others)
        if self._left < 0:
            return
        head, begun = link + place(position), sha256()
        for at, byte in enumerate(body):
            for other in others:
                tried = begun.copy()
                tried.update(bytes([byte ^ other]) + body[at + 1 :])
                if sha256(head + tried.digest()).digest() == wanted:
                    yield value[:CHAIN_END] + body[:at] + bytes([byte ^ other]) + body[at + 1 :]
                    return
            begun.update(body[at : at + 1])


def _other_kind(link: bytes, position: int, value: bytes) -> Iterator[bytes]:
    for kind in (WRITTEN, ERASED, MENDED):
        other = bytes([kind]) + value[1:]
        if codec.follows(link, position, other):
            yield other


def _telling_time(value: bytes) -> bytes:
    """What was erased with a time, be it none, where it has no right one: it is made to fit then."""
    if value[0] != ERASED or codec.tells_time(value):
        return value
    return value[:DIGEST_END].ljust(ERASED_BYTES, b"\0")


def _cost(body: bytes, others: tuple[int, ...]) -> int:
    """In bytes hashed: half of the body for each attempt, which takes as long as a thousand by itself."""
    return len(body) * len(others) * (len(body) // 2 + 1_000)


def _stands_alone(value: bytes, position: int) -> bool:
    """What was put in the place of a lost entry is proved by nothing but itself."""
    return codec.is_mended(value) and codec.follows(b"", position, value)
