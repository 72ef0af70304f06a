"""The plot of the benchmarks: what it says, and where its points are."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, fromstring

import pytest

from bench.plot import Point, svg

SVG = "{http://www.w3.org/2000/svg}"
LINES = {
    "search <fast>": [Point(1_000, 1, 2), Point(10_000, 1, 4), Point(100_000, 10, 40)],
    "write": [Point(1_000, 0.5, 5)],
}


def drawn() -> Element:
    return fromstring(svg("Latency & size", LINES))


def ways(name: str) -> list[list[tuple[float, float]]]:
    """The places of a line's points in each panel, the median's first."""
    found = []
    for group in drawn().iter(f"{SVG}g"):
        titles = [title.text or "" for title in group.iter(f"{SVG}title")]
        if titles and titles[0].startswith(name):
            places = re.findall(r"[ML]([\d.]+) ([\d.]+)", next(iter(group)).get("d", ""))
            found.append([(float(x), float(y)) for x, y in places])
    return found


def test_a_plot_says_what_it_shows_to_who_does_not_see_it() -> None:
    picture = drawn()
    named = {element.get("id"): element.text or "" for element in picture if element.get("id")}
    assert picture.get("role") == "img"
    assert set((picture.get("aria-labelledby") or "").split()) == set(named)
    assert named["title"] == "Latency & size"
    for name in LINES:
        assert name in named["description"]
    assert "at 100,000 observations p50 10 ms, p99 40 ms" in named["description"]


def test_every_line_is_in_both_panels_and_in_the_legend() -> None:
    texts = [text.text for text in drawn().iter(f"{SVG}text")]
    for name, points in LINES.items():
        assert [len(way) for way in ways(name)] == [len(points)] * 2
        assert texts.count(name) == 1


def test_ten_times_as_much_is_as_far_wherever_it_begins() -> None:
    medians, largest = ways("search <fast>")
    (x0, y0), (x1, y1), (x2, y2) = medians
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 == y1
    assert y1 - y2 == pytest.approx(largest[1][1] - largest[2][1], abs=0.2)  # 1 to 10, 4 to 40


def test_lines_differ_in_more_than_colour() -> None:
    style = next(drawn().iter(f"{SVG}style")).text or ""
    assert ".l0 .way{stroke-dasharray:none}" in style and ".l1 .way{stroke-dasharray:7 3}" in style
    assert "prefers-color-scheme:dark" in style


def test_a_plot_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="measure a size first"):
        svg("Nothing", {})
