"""`python -m bench.quality PATH`: how much of what answers a question a search finds, and how high up.

PATH is a file of LoCoMo; how its conversations are stored is `locomo`'s. Every question goes through
`projections.search.searcher`, in each mode, and finds observations. Told are, averaged over the questions,

    recall@k    the share of the turns that are the evidence among the first k that come back
    hit@10      whether any of them is among the first ten
    MRR         1 / the place of the first of them, 0 where none comes back

With `--told-in facts` those that were noted down of a conversation take the place of its turns, with `--told-in
sessions` one text for each session; with `--words 2` two of its words take the place of each question. Also told is
the same by session, where a session has the place of the best of its turns. Two places for two turns that were said
word for word alike are one, for they are one observation. The latency is that of the whole search with the question's
embedding, each question asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from time import perf_counter_ns
from typing import get_args

import click
import msgspec
from rich.table import Table

from bench.ablation import VARIANTS
from bench.console import open_console
from bench.locomo import (
    CATEGORIES,
    Conversation,
    Question,
    Told,
    conversations,
    empty_service,
    store,
)
from bench.rows import percentile_ns
from bench.shortened import shortened
from memlog.settings import Mode
from projections.documents import Kind
from server.service import Service

DEPTHS = (1, 5, 10, 25, 50)
HIT_DEPTH = 10
FIGURES = (*(f"R@{depth}" for depth in DEPTHS), f"hit@{HIT_DEPTH}", "MRR")
OBSERVATIONS: frozenset[Kind] = frozenset({"observation"})
WARM_UP = "what do we know about this?"


class Answer(msgspec.Struct, frozen=True):
    """The places, from 1, of the evidence of one question that came back; `wanted` is how many there are."""

    conversation: str
    category: int
    mode: Mode
    wanted: int
    places: tuple[int, ...]
    sessions_wanted: int
    session_places: tuple[int, ...]
    elapsed_ns: int


class Stored(msgspec.Struct, frozen=True):
    """A conversation as a project: the id of the observation of each turn, and the session of each id."""

    conversation: Conversation
    refs: dict[str, str]
    session_of: dict[str, str]


def stored(service: Service, conversation: Conversation) -> Stored:
    refs = store(service, conversation)
    sessions = {refs[turn]: said.session for turn, said in conversation.turns.items()}
    return Stored(conversation, refs, sessions)


def asked(service: Service, about: Stored, modes: Sequence[Mode]) -> Iterator[Answer]:
    """Asks every question of a conversation in each mode."""
    searcher = service.open(about.conversation.name).searcher
    for mode in modes:
        searcher.search(WARM_UP, mode=mode, kinds=OBSERVATIONS)
    for question in about.conversation.questions:
        for mode in modes:
            begun = perf_counter_ns()
            found = searcher.search(question.text, mode=mode, kinds=OBSERVATIONS)
            elapsed_ns = perf_counter_ns() - begun
            yield _answer(about, question, mode, [hit.ref for hit in found.hits], elapsed_ns)


def _answer(
    about: Stored, question: Question, mode: Mode, ranked: list[str], elapsed_ns: int
) -> Answer:
    wanted = {about.refs[turn] for turn in question.evidence}
    sessions = list(dict.fromkeys(about.session_of[ref] for ref in ranked))
    sessions_wanted = {about.session_of[ref] for ref in wanted}
    return Answer(
        about.conversation.name,
        question.category,
        mode,
        len(wanted),
        _places(ranked, wanted),
        len(sessions_wanted),
        _places(sessions, sessions_wanted),
        elapsed_ns,
    )


def _places(ranked: list[str], wanted: set[str]) -> tuple[int, ...]:
    return tuple(place for place, each in enumerate(ranked, 1) if each in wanted)


class Figures(msgspec.Struct, frozen=True):
    """Averages over questions, in percent but for the reciprocal rank."""

    questions: int
    recall: tuple[float, ...]
    hit: float
    reciprocal_rank: float

    @classmethod
    def of(cls, outcomes: Sequence[tuple[int, tuple[int, ...]]]) -> Figures:
        """Of questions by how many are wanted and the places of those that came back."""
        return cls(
            len(outcomes),
            tuple(
                100
                * fmean(
                    sum(place <= depth for place in places) / wanted for wanted, places in outcomes
                )
                for depth in DEPTHS
            ),
            100 * fmean(any(place <= HIT_DEPTH for place in places) for _, places in outcomes),
            fmean(1 / min(places) if places else 0.0 for _, places in outcomes),
        )

    def cells(self) -> list[str]:
        """As they are shown under `FIGURES`."""
        percents = [f"{share:.1f}" for share in (*self.recall, self.hit)]
        return [*percents, f"{self.reciprocal_rank:.3f}"]


def by_turn(answers: Sequence[Answer]) -> Figures:
    return Figures.of([(answer.wanted, answer.places) for answer in answers])


def by_session(answers: Sequence[Answer]) -> Figures:
    return Figures.of([(answer.sessions_wanted, answer.session_places) for answer in answers])


def tables(answers: Sequence[Answer]) -> Iterator[Table]:
    """By turn and by session, each mode for all questions and for those of each category."""
    for title, figures in (("by turn", by_turn), ("by session", by_session)):
        yield _table(title, answers, figures)
    latency = Table("mode", "p50 ms", "p99 ms", title="search, question embedded")
    for mode in get_args(Mode):
        taken = [answer.elapsed_ns for answer in answers if answer.mode == mode]
        if taken:
            p50, p99 = (percentile_ns(taken, share) / 1e6 for share in (0.50, 0.99))
            latency.add_row(mode, f"{p50:.2f}", f"{p99:.2f}")
    yield latency


def _table(
    title: str, answers: Sequence[Answer], figures: Callable[[Sequence[Answer]], Figures]
) -> Table:
    shown = Table("questions", "n", "mode", *FIGURES, title=title)
    groups = {"all": set(CATEGORIES)}
    groups |= {name: {category} for category, name in CATEGORIES.items()}
    for name, categories in groups.items():
        for mode in get_args(Mode):
            chosen = [each for each in answers if each.mode == mode and each.category in categories]
            if chosen:
                row = figures(chosen)
                shown.add_row(name, str(row.questions), mode, *row.cells())
        shown.add_section()
    return shown


def ablation_table(service: Service, known: Sequence[Stored]) -> Table:
    """By turn and over all questions, hybrid search as it is and without one part at a time."""
    shown = Table("hybrid search", *FIGURES, "session R@10", "p50 ms")
    for each in known:  # so that no variant has to embed what it is asked
        for question in each.conversation.questions:
            service.embeddings.get().query(question.text)
    for name, variant in VARIANTS.items():
        with variant():
            answers = [answer for each in known for answer in asked(service, each, ("hybrid",))]
        sessions = by_session(answers).recall[DEPTHS.index(HIT_DEPTH)]
        p50 = percentile_ns([answer.elapsed_ns for answer in answers], 0.50) / 1e6
        shown.add_row(name, *by_turn(answers).cells(), f"{sessions:.1f}", f"{p50:.1f}")
    return shown


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--words-only", is_flag=True, help="Without the model.")
@click.option(
    "--told-in",
    type=click.Choice(get_args(Told)),
    default="turns",
    help="What was said, the facts that were noted down of it, or a text for each session.",
)
@click.option("--ablation", is_flag=True, help="Hybrid search without one of its parts at a time.")
@click.option(
    "--words", type=click.IntRange(1), help="Of each question so many of its rarest words."
)
@click.option("--unsaid", is_flag=True, help="With --words: also words that are nowhere told.")
def main(
    path: Path, words_only: bool, told_in: Told, ablation: bool, words: int | None, unsaid: bool
) -> None:
    """Measure what a search finds of the evidence of questions, over the LoCoMo file at PATH."""
    console = open_console()
    with empty_service(model=not words_only) as service:
        known = []
        for whole in conversations(path, told_in):
            conversation = shortened(whole, words, unsaid=unsaid) if words else whole
            console.print(
                f"{conversation.name}: {len(conversation.turns):,} {told_in}, "
                f"{len(conversation.questions):,} questions"
            )
            known.append(stored(service, conversation))
        if ablation:
            console.print(ablation_table(service, known))
            return
        modes: tuple[Mode, ...] = ("text",) if words_only else get_args(Mode)
        answers = [answer for each in known for answer in asked(service, each, modes)]
        for table in tables(answers):
            console.print(table)


if __name__ == "__main__":
    main()
