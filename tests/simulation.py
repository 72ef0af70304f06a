"""A seeded simulation of the whole: clients, processes that die, disks that fail, a clock that goes backwards.

One seed decides everything: which process does what, when, and at which boundary it is hurt. The
processes are real and forked, the files are real, the code is the product's; only one step runs at a
time. The simulation keeps what was acknowledged to the clients, and after every few steps compares:

- positions are dense, the chain is whole and what it was before, times never go back;
- each acknowledged command is in the log exactly once, but for what was erased of it, a refused one not at all, a
  retry is recognised, and no longer answered once something was erased;
- state and every projection equal what a rebuild from the log gives;
- two processes see the same, and a backup reaches as far as the log;
- what is refused is refused in words; and without a cause, nothing is.

`python -m tests.simulation --seeds 1000`, or `scripts/simulate`, runs as many as one likes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memlog.commands import AnyCommand
from projections.follow import PROJECTIONS
from tests.simulated_commands import NAMES, QUERIES, Draw
from tests.simulated_faults import Fault, Kind
from tests.simulated_process import Ended, Process, Step

PROCESSES = 2
STEPS = 60
STEPS_PER_CHECK = 12
SHOWN_CHARACTERS_MAX = 300
CROSSINGS_MAX = 60
"""A fault is planned for one of the first so many boundaries of a step; few steps have more."""

CHANGES = {"create": "active", "archive": "archived", "restore": "active", "delete": "gone"}


class Broken(AssertionError):
    """A promise was broken; the message says which, by which seed, and what had happened."""


@dataclass
class Sent:
    """A command that a client sent, perhaps several times."""

    command: AnyCommand
    thread: str | None
    acknowledged: list[list[Any]] | None = None
    refused: bool = False
    purged: bool | None = False
    """Whether something was erased since it was last sent; None: a purge was not answered."""


@dataclass
class Known:
    """What the clients know of a project. More than one status: a change of it was not answered."""

    statuses: set[str] = field(default_factory=lambda: {"gone"})
    sent: dict[str, Sent] = field(default_factory=dict)
    chains: list[str] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)
    erased: set[int] = field(default_factory=set)
    erasing: bool = False
    """Whether a purge was not answered since the log was last looked at."""


class Simulation:
    """One run. `digest` sums up everything that was answered, in order."""

    def __init__(self, seed: int, data_dir: Path, *, purges: bool = False) -> None:
        self.seed = seed
        self._purges = purges
        self._dice = random.Random(seed)
        self._draw = Draw(self._dice)
        self._data_dir = data_dir
        self._time_us = 1_750_000_000_000_000
        self._born = 0
        self._processes: list[Process] = [self._fork() for _ in range(PROCESSES)]
        self._projects: dict[str, Known] = {}
        self._hashed = sha256()
        self._happened: list[str] = []
        self.struck: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    @property
    def digest(self) -> str:
        return self._hashed.hexdigest()

    def run(self, steps: int = STEPS) -> None:
        try:
            self._life("create", "p0", None)
            for number in range(1, steps + 1):
                self._step()
                if number % STEPS_PER_CHECK == 0 or number == steps:
                    self._check()
        except Broken:
            raise
        except (AssertionError, TimeoutError, OSError) as error:
            raise self._broken(repr(error)) from error
        finally:
            for process in self._processes:
                process.kill()

    # -- steps

    def _step(self) -> None:
        steps = {
            self._command: 50,
            self._retry: 10,
            self._follow: 12,
            self._search: 8,
            self._change: 6,
            self._rebuild: 4,
            self._back_up: 3,
            self._kill: 4,
        }
        if self._purges:
            steps[self._purge] = 8
        (step,) = self._dice.choices(list(steps), list(steps.values()))
        step()

    def _command(self) -> None:
        name = self._project()
        known = self._projects[name]
        command_id = f"client-{len(known.sent)}"
        command = self._draw.command(known.memories, len(known.chains))
        known.sent[command_id] = Sent(command, self._dice.choice([None, "one", "two"]))
        self._send(name, command_id)

    def _retry(self) -> None:
        """A client that had no answer, or did not get it, asks again; a careless one asks something else."""
        name = self._project()
        known = self._projects[name]
        if known.sent:
            self._send(name, self._dice.choice(list(known.sent)))

    def _send(self, name: str, command_id: str) -> None:
        known = self._projects[name]
        sent = known.sent[command_id]
        ended = self._do("execute", name, sent.command, command_id, sent.thread)
        forgotten = ended.how == "refused" and "was used before" in ended.value
        if ended.how == "done":
            self._require(
                sent.acknowledged is None or not sent.purged, f"{command_id} was done once more"
            )
            self._require(
                sent.acknowledged in (None, ended.value), f"{command_id} was answered otherwise"
            )
            sent.acknowledged, sent.purged = ended.value, False
            known.memories += [each[2] for each in ended.value if each[1] == "MemoryStored"]
        self._require(
            not forgotten or sent.purged is not False, f"{command_id} is forgotten without a purge"
        )
        self._require(
            ended.how != "refused"
            or forgotten
            or sent.acknowledged is None
            or known.statuses != {"active"}
            or bool(ended.struck),
            f"{command_id} was acknowledged, and is refused now: {ended.value}",
        )

    def _change(self) -> None:
        """Of several projects one is active for most of the time, or there would be little to see."""
        change = self._dice.choice(("create", "archive", "restore", "delete"))
        name = self._project()
        if not any("active" in known.statuses for known in self._projects.values()):
            change = "create"
        elif self._projects[name].statuses == {"archived"}:
            change = "restore"
        if change == "create":
            name = f"p{len(self._projects)}"
        self._life(change, name, self._fault())

    def _life(self, change: str, name: str, fault: Fault | None) -> None:
        known = self._projects.setdefault(name, Known())
        ended = self._do("life", change, name, fault=fault, any_fault=False)
        after = CHANGES[change]
        if ended.how == "done":
            known.statuses = {after}
        elif ended.how == "died" or ended.struck:
            known.statuses |= {after}
        elif not ended.value.startswith("PROJECT_"):
            raise self._broken(f"{change} of {name} was refused: {ended.value}")

    def _follow(self) -> None:
        self._do(*self._dice.choice([("follow", self._project(), name) for name in PROJECTIONS]))
        if self._dice.random() < 0.3:
            self._do("save", self._project())

    def _search(self) -> None:
        name = self._project()
        head = len(self._projects[name].chains)
        at = self._dice.choice([None, self._dice.randint(0, head)])
        mode = self._dice.choice(("text", "hybrid", "semantic"))
        self._do("search", name, self._dice.choice((*QUERIES, *NAMES)), mode, at)

    def _rebuild(self) -> None:
        self._do("rebuild", self._project(), self._dice.choice(("state", *PROJECTIONS)))

    def _back_up(self) -> None:
        self._do("back_up")

    def _purge(self) -> None:
        name = self._project()
        known = self._projects[name]
        ended = self._do("purge", name, self._dice.choice(NAMES))
        if ended.how != "done" and not ended.struck:
            return
        known.erased |= set(ended.value if ended.how == "done" else ())
        known.erasing |= ended.how != "done"
        for sent in known.sent.values():
            sent.purged = sent.purged or (True if ended.how == "done" else None)

    def _kill(self) -> None:
        which = self._dice.randrange(PROCESSES)
        self._note(f"process {which} is killed")
        self._restart(which)

    # -- doing them

    def _project(self) -> str:
        active = [name for name, known in self._projects.items() if "active" in known.statuses]
        seldom = not active or self._dice.random() < 0.1
        return self._dice.choice(list(self._projects) if seldom else active)

    def _fault(self) -> Fault | None:
        if self._dice.random() < 0.6:
            return None
        kind: Kind = self._dice.choice(("crash", "failure", "failures"))
        early = int(CROSSINGS_MAX ** self._dice.random()) - 1  # many steps have but a few
        return Fault(kind, self._dice.choice((early, self._dice.randrange(CROSSINGS_MAX))))

    def _do(
        self, name: str, *arguments: Any, fault: Fault | None = None, any_fault: bool = True
    ) -> Ended:
        """One step in one process, perhaps with a fault; its successor starts where it dies."""
        which = self._dice.randrange(PROCESSES)
        self._time_us += self._dice.choice((1_000, 1_000_000, -3_600_000_000, 0))
        step = Step(name, arguments, self._time_us, self._fault() if any_fault else fault)
        ended = self._processes[which].do(step)
        self._note(f"process {which}: {step} -> {ended}")
        self.done[f"{name} {ended.how}"] += 1
        self.struck.update(ended.struck)
        if ended.how == "unforeseen":
            raise self._broken(ended.value)
        if ended.how in ("refused", "failed") and not ended.struck:
            self._require(
                not ended.value.startswith(("STORAGE_ERROR", "EMBEDDING_ERROR")),
                "it is refused though nothing is wrong",
            )
        if ended.how in ("died", "failed"):
            self._restart(which)
        return ended

    def _restart(self, which: int) -> None:
        self._processes[which].kill()
        self._processes[which] = self._fork()

    def _fork(self) -> Process:
        self._born += 1
        return Process(self._data_dir, self._born)

    def _note(self, what: str) -> None:
        self._happened.append(what)
        self._hashed.update(what.replace(str(self._data_dir), "").encode())

    # -- comparing

    def _check(self) -> None:
        self._settle_statuses()
        copied = self._ask(self._dice.randrange(PROCESSES), "back_up")
        for name, known in self._projects.items():
            if known.statuses == {"active"}:
                self._check_log(name, known)
                self._require(copied[name] == len(known.chains), f"the backup of {name} is behind")
                proofs = [self._ask(which, "proof", name) for which in range(PROCESSES)]
                self._require(
                    all(all(proof["equal"].values()) for proof in proofs),
                    f"what grew is not what is rebuilt: {[proof['equal'] for proof in proofs]}",
                )
                self._require(proofs[0] == proofs[1], "two processes have other indexes")
                views = {self._ask(which, "view", name) for which in range(PROCESSES)}
                self._require(len(views) == 1, f"two processes see {name} differently")

    def _settle_statuses(self) -> None:
        """What was not answered is one or the other, and the same for all; from now on it is known."""
        seen = [self._ask(which, "projects") for which in range(PROCESSES)]
        self._require(seen[0] == seen[1], f"two processes list other projects: {seen}")
        for name, known in self._projects.items():
            status = seen[0].get(name, "gone")
            self._require(status in known.statuses, f"{name} is {status}, not {known.statuses}")
            known.statuses = {status}

    def _check_log(self, name: str, known: Known) -> None:
        entries = self._ask(self._dice.randrange(PROCESSES), "log", name)
        chains = [chain for _, _, chain in entries]
        self._require(
            chains[: len(known.chains)] == known.chains, f"the log of {name} was changed or cut"
        )
        known.chains = chains
        erased = {position for position, command_id, _ in entries if not command_id}
        self._require(
            erased == known.erased or (known.erasing and erased > known.erased),
            f"erased is {sorted(erased)} of {name}, and should be {sorted(known.erased)}",
        )
        known.erased, known.erasing = erased, False
        written: dict[str, list[int]] = {}
        for position, command_id, _ in entries:
            written.setdefault(command_id, []).append(position)
        for command_id, sent in known.sent.items():
            found = written.pop(command_id, [])
            if sent.acknowledged is not None:
                told = [each[0] for each in sent.acknowledged if each[0] not in erased]
                self._require(found == told, f"{command_id} is at {found}, acknowledged {told}")
            self._require(
                not found or {*range(found[0], found[-1])} <= erased.union(found),
                f"{command_id} is scattered over {found}",
            )
        others = {command_id for command_id in written if command_id.startswith("client")}
        self._require(not others, f"the log of {name} has commands nobody sent: {others}")

    def _ask(self, which: int, name: str, *arguments: Any) -> Any:
        ended = self._processes[which].do(Step(name, arguments, self._time_us))
        self._note(f"process {which}: {name} {arguments} -> {ended}")
        self._require(ended.how == "done", f"{name} {arguments}: {ended.value}")
        return ended.value

    def _require(self, holds: bool, promise: str) -> None:
        if not holds:
            raise self._broken(promise)

    def _broken(self, promise: str) -> Broken:
        told = "\n".join(f"  {each[:SHOWN_CHARACTERS_MAX]}" for each in self._happened[-12:])
        return Broken(f"seed {self.seed}, step {len(self._happened)}: {promise}\n{told}")


def simulate(seed: int, steps: int = STEPS, *, purges: bool = False) -> Simulation:
    """Runs the seed in a folder of its own. Raises Broken."""
    with TemporaryDirectory(prefix="memlog-simulation-") as folder:
        simulation = Simulation(seed, Path(folder), purges=purges)
        simulation.run(steps)
        return simulation


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs seeds one after another, until they are done or interrupted; prints what was done and what struck, or
    the promise that broke."""
    import argparse
    import json

    from server.cli.printing import progress_bar

    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each")
    parser.add_argument("--purges", action="store_true", help="erase for good, too: other runs")
    parser.add_argument("--json", action="store_true", help="print JSON for other programs")
    asked = parser.parse_args(arguments)
    done: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    digests, broken = {}, []
    with progress_bar(hidden=asked.json) as progress, suppress(KeyboardInterrupt):
        task = progress.add_task("seeds", total=asked.seeds)
        for seed in range(asked.seed, asked.seed + asked.seeds):
            try:
                ran = simulate(seed, asked.steps, purges=asked.purges)
                digests[seed] = ran.digest
                done += ran.done
                struck += ran.struck
            except Broken as error:
                broken.append(str(error))
            progress.advance(task)
    if asked.json:
        print(json.dumps({"digests": digests, "done": done, "struck": struck, "broken": broken}))
    else:
        for title, counts in (("steps", done), ("struck", struck)):
            print(f"{title}: {counts.total()}")
            for what, count in sorted(counts.items()):
                print(f"{count:>8} {what}")
        print("\n".join(broken) or f"{len(digests)} seeds, nothing broken")
    return 1 if broken else 0


if __name__ == "__main__":
    import sys

    sys.exit(main())
