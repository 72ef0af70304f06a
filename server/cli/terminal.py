"""A console that shows control characters instead of obeying them, whatever is printed on it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from memlog.controls import safe


class Terminal(Console):
    """What rich itself adds, colours and the like, goes through; every text is made safe."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(safe(segment.text), segment.style)
