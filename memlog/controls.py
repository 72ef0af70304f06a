"""Control characters: which of them no text may hold, and how that is said.

A terminal obeys them, so whoever shows a stored text would do what the text says.
"""

from __future__ import annotations

import re

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""C0, DEL and C1 but tab, line feed and carriage return, which belong to texts of several lines."""

_NAMES = {0: "NUL", 7: "bell", 8: "backspace", 12: "form feed", 27: "escape", 127: "delete"}


def control_character(text: str, position: int, what: str = "") -> tuple[str, str]:
    """The problem with the one at `position`, counted in characters from 1, and how to mend it."""
    code = ord(text[position - 1])
    name = f"U+{code:04X}" + (f" ({_NAMES[code]})" if code in _NAMES else "")
    problem = f"{what}contains the control character {name} at character {position}"
    return problem, "Remove it; of these only tab, line feed and carriage return are taken."
