"""Tools that only the short way has: the SDK's server behind the same transport knows none.

`python direct_server.py JOURNAL DRAIN_S TEARDOWN_S`: what gets an answer from a tool came by the short way, what
was left to the SDK has the error -32601. What happens is appended to the file JOURNAL; data lie beside it.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from mcp.server.lowlevel import Server

from memlog.settings import Settings
from server.registry import Arguments, Call, Result, tool, tools
from server.service import Service
from server.session import Session
from server.starting.answers import Answers
from server.starting.prelude import Prelude
from server.stdio.direct import Direct
from server.stdio.transport import run_stdio

JOURNAL = Path(sys.argv[1])


def note(event: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(event + "\n")


class Text(Arguments, frozen=True):
    text: str


class Characters(Arguments, frozen=True):
    characters: int


class Gate(Arguments, frozen=True):
    gate: str


class Said(Result, frozen=True):
    text: str


@tool("test", "Echo")
def echo(call: Call, arguments: Text) -> Said:
    note("echo")
    return Said(text=arguments.text)


@tool("test", "Thread")
def thread(call: Call, arguments: Text) -> Said:
    return Said(text=threading.current_thread().name)


@tool("test", "Big")
def big(call: Call, arguments: Characters) -> Said:
    note("big")
    return Said(text="x" * arguments.characters)


@tool("test", "Slow")
def slow(call: Call, arguments: Gate) -> Said:
    """Opening a FIFO waits for its other end: the test's open proves that this runs."""
    text = Path(arguments.gate).read_text()
    note("slow finished")
    return Said(text=text)


@tool("test", "Slow write", writes=True)
def slow_write(call: Call, arguments: Gate) -> Said:
    text = Path(arguments.gate).read_text()
    note("slow write")
    return Said(text=text)


@tool("test", "Write", writes=True)
def write(call: Call, arguments: Text) -> Said:
    note(f"write {arguments.text}")
    return Said(text=arguments.text)


@tool("test", "Fail")
def fail(call: Call, arguments: Text) -> Said:
    note("fail")
    raise RuntimeError(f"the password is {arguments.text}")


@tool("test", "Half a pair")
def half_a_pair(call: Call, arguments: Text) -> Said:
    note("half_a_pair")
    return Said(text="\ud83d")


if __name__ == "__main__":
    service = Service(Settings(data_dir=JOURNAL.with_name("data"), embedder="none"))
    run_stdio(
        Server("direct", version="1"),
        Direct(
            Session(service, "default"),
            tools(["test"]),
            on_first_answer=lambda: note("first answer"),
        ),
        on_close=lambda: note("closed"),
        prelude=Prelude(Answers(JOURNAL.with_name("answers"))),
        drain_s=float(sys.argv[2]),
        teardown_s=float(sys.argv[3]),
    )
