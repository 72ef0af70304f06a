"""What a user asks for in words: the query language, read without ever failing.

    query   = both { "OR" both }
    both    = side { "AND" side }
    side    = part { part }          side by side: all of them
    part    = word { word } | item   but of plain words side by side: any of them
    item    = { "NOT" } ( "(" query ")" | phrase | prefix | word )
    phrase  = '"' anything but '"' '"'
    prefix  = word "*"

Operators count in capitals only. Punctuation is syntax only where a word begins or a group ends, so
`X-4471-b`, `src/auth/login.py`, `foo_bar`, `C++`, `title:foo` and `print("hello")` are words. A query
that does not follow this grammar, or nests deeper or runs longer than the limits below, is plain
words from end to end. So is one whose only syntax is parentheses: people write them. And so is what was pasted, as an
error message or code: a query of several lines, or one with a quotation that goes on as code does, right behind its
end: `File "src/auth/login.py", line 54, in issue_token`, `{"code": "TAKEN"}`; or SQL in capitals, whose operators are
not these: `SELECT id FROM users WHERE email IS NOT NULL AND active`.

A sentence is told by its stop words. `Do NOT deploy on Fridays` is one, plain words, and its NOT an emphasis; and where
one has a phrase, as `who said "it works"?`, its other words rank what has the phrase, and need not be there.

`AND`, `OR` and `NOT` are about things, not about texts: an entity has all the words of all its facts. So
`person NOT banker` is no entity that was ever called a banker, and `coffee AND tea` may be told in two facts.

Which texts have a word, and how well they match, is left to `text.snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import msgspec

from projections.text.analysis import STOP_WORDS

DEPTH_MAX = 32
ITEMS_MAX = 256

_CODE_GOES_ON = tuple(",:;]}>=")
"""What stands right behind a quotation in code and error messages; behind that of a question stands `?` or `.`."""


_OF_SQL = frozenset(("SELECT", "WHERE"))
_NEGATED_IN_SQL = frozenset(("NULL", "EXISTS", "IN", "LIKE", "BETWEEN"))
"""Words in capitals that nobody but SQL writes; and those that it has behind its NOT."""


class Words(msgspec.Struct, frozen=True):
    """Plain words: a document has any of them, and the more the better."""

    text: str


class Phrase(msgspec.Struct, frozen=True):
    """The words of `text`, one after the other."""

    text: str


class Prefix(msgspec.Struct, frozen=True):
    """A word that begins with `text`."""

    text: str


class And(msgspec.Struct, frozen=True):
    parts: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True):
    parts: tuple[Node, ...]


class Not(msgspec.Struct, frozen=True):
    part: Node


Node = Words | Phrase | Prefix | And | Or | Not


class Query(msgspec.Struct, frozen=True):
    """A query as read. `text` is what it asks for without its syntax, for search by meaning or by part."""

    root: Node
    text: str

    @property
    def is_plain(self) -> bool:
        """Whether it is words alone, with no operator, phrase, prefix or group."""
        return isinstance(self.root, Words)


def parse(query: str) -> Query:
    """`query` as a tree. Never raises."""
    try:
        root = _Parser(query).parse()
    except _Malformed:
        root = Words(query.strip())
    if isinstance(root, Words):
        return Query(Words(query.strip()), query.strip())
    return Query(root, " ".join(leaf.text for leaf in wanted(root)))


Leaf = Words | Phrase | Prefix


def wanted(node: Node, *, negated: bool = False) -> Iterator[Leaf]:
    """The leaves by which something is found, and not those that keep something out."""
    match node:
        case And(parts) | Or(parts):
            for part in parts:
                yield from wanted(part, negated=negated)
        case Not(part):
            yield from wanted(part, negated=not negated)
        case _:
            if not negated:
                yield node


class _Malformed(Exception):
    """The query does not follow the grammar; it goes no further than `parse`."""


class _Token(NamedTuple):
    kind: str  # one of ( ) AND OR NOT word phrase prefix
    text: str


def _tokens(query: str) -> Iterator[_Token]:
    at = 0
    while at < len(query):
        character = query[at]
        if character.isspace():
            at += 1
        elif character in "()":
            at += 1
            yield _Token(character, character)
        elif character == '"':
            end = query.find('"', at + 1)
            if end < 0 or query.startswith(_CODE_GOES_ON, end + 1):
                raise _Malformed
            yield _Token("phrase", query[at + 1 : end])
            at = end + 1
        else:
            end = _word_end(query, at)
            yield _word(query[at:end])
            at = end


def _word_end(query: str, at: int) -> int:
    """Where the word that begins at `at` ends: at white space, or at a parenthesis it did not open."""
    own = 0
    for end in range(at, len(query)):
        character = query[end]
        if character.isspace():
            return end
        if character == "(":
            own += 1
        elif character == ")":
            if own == 0:
                return end
            own -= 1
    return len(query)


def _word(text: str) -> _Token:
    if text in ("AND", "OR", "NOT"):
        return _Token(text, text)
    stem = text[:-1]
    if text.endswith("*") and "*" not in stem and any(map(str.isalnum, stem)):
        return _Token("prefix", stem)
    return _Token("word", text)


class _Parser:
    """Recursive descent, one method per rule of the grammar above."""

    def __init__(self, query: str) -> None:
        if len(query.strip().splitlines()) > 1:
            raise _Malformed
        self._tokens = list(islice(_tokens(query), ITEMS_MAX + 1))
        if len(self._tokens) > ITEMS_MAX:
            raise _Malformed
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        if self._is_sql():
            raise _Malformed
        kinds = {token.kind for token in self._tokens}
        if kinds <= {"(", "word", ")"} or (kinds <= {"word", "NOT"} and self._is_a_sentence()):
            raise _Malformed
        if kinds <= {"word", "phrase"} and self._is_a_sentence():
            return self._asking()
        root = self._query()
        if self._at < len(self._tokens):
            raise _Malformed
        return root

    def _is_sql(self) -> bool:
        negated = {
            after.text.rstrip(",;") for each, after in pairwise(self._tokens) if each.kind == "NOT"
        }
        words = {token.text for token in self._tokens if token.kind == "word"}
        return not (words.isdisjoint(_OF_SQL) and negated.isdisjoint(_NEGATED_IN_SQL))

    def _is_a_sentence(self) -> bool:
        return any(
            token.text.lower() in STOP_WORDS for token in self._tokens if token.kind == "word"
        )

    def _asking(self) -> Node:
        """All the phrases; the words besides as what may be there, too."""
        phrases = [Phrase(token.text) for token in self._tokens if token.kind == "phrase"]
        words = " ".join(token.text for token in self._tokens if token.kind == "word")
        return And((*phrases, Or((phrases[0], Words(words)))))

    def _peek(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else "end"

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _query(self) -> Node:
        parts = [self._both()]
        while self._peek() == "OR":
            self._take()
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Node:
        parts = [self._side()]
        while self._peek() == "AND":
            self._take()
            parts.append(self._side())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _side(self) -> Node:
        parts = [self._words_or_item()]
        while self._peek() not in (")", "AND", "OR", "end"):
            parts.append(self._words_or_item())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _words_or_item(self) -> Node:
        words = []
        while self._peek() == "word":
            words.append(self._take().text)
        return Words(" ".join(words)) if words else self._item()

    def _item(self) -> Node:
        negations = 0
        while self._peek() == "NOT":
            self._take()
            negations += 1
        inner = self._operand()
        return Not(inner) if negations % 2 else inner

    def _operand(self) -> Node:
        match self._peek():
            case "(":
                return self._group()
            case "phrase":
                return Phrase(self._take().text)
            case "prefix":
                return Prefix(self._take().text)
            case "word":
                return Words(self._take().text)
            case _:
                raise _Malformed

    def _group(self) -> Node:
        self._take()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _Malformed
        inner = self._query()
        if self._peek() != ")":
            raise _Malformed
        self._take()
        self._depth -= 1
        return inner
