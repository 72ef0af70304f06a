"""Questions cut down to a few of their words, as agents ask: the rarest among what is stored, in their order."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from bench.locomo import Conversation, Question
from projections.text import analysis

_WORD = re.compile(r"\w[\w'’-]*\w|\w")
_POSSESSIVE = re.compile(r"['’]s$")
_ASKING = """
    what when where who whom which why how many much long often kind type do does did is are was were has have had would
    could might should can will
"""
ASKING = frozenset(_ASKING.split())
"""What makes a sentence a question, beside stop words: nobody asks for these alone."""


def shortened(conversation: Conversation, words: int, *, unsaid: bool = False) -> Conversation:
    """The conversation with each question as its so many rarest words; of those that nobody said only if `unsaid`.
    Questions that have fewer are left out."""
    said = Counter(stem for turn in conversation.turns.values() for stem in {*_stems(turn.text)})
    questions = []
    for question in conversation.questions:
        rarities = [
            (said_by, word) for word, said_by in _words(question, said) if said_by or unsaid
        ]
        if len(rarities) >= words:
            places = sorted(range(len(rarities)), key=lambda at: rarities[at][0])[:words]
            text = " ".join(rarities[at][1] for at in sorted(places))
            questions.append(msgspec.structs.replace(question, text=text))
    return msgspec.structs.replace(conversation, questions=questions)


def _words(question: Question, said: Counter[str]) -> list[tuple[str, int]]:
    """The words of a question that tell what it is about, and how many turns have each."""
    found = []
    for written in _WORD.findall(question.text):
        word = _POSSESSIVE.sub("", written)
        plain = analysis.normalise(word)
        stems = _stems(word)
        if stems and plain not in analysis.STOP_WORDS and plain not in ASKING:
            found.append((word, max(said[stem] for stem in stems)))
    return found


def _stems(text: str) -> list[str]:
    return analysis.stems(analysis.spaced(analysis.normalise(text)))
