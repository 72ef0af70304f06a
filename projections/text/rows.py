"""What the text index holds of a document besides its terms: what is told of it, and what orders it."""

from __future__ import annotations

import math
import zlib

import msgspec

from projections.documents import Kind

RETIRED = "#retired"
"""The `slot` of documents that have died; a living one has its ref, which never begins like this."""

CHECKPOINT = "#checkpoint"
"""The `slot` of the reserved document that holds the position."""

NOBODY = "#nobody"
"""The `slot` of no document."""

LENGTH_PIVOT = 100
LENGTH_MAX = 4_000
_GRAIN_OF_TIE = 2.0**-23


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the index stores of a document, in one value: reading one is 2 µs, reading five is 4."""

    ref: str
    kind: Kind
    entity: str
    text: str  # normalised
    labels: tuple[str, ...]
    born: int
    parts: str = ""
    """Those of the words that have humps, which nothing tells any more once a text is normalised."""


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The beginning of a `Row`, which is all that a search by words is to tell."""

    ref: str
    kind: Kind
    entity: str


encode_row = msgspec.msgpack.Encoder().encode
decode_row = msgspec.msgpack.Decoder(Row).decode
decode_head = msgspec.msgpack.Decoder(Head).decode


def weight(ref: str, length_words: int) -> float:
    """What the index holds as a document's weight, for its length.

    A search multiplies a score by log2(2 + weight), at least 1: here (100 + 4,000) / (100 + words),
    words counted to 4,000, times 1 + less than 1/4,096 drawn from the ref. So documents of one length
    rarely tie, and those that would tie are not in the order in which they were indexed.
    """
    factor = (LENGTH_PIVOT + LENGTH_MAX) / (LENGTH_PIVOT + min(length_words, LENGTH_MAX))
    tie = zlib.crc32(ref.encode("utf-8", "replace")) % 2048 * _GRAIN_OF_TIE
    return math.exp2(factor * (1 + tie)) - 2.0


def size(ref: str, length: int) -> int:
    """What orders the candidates of a search by part: characters, and by the ref where they tie."""
    return length << 32 | zlib.crc32(ref.encode("utf-8", "replace"))
