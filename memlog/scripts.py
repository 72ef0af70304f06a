"""Scripts that put no space between words, or put endings right behind them: what is a word there no rule of letters
tells."""

from __future__ import annotations

import re

UNSPACED = (
    r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
    r"\u0e01-\u0e3e\u0e40-\u0e4e\u0e81-\u0ec6\u1000-\u103f\u1780-\u17d3"
)
"""Their letters, as they stand within the brackets of a regular expression: Chinese characters, kana and Hangul, then
Thai, Lao, Burmese and Khmer."""

UNSPACED_RANGES = [
    (int(first, 16), int(last, 16))
    for first, last in re.findall(r"\\[uU](\w+)-\\[uU](\w+)", UNSPACED)
]
"""The same as numbers, the last ones included."""
