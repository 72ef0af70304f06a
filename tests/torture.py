"""Real servers on one data directory, killed with SIGKILL at random moments under mixed load, and counted.

Every command carries an id of the client's. After each kill the log is read from end to end: an
acknowledged command must be in it whole, any other whole or not at all. Those that were not answered are
sent again, to another process, and must then be in the log once.

`python -m tests.torture --rounds 1000`, or `scripts/torture`.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from memlog.projects.store import Store
from server.performing import COMMAND_ID_META
from tests.served import Message, Pipe, run_memlog, start

PROCESSES = 3
ROUNDS_PER_FOLDER = 100
"""Then another data directory: the log is read from end to end in many a round, and grows with each."""

REQUESTS_MIN, REQUESTS_MAX = 10, 60
KILL_DELAY_SECONDS_MAX = 0.02

AS_THE_LOG_SAYS = {"equal", "switched off"}
"""What `memlog replay --check` says of each index."""


class Sent(NamedTuple):
    """A write: the call, and how many entries of the log it is."""

    tool: str
    arguments: dict[str, Any]
    entries: int


@dataclass
class Counts:
    """What the table shows. Restarts are from the start of a process to its first answer, in ms."""

    rounds: int = 0
    kills: int = 0
    sent: int = 0
    acknowledged: int = 0
    lost: int = 0
    half_written: int = 0
    twice: int = 0
    refused: int = 0
    sent_again: int = 0
    entries: int = 0
    restarts_ms: list[float] = field(default_factory=list)

    def __iadd__(self, other: Counts) -> Counts:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    def report(self) -> dict[str, Any]:
        restarts = sorted(self.restarts_ms) or [0.0]
        return {
            **{name: value for name, value in vars(self).items() if name != "restarts_ms"},
            "restart_ms_median": round(statistics.median(restarts)),
            "restart_ms_max": round(restarts[-1]),
        }


class Torture:
    """Rounds of load and kills over one data directory."""

    def __init__(self, data_dir: Path, seed: str, embedder: str = "none") -> None:
        self.counts = Counts()
        self._data_dir = data_dir
        self._embedder = embedder
        self._dice = random.Random(seed)
        self._writes: dict[str, Sent] = {}
        self._acknowledged: set[str] = set()
        self._unanswered: list[str] = []
        self._entities: list[str] = []
        self._servers: list[Pipe] = []

    def run(self, rounds: int, progress: Any = None) -> None:
        self._servers = [self._started() for _ in range(PROCESSES)]
        try:
            for _ in range(rounds):
                self._round()
                if progress is not None:
                    progress()
        finally:
            for server in self._servers:
                server.release()
        self._count_log()

    def _started(self) -> Pipe:
        begun = time.perf_counter()
        variables = {"MEMLOG_EMBEDDER": self._embedder}
        server = start(self._data_dir, variables=variables)
        names = self._entities[-1:] or ["nobody"]
        assert names == ["nobody"] or not server("open_nodes", names=names)["notFound"]
        self.counts.restarts_ms.append((time.perf_counter() - begun) * 1000)
        return server

    # -- one round

    def _round(self) -> None:
        pending = [self._load(server) for server in self._servers]
        victims = self._dice.sample(range(PROCESSES), self._dice.choice((1, 1, PROCESSES)))
        first = victims[0]
        for _ in range(self._dice.randrange(len(pending[first]))):
            self._take(pending[first], self._servers[first].read())
        time.sleep(
            self._dice.random() * KILL_DELAY_SECONDS_MAX
        )  # the moment is random, nothing waits
        for victim in victims:
            self._servers[victim].popen.kill()
        for number, server in enumerate(self._servers):
            while pending[number]:
                answer = server.read()
                if answer is None:
                    break
                self._take(pending[number], answer)
            assert number in victims or not pending[number], "a survivor left a request unanswered"
            self._unanswered += [each for each in pending[number].values() if each is not None]
        self.counts.rounds += 1
        self.counts.kills += len(victims)
        if len(victims) == PROCESSES:
            self._count_log()  # while nobody has it open: a file is read as the next start finds it
        for victim in victims:
            self._servers[victim].release()
            self._servers[victim] = self._started()
        self._send_again()

    def _load(self, server: Pipe) -> dict[int, str | None]:
        """Sends a burst; for each request the id of its command, None for one that reads."""
        pending: dict[int, str | None] = {}
        for _ in range(self._dice.randint(REQUESTS_MIN, REQUESTS_MAX)):
            if self._dice.random() < 0.25:
                tool, arguments = self._read()
                pending[server.send_call(tool, **arguments)] = None
            else:
                command_id = f"c{len(self._writes)}"
                self._writes[command_id] = self._write(command_id)
                pending[self._send(server, command_id)] = command_id
                self.counts.sent += 1
        return pending

    def _send(self, server: Pipe, command_id: str) -> int:
        sent = self._writes[command_id]
        return server.send(
            "tools/call",
            name=sent.tool,
            arguments=sent.arguments,
            _meta={COMMAND_ID_META: command_id},
        )

    def _write(self, unique: str) -> Sent:
        known = self._dice.choice(self._entities) if self._entities else None
        kind = self._dice.randrange(4)
        if known is None or kind == 0:
            texts = [f"fact {number} of {unique}" for number in range(3)]
            entity = {"name": f"n-{unique}", "entityType": "thing", "observations": texts}
            return Sent("create_entities", {"entities": [entity]}, 4)
        if kind == 1:
            texts = [f"more of {unique}", f"and more of {unique}"]
            added = [{"entityName": known, "contents": texts}]
            return Sent("add_observations", {"observations": added}, 2)
        if kind == 2:
            return Sent("store_memory", {"content": f"what {unique} said"}, 1)
        edge = {"from": known, "to": self._dice.choice(self._entities), "relationType": unique}
        return Sent("create_relations", {"relations": [edge]}, 1)

    def _read(self) -> tuple[str, dict[str, Any]]:
        if self._dice.random() < 0.3:
            return "read_graph", {"limit": 20}
        return "search_nodes", {"query": f"fact c{self._dice.randrange(999)}", "mode": "text"}

    def _take(self, pending: dict[int, str | None], answer: Message | None) -> None:
        assert answer is not None, "the server ended before it was killed"
        command_id = pending.pop(answer["id"])
        if "result" not in answer or answer["result"].get("isError"):
            self.counts.refused += 1
            raise AssertionError(f"refused: {answer}")
        if command_id is not None:
            self._acknowledge(command_id)

    def _acknowledge(self, command_id: str) -> None:
        self._acknowledged.add(command_id)
        self.counts.acknowledged += 1
        if self._writes[command_id].tool == "create_entities":
            self._entities.append(f"n-{command_id}")

    def _send_again(self) -> None:
        """What was not answered is asked again, of any process."""
        server = self._dice.choice(self._servers)
        asked = {self._send(server, command_id): command_id for command_id in self._unanswered}
        pending: dict[int, str | None] = {**asked}
        while pending:
            self._take(pending, server.read())
            self.counts.sent_again += 1
        self._unanswered.clear()

    # -- counting

    def _count_log(self) -> None:
        """Reads the log as it is on disk, and counts what is not as it was acknowledged."""
        store = Store(self._data_dir)
        try:
            project = store.project("default")
            with project.snapshot() as (log, _):
                written = Counter(entry.command_id for entry in log.read())
            assert list(project.verify()) == list(range(1, project.head() + 1))
            assert project.is_as_rebuilt()
            self.counts.entries = project.head()
        finally:
            store.close()
        self.counts.lost = self.counts.half_written = self.counts.twice = 0
        for command_id, sent in self._writes.items():
            found = written[command_id]
            self.counts.lost += command_id in self._acknowledged and found == 0
            self.counts.half_written += 0 < found < sent.entries
            self.counts.twice += found > sent.entries


def torture(rounds: int, seed: int, embedder: str = "none", progress: Any = None) -> dict[str, Any]:
    """The counts after so many rounds, and what the indexes are to what the log says. Who interrupts it has those
    of the data directories that were done."""
    counts, indexes = Counts(), defaultdict[str, set[str]](set)
    with suppress(KeyboardInterrupt):
        for start in range(0, rounds, ROUNDS_PER_FOLDER):
            few = min(ROUNDS_PER_FOLDER, rounds - start)
            counted, parts = _in_a_folder(few, f"{seed}-{start}", embedder, progress)
            counts += counted
            for name, how in parts.items():
                indexes[name].add(how)
    return {
        **counts.report(),
        "indexes": {name: ", ".join(found) for name, found in indexes.items()},
    }


def _in_a_folder(
    rounds: int, seed: str, embedder: str, progress: Any
) -> tuple[Counts, dict[str, str]]:
    with TemporaryDirectory(prefix="memlog-torture-") as folder:
        tortured = Torture(Path(folder), seed, embedder)
        tortured.run(rounds, progress)
        checked = run_memlog(
            "replay", "--check", "--json", data_dir=Path(folder), MEMLOG_EMBEDDER=embedder
        )
        return tortured.counts, json.loads(checked.stdout)["default"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table; 1 where something acknowledged was lost, anything half written, or an index is another than the
    log says."""
    import argparse

    from server.cli.printing import progress_bar

    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--embedder", default="none", help="minilm indexes meaning too")
    parser.add_argument("--json", action="store_true", help="print JSON for other programs")
    asked = parser.parse_args(arguments)
    with progress_bar(hidden=asked.json) as progress:
        task = progress.add_task("rounds", total=asked.rounds)
        report = torture(asked.rounds, asked.seed, asked.embedder, lambda: progress.advance(task))
    if asked.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name.replace('_', ' '):<20} {value}")
    broken = report["lost"] or report["half_written"] or report["twice"]
    return int(bool(broken) or not set(report["indexes"].values()) <= AS_THE_LOG_SAYS)


if __name__ == "__main__":
    import sys

    sys.exit(main())
