"""Control characters: which of them no text may hold, how that is said, and how any text is shown.

A terminal obeys them, so whoever shows a stored text would do what the text says.
"""

from __future__ import annotations

import re

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""C0, DEL and C1 but tab, line feed and carriage return, which belong to texts of several lines."""

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What is not shown as it is: every control character but tab and line feed, the other two that end a line, and those
that turn the order of letters around, also of what stands behind the text. A log may hold any of them: older versions
imported the first, and the others belong to texts in Arabic or Hebrew."""

_NAMES = {0: "NUL", 7: "bell", 8: "backspace", 12: "form feed", 27: "escape", 127: "delete"}


def control_character(text: str, position: int, what: str = "") -> tuple[str, str]:
    """The problem with the one at `position`, counted in characters from 1, and how to mend it."""
    code = ord(text[position - 1])
    name = f"U+{code:04X}" + (f" ({_NAMES[code]})" if code in _NAMES else "")
    problem = f"{what}contains the control character {name} at character {position}"
    return problem, "Remove it; of these only tab, line feed and carriage return are taken."


def safe(text: str) -> str:
    """`text` with what a terminal would obey as JSON spells it, so that it shows all of it, in its order.

    A text in a table is made safe before: columns are measured, and a control character has no width.
    """
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
