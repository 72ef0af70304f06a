"""`python -m bench.recalling PATH`: how much of what answers a question a recall of so many tokens holds.

PATH is a file of LoCoMo; how its conversations are stored is `locomo`'s. A question counts under `all` where
every turn that is its evidence stands whole in the text, under `any` where one does. Beside it stands
what the answer of `search_nodes`, cut to the same length, holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table

from bench.console import open_console
from bench.locomo import Conversation, conversations, empty_service, store
from server.answering.packing import BYTES_PER_TOKEN
from server.performing import perform
from server.registry import Call, tools
from server.service import Service
from server.session import Session

BUDGETS_TOKENS = (200, 1_500, 8_000)


class Share(msgspec.Struct):
    """How many of the questions had all of their evidence, or any of it, in the texts."""

    questions: int = 0
    whole: int = 0
    partly: int = 0

    def count(self, found: Sequence[bool]) -> None:
        self.questions += 1
        self.whole += all(found)
        self.partly += any(found)


Shares = dict[tuple[str, int], Share]


def measured(
    service: Service, conversation: Conversation, budgets: Sequence[int], shares: Shares
) -> None:
    """Stores one conversation and adds the outcome of its questions to `shares`."""
    store(service, conversation)
    client = _Client(service, conversation.name)
    for question in conversation.questions:
        texts = [conversation.turns[each].text for each in question.evidence]
        searched = client.answer("search_nodes", {"query": question.text})
        for budget in budgets:
            recalled = client.answer("recall", {"query": question.text, "budgetTokens": budget})
            lines = {line.partition(". ")[2] for line in json.loads(recalled)["text"].split("\n")}
            cut = searched.encode()[: budget * BYTES_PER_TOKEN].decode(errors="ignore")
            shares.setdefault(("recall", budget), Share()).count([text in lines for text in texts])
            shares.setdefault(("search_nodes, cut", budget), Share()).count(
                [_quoted(text) in cut for text in texts]
            )


class _Client:
    """Calls tools as `tools/call` does; an answer is the text that a client gets."""

    def __init__(self, service: Service, project: str) -> None:
        self._session = Session(service, project)
        self._tools = tools(("graph", "history"), read_only=True)

    def answer(self, name: str, arguments: Mapping[str, Any]) -> str:
        result = perform(self._tools[name], Call(self._session), arguments).as_result()
        text: str = result.content[0].text  # type: ignore[union-attr]
        if result.is_error:
            raise ValueError(text)
        return text


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def table(shares: Shares) -> Table:
    shown = Table("answer", "tokens", "questions", "all evidence", "any evidence")
    for (name, budget), share in sorted(shares.items(), key=lambda each: (each[0][1], each[0][0])):
        percent = [
            f"{100 * count / share.questions:.1f} %" for count in (share.whole, share.partly)
        ]
        shown.add_row(name, f"{budget:,}", f"{share.questions:,}", *percent)
    return shown


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--words-only", is_flag=True, help="Without the model.")
def main(path: Path, words_only: bool) -> None:
    """Measure how much of what answers a question a recall holds, over the LoCoMo file at PATH."""
    shares: Shares = {}
    console = open_console()
    with empty_service(model=not words_only) as service:
        for conversation in conversations(path):
            console.print(
                f"{conversation.name}: {len(conversation.turns):,} turns, "
                f"{len(conversation.questions):,} questions"
            )
            measured(service, conversation, BUDGETS_TOKENS, shares)
    console.print(table(shares))


if __name__ == "__main__":
    main()
