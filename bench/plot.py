"""Latency against size as an SVG: the median and the 99th percentile side by side, both axes logarithmic.

A line is told by its colour, its dashes and the shape of its points, so that it needs no colours to be read;
colours and background follow the reader's light or dark theme. Each point says its figures when pointed at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

PANEL_WIDTH, PANEL_HEIGHT = 360, 300
LEFT, TOP, GAP = 60, 64, 70
LEGEND_ROW, LEGEND_COLUMNS = 20, 2
WIDTH = LEFT + 2 * PANEL_WIDTH + GAP + 30
POINT = 3.5

LIGHT = (
    "#0b5fa5", "#b34700", "#00735c", "#a3246b", "#5b3fa8", "#7a5c00", "#b01e1e", "#3a3a3a", "#00707a"
)  # fmt: skip
DARK = (
    "#6cb6ff", "#ffa657", "#4fd6b4", "#f58cc5", "#b9a2ff", "#e3c04f", "#ff8a80", "#d0d0d0", "#5fd3de"
)  # fmt: skip
DASHES = ("none", "7 3", "2 3", "9 3 2 3", "none", "7 3", "2 3", "9 3 2 3", "none")

SHARES = ("p50", "p99")


class Point(NamedTuple):
    size: int
    p50_ms: float
    p99_ms: float


class _Axis(NamedTuple):
    """From `start` at pixel `at` over `length` pixels to `stop`; a negative length goes up."""

    start: float
    stop: float
    at: float
    length: float

    def pixel(self, value: float) -> float:
        share = math.log(value / self.start) / math.log(self.stop / self.start)
        return round(self.at + share * self.length, 1)

    def decades(self) -> Iterator[float]:
        first, last = round(math.log10(self.start)), round(math.log10(self.stop))
        yield from (10.0**power for power in range(first, last + 1))


def svg(title: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """A picture of these lines, by name, each with its points in the order of their sizes.

    Raises ValueError where there is nothing to draw.
    """
    points = [point for line in lines.values() for point in line]
    if not points:
        raise ValueError("A plot needs at least one point; measure a size first")
    sizes = _decades(point.size for point in points)
    times = _decades(ms for point in points for ms in point[1:])
    height = TOP + PANEL_HEIGHT + 72 + LEGEND_ROW * -(-len(lines) // LEGEND_COLUMNS)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(_description(lines))}</desc>',
            f"<style>{_style()}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            f'<text class="heading" x="{LEFT}" y="26">{escape(title)}</text>',
            *_panel(0, sizes, times, lines),
            *_panel(1, sizes, times, lines),
            *_legend(lines),
            "</svg>\n",
        ]
    )


def _decades(values: Iterable[float]) -> tuple[float, float]:
    """The powers of ten around these values, at least one apart."""
    found = list(values)
    low = math.floor(math.log10(min(found)))
    return 10.0**low, 10.0 ** max(low + 1, math.ceil(math.log10(max(found))))


def _description(lines: Mapping[str, Sequence[Point]]) -> str:
    """What the picture shows, in words: both ends of each line."""
    told = []
    for name, line in lines.items():
        ends = dict.fromkeys((line[0], line[-1]))
        told.append(f"{name}: {'; '.join(_told(point) for point in ends)}.")
    return " ".join(told)


def _told(point: Point) -> str:
    return f"at {point.size:,} observations p50 {point.p50_ms:.3g} ms, p99 {point.p99_ms:.3g} ms"


def _style() -> str:
    """Without variables of CSS, which not every program that shows an SVG knows."""
    dashes = "".join(f".l{n} .way{{stroke-dasharray:{dash}}}" for n, dash in enumerate(DASHES))
    return (
        "text{font:12px system-ui,sans-serif}.heading{font-size:16px;font-weight:600}"
        ".end{text-anchor:end}.middle{text-anchor:middle}"
        f".way,.point{{stroke-width:2}}.way{{fill:none}}{dashes}"
        f"{_theme('#ffffff', '#1f2328', '#d0d7de', LIGHT)}"
        f"@media (prefers-color-scheme:dark){{{_theme('#0d1117', '#e6edf3', '#30363d', DARK)}}}"
    )


def _theme(page: str, ink: str, faint: str, colours: Sequence[str]) -> str:
    lines = "".join(f".l{n} path{{stroke:{colour}}}" for n, colour in enumerate(colours))
    return f".page,.point{{fill:{page}}}text{{fill:{ink}}}.grid{{stroke:{faint}}}{lines}"


def _panel(
    which: int,
    sizes: tuple[float, float],
    times: tuple[float, float],
    lines: Mapping[str, Sequence[Point]],
) -> Iterator[str]:
    left, bottom = LEFT + which * (PANEL_WIDTH + GAP), TOP + PANEL_HEIGHT
    across = _Axis(*sizes, left, PANEL_WIDTH)
    up = _Axis(*times, bottom, -PANEL_HEIGHT)
    yield f'<text x="{left}" y="{TOP - 14}">{SHARES[which]}, milliseconds</text>'
    for value in up.decades():
        y = up.pixel(value)
        yield f'<path class="grid" d="M{left} {y}h{PANEL_WIDTH}"/>'
        yield f'<text class="end" x="{left - 8}" y="{y + 4}">{value:g}</text>'
    for value in across.decades():
        x = across.pixel(value)
        yield f'<path class="grid" d="M{x} {TOP}v{PANEL_HEIGHT}"/>'
        yield f'<text class="middle" x="{x}" y="{bottom + 18}">{value:,.0f}</text>'
    middle = left + PANEL_WIDTH / 2
    yield f'<text class="middle" x="{middle:g}" y="{bottom + 38}">observations</text>'
    for number, (name, line) in enumerate(lines.items()):
        places = [
            (across.pixel(each.size), up.pixel(each[1 + which]), f"{name}, {_told(each)}")
            for each in line
        ]
        yield _line(number, places)


def _line(number: int, places: Sequence[tuple[float, float, str]]) -> str:
    way = "L".join(f"{x:g} {y:g}" for x, y, _ in places)
    points = "".join(
        f'<path class="point" d="{_shape(number, x, y)}"><title>{escape(said)}</title></path>'
        for x, y, said in places
    )
    return f'<g class="l{number % len(LIGHT)}"><path class="way" d="M{way}"/>{points}</g>'


def _shape(number: int, x: float, y: float) -> str:
    """A square, a diamond or a triangle about a place, in turn."""
    r = POINT
    shapes = (
        f"M{x - r:g} {y - r:g}h{2 * r}v{2 * r}h{-2 * r}z",
        f"M{x:g} {y - r - 1:g}l{r + 1} {r + 1}l{-r - 1} {r + 1}l{-r - 1} {-r - 1}z",
        f"M{x:g} {y - r - 1:g}l{r + 1} {2 * r + 1}h{-2 * r - 2}z",
    )
    return shapes[number % len(shapes)]


def _legend(names: Iterable[str]) -> Iterator[str]:
    width = (WIDTH - LEFT) / LEGEND_COLUMNS
    for number, name in enumerate(names):
        down, along = divmod(number, LEGEND_COLUMNS)
        x, y = LEFT + along * width, TOP + PANEL_HEIGHT + 64 + LEGEND_ROW * down
        yield (
            f'<g class="l{number % len(LIGHT)}"><path class="way" d="M{x:g} {y:g}h36"/>'
            f'<path class="point" d="{_shape(number, x + 18, y)}"/>'
            f'<text x="{x + 46:g}" y="{y + 4:g}">{escape(name)}</text></g>'
        )
