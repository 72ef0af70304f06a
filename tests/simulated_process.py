"""One process of the simulation: the real service in a real process, which does one step when it is told to.

It is forked from the simulation, dies as a process dies, and leaves to its successor what the kernel
and the disk keep. Time and ids come from the simulation, and the follower's work is a step of its own,
so that a run depends on its seed alone.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from hashlib import sha256
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

import memlog.projects.project
import projections.embedding.rest
import projections.search.asking
import server.service
from memlog.codec import Entry
from memlog.commands import AnyCommand
from memlog.context import Context
from memlog.copies.backup import back_up
from memlog.errors import MemlogError
from memlog.ids import Prefix
from memlog.projects.project import Origin, Outcome
from memlog.projects.purging import Target
from memlog.projects.store import Store
from memlog.settings import Mode, Settings
from memlog.state import State
from projections.check import compare
from projections.follow import PROJECTIONS
from server.following import Follower
from server.service import Service
from tests.simulated_commands import QUERIES
from tests.simulated_faults import Fault, Faults, installed

DEADLINE_S = 120.0


class Step(NamedTuple):
    """What a process is to do: a method of `Life`, its arguments, the time, and what goes wrong."""

    name: str
    arguments: tuple[Any, ...]
    time_us: int
    fault: Fault | None = None


class Ended(NamedTuple):
    """How a step ended: `done`, `refused` with a code, `unforeseen` with a traceback, or `died`.

    A service that cannot start is the end of its process, too: `failed`, with a code.
    """

    how: str
    value: Any
    struck: list[str]


class Failed(Exception):
    """The service did not start."""


class InOrder(Executor):
    """Does at once what others do meanwhile, in an order that depends on nothing."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Life:
    """The service between a start and an end, and the steps it can be told to do."""

    def __init__(self, data_dir: Path, number: int) -> None:
        self._counted = 0
        self._number = number
        self.time_us = 0
        context = partial(Context, new_id=self._new_id)
        store = partial(Store, clock=lambda: self.time_us)
        patch.object(server.service, "Context", context).start()
        patch.object(server.service, "Store", store).start()
        patch.object(memlog.projects.project, "new_id", self._new_id).start()
        patch.object(Follower, "behind", lambda *_: None).start()
        patch.object(projections.embedding.rest, "RETRY_SECONDS", 0).start()
        patch.object(projections.search.asking, "MEANWHILE", InOrder()).start()
        self._settings = Settings(data_dir=data_dir / "data", embedder="minilm")
        self._backup = data_dir / "backup"
        self._service: Service | None = None

    def _new_id(self, prefix: Prefix) -> str:
        self._counted += 1
        return f"{prefix}_{self._number:010}{self._counted:016}"

    @property
    def service(self) -> Service:
        """Started by the first step. Raises Failed."""
        if self._service is None:
            try:
                self._service = Service(self._settings)
            except MemlogError as error:
                raise Failed(f"{error.code}: {error}") from error
        return self._service

    # -- writing

    def execute(
        self, project: str, command: AnyCommand, command_id: str, thread: str | None
    ) -> list[list[Any]]:
        origin = Origin(command_id=command_id, thread=thread)
        return self.service.execute(self.service.open(project), command, _told, origin)

    def life(self, change: str, project: str) -> None:
        """`create`, `archive`, `restore` or `delete`."""
        if change in ("archive", "delete"):
            self.service.close_project(project)
        getattr(self.service.store, change)(project)

    def purge(self, project: str, name: str) -> list[int]:
        """The positions that were erased. Only the command line purges, in a process that does nothing else."""
        self._end()
        try:
            return sorted(self.service.purge(project, Target((name,))).positions)
        finally:
            self._end()

    def _end(self) -> None:
        if self._service is not None:
            self._service.close()
            self._service = None

    # -- what happens beside

    def follow(self, project: str, name: str) -> int:
        opened = self.service.open(project)
        return opened.projections.caught_up(name).position

    def save(self, project: str) -> None:
        self.service.open(project).projections.vectors().save()

    def rebuild(self, project: str, name: str) -> None:
        opened = self.service.open(project)
        if name == "state":
            opened.project.rebuild()
        else:
            opened.projections.rebuild(name)

    def back_up(self) -> dict[str, int]:
        """How far the backup of each project reaches."""
        return {each.name: each.position for each in back_up(self.service.store, self._backup)}

    # -- reading

    def search(self, project: str, query: str, mode: Mode, at: int | None) -> list[tuple[str, str]]:
        found = self.service.open(project).searcher.search(query, mode=mode, at=at)
        return [(hit.ref, f"{hit.score:.6f}") for hit in found.hits]

    def projects(self) -> dict[str, str]:
        return {row.name: row.status for row in self.service.store.projects("all")}

    def view(self, project: str) -> str:
        """A digest of everything that can be read and found in the project."""
        opened = self.service.open(project)
        with opened.project.read() as state:
            seen: list[Any] = _everything(state)
        for query in QUERIES:
            seen.append(self.search(project, query, "hybrid", None))
        with opened.projections.analytics().read() as analytics:
            seen.append(analytics.totals())
        return sha256(msgspec.msgpack.encode(seen)).hexdigest()

    def log(self, project: str) -> list[tuple[int, str, str]]:
        """Position, command id ("" where it was erased) and chain of each entry, after the log was verified."""
        opened = self.service.store.project(project)
        with opened.snapshot() as (log, _):
            entries: list[Entry] = list(log.read())
        assert list(opened.verify()) == list(range(1, len(entries) + 1))
        times = [entry.time_us for entry in entries]
        assert times == sorted(times)
        return [(entry.position, entry.command_id, entry.chain.hex()) for entry in entries]

    def proof(self, project: str) -> dict[str, Any]:
        """Whether the state and each projection equal what the log alone gives, and their digests."""
        opened = self.service.open(project)
        equal: dict[str, bool] = {name: compare(opened.projections, name) for name in PROJECTIONS}
        equal["state"] = opened.project.is_as_rebuilt()
        digests = [opened.projections.caught_up(name).digest() for name in PROJECTIONS]
        return {"equal": equal, "digests": [opened.project.digest(), *digests]}


def _told(outcome: Outcome) -> list[list[Any]]:
    return [
        [entry.position, type(entry.event).__name__, getattr(entry.event, "memory_id", None)]
        for entry in outcome.entries
    ]


def _everything(state: State) -> list[Any]:
    entities = list(state.entities())
    return [
        entities,
        [state.observations(each.id) for each in entities],
        list(state.relations()),
        list(state.memories()),
    ]


class Process:
    """A process as the simulation holds it."""

    def __init__(self, data_dir: Path, number: int) -> None:
        self._ours, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._ours.close()
            _live(theirs, data_dir, number)
        theirs.close()

    def do(self, step: Step) -> Ended:
        """Does the step; `died` where the process did not outlive it."""
        self._ours.send(step)
        told: Any = None
        while True:
            if not self._ours.poll(DEADLINE_S):
                raise TimeoutError(f"no answer within {DEADLINE_S} s to {step}")
            try:
                told = self._ours.recv()
            except EOFError:
                assert isinstance(told, str), f"it died of itself in {step}"
                return Ended("died", None, [told])
            if isinstance(told, Ended):
                return told

    def kill(self) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        self._ours.close()


def _live(pipe: Connection, data_dir: Path, number: int) -> None:
    """The whole life of the child; never returns."""
    try:
        logging.disable(logging.CRITICAL)
        faults = Faults()
        faults.dying = pipe.send
        with installed(faults):
            life = Life(data_dir, number)
            while True:
                step: Step = pipe.recv()
                life.time_us = step.time_us
                faults.plan(step.fault)
                how, value = _attempt(partial(getattr(life, step.name), *step.arguments))
                ended = Ended(how, value, faults.struck)
                faults.plan(None)
                pipe.send(ended)
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _attempt(step: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "done", step()
    except Failed as error:
        return "failed", str(error)
    except MemlogError as error:
        return "refused", f"{error.code}: {error}"
    except Exception:
        return "unforeseen", traceback.format_exc()
