"""How text is cut into the terms of the text index; the same for a document and for a query.

Every text is normalised first. From that come three kinds of terms: stemmed words, by which a text is
found; the words as they stand, for phrases and prefixes; and trigrams, for any part of the text.
Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer are written without spaces between words, so a run of them
counts as the overlapping pairs of its characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from tantivy import Filter, Index, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from memlog.blank import UNSEEN
from memlog.runs import runs
from memlog.scripts import UNSPACED

TRIGRAM = 3
TRIGRAMS_MAX = 8
"""Trigrams of a needle that are looked up; who reads the text does the rest."""

END = "\n\n"
"""Closes a text before it is cut into trigrams, so that each of its characters begins one, and a part
of one or two characters is found as the beginning of a trigram. No normalised text holds a newline.
"""

_STOP_WORDS = """
a about above after again against all am an and any are aren as at be because been before being
below between both but by can cannot could couldn d did didn do does doesn doing don down during
each few for from further had hadn has hasn have haven having he her here hers herself him himself
his how i if in into is isn it its itself just ll me more most must mustn my myself no nor not now
of off on once only or other our ours ourselves out over own re s same she should shouldn so some
such t than that the their theirs them themselves then there these they this those through to too
under until up ve very was wasn we were weren what when where which while who whom why will with
would wouldn you your yours yourself yourselves
"""

STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that say little about what is asked for; they are indexed, but dropped from a query. They are left out
of what is `repeated`: with other ones an index is another, and has another TEXT_VERSION."""

_ALIKE = str.maketrans(
    {**dict.fromkeys("\u02b9\u02bb\u02bc\u02bd\u2018\u2019\u201b", "'"), "\u0131": "i"}
)
"""Forms of the apostrophe, and the dotless i, whose capital is that of any other."""

_DOTTED_I = re.compile("i\u0307+")
"""What case folding makes of the capital of the dotted i, as in Turkish."""

_WITH_MARKS = (
    (0x0300, 0x109F),
    (0x1700, 0x1CFF),
    (0x1DC0, 0x20FF),
    (0xA800, 0xABFF),
    (0x11000, 0x114FF),
)
"""Blocks of Unicode in which there are characters that combine with the one before."""

_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")
_MARKS = [
    code
    for first, last in _WITH_MARKS
    for code in range(first, last + 1)
    if unicodedata.category(chr(code)) in ("Mn", "Mc")
]


def _is_letter(code: int) -> bool:
    return chr(code).isalpha()


def _class_of(codes: Iterable[int]) -> str:
    """What an expression has between brackets for these characters, ascending: as ranges it is compiled at once."""
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs(codes))


_ACCENTS = _class_of(code for code in _MARKS if unicodedata.combining(chr(code)))
"""What stands above, below or within a letter. Vowels of Indian scripts stand beside it."""

_ACCENT = re.compile(
    f"[{_ACCENTS}](?<!\u0438\u0306)(?<!\u0456\u0308)"  # these make letters of their own
)
_VOWELS = _class_of(code for code in _MARKS if not unicodedata.combining(chr(code)))
_WORD = re.compile(f"(?:[^\\W_]|[{_VOWELS}])+")
_GREEK, _CYRILLIC, _ARABIC = range(0x370, 0x400), range(0x400, 0x530), range(0x600, 0x700)
_ROOTED_RUN = re.compile(
    "|".join(f"[{_class_of(filter(_is_letter, block))}]+" for block in (_GREEK, _CYRILLIC, _ARABIC))
)
"""Each with the rules of one language: Russian's serve Ukrainian and Bulgarian less well, Arabic's do Persian no harm
(docs/search.md)."""

_NO_JOIN = "\u200c"
"""Of those nobody sees the one that keeps two letters apart: in Persian, an ending or a beginning from its word."""

_RUN = re.compile(f"[^\\W_]+(?:{_NO_JOIN}[^\\W_]+)*")
_BICAMERAL = (range(0x80, 0x600), range(0x1E00, 0x2000))
"""Where the letters stand that have two cases, beside those of ASCII: Latin, Greek, Cyrillic, Armenian."""


def _humps_of(capital: str, small: str) -> str:
    return f"(?<=[{small}])(?=[{capital}])|(?<=[{capital}])(?=[{capital}][{small}]{{2}})"


def _letters(category: str) -> str:
    codes = (code for block in _BICAMERAL for code in block)
    return _class_of(code for code in codes if unicodedata.category(chr(code)) == category)


_CAPITAL, _SMALL = f"A-Z{_letters('Lu')}", f"a-z{_letters('Ll')}"
_HUMP_ASCII = re.compile(_humps_of("A-Z", "a-z"))
_CASES = bytes(
    ord("A") if chr(code).isupper() else ord("a") if chr(code).islower() else ord(" ")
    for code in range(128)
).ljust(256)
_HUMP = re.compile(f"{_humps_of(_CAPITAL, _SMALL)}|{_NO_JOIN}")
_GROUPED = re.compile(r"(?<![0-9])[0-9]{1,3}(?:([.,'])[0-9]{3})(?:\1[0-9]{3})*(?![0-9])")
_FOREIGN_DIGIT = re.compile("[^\\D0-9]")
_STRETCH = "\u0640"
"""Draws an Arabic word out, and is no letter of it."""

_SPACE_OF_NO_WIDTH = "\u200b"
"""Of those nobody sees the one that stands between words."""

_BETWEEN_WORDS = bytes(code for code in range(128) if not chr(code).isalnum())
_SPACES_BETWEEN_WORDS = bytes.maketrans(_BETWEEN_WORDS, b" " * len(_BETWEEN_WORDS))
_QUESTION_MARKS = "?\uff1f\u061f"  # the full-width one and the Arabic one
_ENDS = f".!\u2026\u3002\uff01{_QUESTION_MARKS}"
_SENTENCE = re.compile(f"[^{_ENDS}]*[^{_ENDS}\\s][^{_ENDS}]*([{_ENDS}]*)")


def normalise(text: str) -> str:
    """`text` without the differences that do not count: case, width and form of letters, forms of the apostrophe, white
    space, what is unseen.

    But for apostrophes, white space, and dots of an i, this is NFKC_Casefold of the Unicode Standard (section 3.13).
    """
    if text.isascii():
        return " ".join(text.lower().split())
    whole = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is no character
    spread = unicodedata.normalize("NFKC", whole).replace(_SPACE_OF_NO_WIDTH, " ")
    seen = UNSEEN.sub("", spread.casefold()).translate(_ALIKE)
    folded = unicodedata.normalize("NFKC", _DOTTED_I.sub("i", seen))
    return " ".join(folded.split())


def spaced(normalised: str) -> str:
    """A normalised text as the word analysers read it: without accents, with the digits of ASCII alone, runs without
    spaces as overlapping pairs."""
    if normalised.isascii():
        return normalised
    plain = _ACCENT.sub("", unicodedata.normalize("NFD", normalised).replace(_STRETCH, ""))
    plain = _FOREIGN_DIGIT.sub(_ascii_digit, plain)
    return _UNSPACED_RUN.sub(_pairs, unicodedata.normalize("NFC", plain))


def _ascii_digit(digit: re.Match[str]) -> str:
    return str(unicodedata.decimal(digit.group()))


def _pairs(run: re.Match[str]) -> str:
    text = run.group()
    return f" {' '.join(text[at : at + 2] for at in range(max(len(text) - 1, 1)))} "


def is_unpaired(word: str) -> bool:
    """Whether a word is one character of a script without spaces: beside others, a text has it in pairs only."""
    return len(word) == 1 and _UNSPACED_RUN.fullmatch(word) is not None


def symbols(chunk: str) -> list[str]:
    """What a chunk without white space has instead of words: emoji and the like, without the marks around them."""
    if chunk.isascii() or _WORD.search(chunk):
        return []
    apart = "".join(each if _is_of_a_symbol(each) else " " for each in chunk).split()
    return [run for run in apart if any(unicodedata.category(each) == "So" for each in run)]


def _is_of_a_symbol(character: str) -> bool:
    """A tone of skin is a modifier, the key around a digit an enclosing mark."""
    return not character.isascii() and unicodedata.category(character) in ("So", "Sk", "Me")


def words(text: str) -> list[str]:
    """The words of a spaced text, as often as they occur."""
    if text.isascii():  # as bytes, which are translated several times as fast as characters
        return text.encode().translate(_SPACES_BETWEEN_WORDS).decode().split()
    return _WORD.findall(text)


def standing(normalised: str) -> list[str]:
    """The words of a normalised text with their accents, apart from runs without spaces that they stand in."""
    if normalised.isascii():
        return words(normalised)
    return words(_UNSPACED_RUN.sub(_apart, normalised))


def _apart(run: re.Match[str]) -> str:
    return f" {run.group()} "


def humps(text: str) -> list[list[str]]:
    """The parts of each word like `applyDiscount`, or of Persian, that has several; of a text as it was written."""
    hump = _HUMP_ASCII
    if text.isascii():
        has_any = _has_humps(text)
    else:
        hump, text = _HUMP, unicodedata.normalize("NFC", text)
        has_any = hump.search(text) is not None
    if not has_any:
        return []
    found = filter(hump.search, _RUN.findall(text))
    return [spaced(normalise(hump.sub(" ", word))).split() for word in found]


def _has_humps(ascii_text: str) -> bool:
    """As `_HUMP_ASCII` finds them, by a look at the cases alone: every text is asked, and an expression that looks
    around takes twice as long."""
    cases = ascii_text.encode().translate(_CASES)
    return b"aA" in cases or b"AAaa" in cases


def ungrouped(chunk: str) -> list[str]:
    """The numbers in a chunk that are written by thousands, as `48,500` is, in one."""
    return [re.sub("[^0-9]", "", each.group()) for each in _GROUPED.finditer(chunk)]


def grouped(number: str) -> list[str]:
    """The thousands of a number of more than three digits, as `48,500` has them for its words."""
    first = len(number) % 3 or 3
    return [number[:first], *(number[at : at + 3] for at in range(first, len(number), 3))]


def repeated(found: list[str]) -> str:
    """Those of the words, stop words aside, that occur more than once; separated by spaces."""
    if len(set(found)) == len(found):
        return ""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for word in found:
        if word in seen:
            twice[word] = None
        seen.add(word)
    return " ".join(word for word in twice if word not in STOP_WORDS)


@lru_cache(maxsize=4_096)
def name_words(name: str) -> frozenset[str]:
    """The words of a name."""
    return frozenset(words(spaced(normalise(name))))


def asking(text: str) -> float:
    """How much of a text are questions: those of its sentences that end in a question mark, 0..1."""
    ends = _SENTENCE.findall(text)
    asked = sum(any(mark in end for mark in _QUESTION_MARKS) for end in ends)
    return asked / max(len(ends), 1)


def trigrams(normalised: str) -> list[str]:
    """The distinct trigrams of a text of three characters or more, in order."""
    last = len(normalised) - TRIGRAM + 1
    return list(dict.fromkeys(normalised[at : at + TRIGRAM] for at in range(last)))


def some_trigrams(normalised: str) -> list[str]:
    """`TRIGRAMS_MAX` of them at most, evenly spread."""
    grams = trigrams(normalised)
    step = max(len(grams) / TRIGRAMS_MAX, 1)
    return [grams[int(at * step)] for at in range(min(len(grams), TRIGRAMS_MAX))]


def rooted(spaced: str) -> str:
    """A spaced text with the words of Cyrillic, Greek and Arabic letters by their stems: that of the others, all taken
    for English, is left to the analyser of the index."""
    return spaced if spaced.isascii() else _ROOTED_RUN.sub(_root, spaced)


def stems(spaced: str) -> list[str]:
    """The stems of the words of a spaced text, one for each that `exact` makes of it."""
    return _stemming.analyze(rooted(spaced))


def _root(run: re.Match[str]) -> str:
    return _root_of(run.group())


@lru_cache(maxsize=16_384)
def _root_of(word: str) -> str:
    return "".join(_rooting.analyze(word)) or word


def _words_as_they_stand() -> TextAnalyzerBuilder:
    builder = TextAnalyzerBuilder(Tokenizer.simple())
    return builder.filter(Filter.lowercase()).filter(Filter.ascii_fold())


def _stemming_in(*languages: str) -> TextAnalyzer:
    builder = _words_as_they_stand()
    for language in languages:
        builder = builder.filter(Filter.stemmer(language))
    return builder.build()


exact: TextAnalyzer = _words_as_they_stand().build()
_stemming = _stemming_in("english")
_rooting = _stemming_in("russian", "greek", "arabic")

STEMMED, EXACT, TRIGRAMS = "memlog_stemmed", "memlog_exact", "memlog_trigrams"


def register(index: Index) -> None:
    """Makes the analysers known to `index` under the names that the schema speaks of."""
    index.register_tokenizer(STEMMED, _stemming)
    index.register_tokenizer(EXACT, exact)
    index.register_tokenizer(
        TRIGRAMS, TextAnalyzerBuilder(Tokenizer.ngram(TRIGRAM, TRIGRAM, False)).build()
    )
