"""When two texts or two JSON values count as the same.

Texts are compared in Unicode NFC; case and spaces count. JSON is compared as a canonical text in which
neither the order of keys at any depth, nor the spelling of a number (1, 1.0, 1e0), nor the Unicode
form of a string makes a difference.

What people take for the same name when they read it is more than that: `plain` is for where they are asked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

_encode = msgspec.json.Encoder(order="sorted").encode


_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]+")
"""Accents of Latin, Greek and Cyrillic letters, Hebrew points, Arabic ones, and what draws an Arabic word out."""


def canonical(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def characters(text: str) -> int:
    """The length as a person counts it: code points of the NFC form."""
    return len(canonical(text))


def plain(text: str) -> str:
    """The text without what many leave out when they type it, or type otherwise: case, accents, points of vowels,
    width, whether an i has its dot."""
    if text.isascii():
        return text.lower()
    spread = unicodedata.normalize("NFKD", text).casefold().replace("\u0131", "i")
    return unicodedata.normalize("NFKC", _MARKS.sub("", spread))


def canonical_json(value: Any) -> str:
    """One text for all spellings of a JSON value."""
    return _encode(_settled(value)).decode()


def text_of(content: str | dict[str, Any]) -> str:
    """The content of a memory as one text."""
    return content if isinstance(content, str) else canonical_json(content)


def _settled(value: Any) -> Any:
    if isinstance(value, str):
        return canonical(value)
    if isinstance(value, dict):
        return dict(zip(_keys(value), map(_settled, value.values()), strict=True))
    if isinstance(value, (list, tuple)):
        return [_settled(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _keys(members: dict[str, Any]) -> list[str]:
    """In NFC, or as they are where two would be one: neither of their values may be lost."""
    keys = [canonical(key) for key in members]
    return keys if len(set(keys)) == len(keys) else list(members)


def strings(value: Any) -> Iterator[str]:
    """Every string inside a JSON value, keys included, in reading order; numbers as they are written."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from strings(each)
    elif isinstance(value, bool) or value is None:
        return
    else:
        yield str(value)
