"""Hybrid search without one of its parts, or with another number in its place, for `quality`.

A variant changes the numbers of `ranking`, `late`, `weighing`, `closely` and `leaves` in this process while it is
entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from projections.search import closely, late, ranking, weighing
from projections.text import leaves
from projections.vectors.rows import Rows

Changes = Mapping[tuple[ModuleType | type, str], Any]
"""The value of each name of a module or a class."""


@contextmanager
def _with(changes: Changes) -> Iterator[None]:
    before = {(where, name): getattr(where, name) for where, name in changes}
    try:
        for (where, name), value in changes.items():
            setattr(where, name, value)
        yield
    finally:
        for (where, name), value in before.items():
            setattr(where, name, value)


def _unknown(
    asked: object, weight: object, stored: list[bytes | None], beside: object, said: object
) -> Any:
    return np.full(len(stored), np.nan, np.float32)


def _as_embedded(own: object, asked: object, counted: object) -> None:
    """Leaves the question the vector that the model gave it."""


def _alike(asked: Any, weight: Any, stored: Any, beside: Any, said: Any) -> Any:
    return late.interaction(asked, np.ones_like(weight), stored, beside, said)


def _no_form(word: str) -> None:
    """Looks for no other words that begin as it does."""


def _nobody(rows: Rows, among: Any, at: int | None) -> Any:
    return np.empty(0, np.int64)


NOT_POINTED: Changes = {(weighing, "pointed"): _as_embedded}
NO_LATE: Changes = {(closely, "interaction"): _unknown}
NO_LENDING: Changes = {(ranking, "LENT_SHARE"): 0.0}
NO_COMPANIONS: Changes = {(Rows, "companions"): _nobody}
NO_NAMES: Changes = {(ranking, "NAMED_BONUS"): 0.0}
NO_ASKING: Changes = {(ranking, "ASKING_DEDUCTION"): 0.0}
NO_DATES: Changes = {(leaves, "DATES_MAX"): 0}
NO_FORMS: Changes = {(leaves, "_beginning"): _no_form}

_CHANGES: Mapping[str, Changes] = {
    "as it is": {},
    "the question's vector: all words count alike": NOT_POINTED,
    "without late interaction": NO_LATE,
    "late interaction: all words count alike": {(closely, "interaction"): _alike},
    "late interaction: in the text alone": {(late, "BESIDE_SHARE"): 0.0},
    "late interaction: far cosines count": {(late, "COSINE_FLOOR"): 0.0},
    "nothing lent by neighbours": NO_LENDING,
    "neighbours do not come in": NO_COMPANIONS,
    "no neighbours at all": {**NO_LENDING, **NO_COMPANIONS, (late, "BESIDE_SHARE"): 0.0},
    "names in the question count nothing": NO_NAMES,
    "questions are no worse": NO_ASKING,
    "dates in the question are words like others": NO_DATES,
    "other forms of words count nothing": NO_FORMS,
    "looking at 20": {(closely, "CLOSE_MAX"): 20},
    "looking at 75": {(closely, "CLOSE_MAX"): 75},
    "words and meaning alone": {
        **NOT_POINTED,
        **NO_LATE,
        **NO_LENDING,
        **NO_COMPANIONS,
        **NO_NAMES,
        **NO_ASKING,
        **NO_DATES,
        **NO_FORMS,
    },
}

VARIANTS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    name: partial(_with, changes) for name, changes in _CHANGES.items()
}
