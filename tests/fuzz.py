"""Requests drawn from the tools' own input schemas, and broken ones: for every tool, by a seed.

`python -m tests.fuzz --cases 100000`, or `scripts/fuzz`. A case is a call of a tool through all that a
client's call goes through but the pipe. It may succeed or be refused; it may not raise anything else,
take longer than the limit, write a part, or answer with the text of an exception, a path or a stack.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from memlog.errors import MemlogError
from memlog.projects.project import Origin
from memlog.settings import Settings
from server.input.schemas import input_schema
from server.performing import perform
from server.registry import Call, Tool, tools
from server.service import Service
from server.session import Session

CASE_SECONDS_MAX = 1.0
TELLING = re.compile(r"Traceback|File \"|\.py\b|site-packages|object at 0x|/tmp/|<class ")
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    2**63,
    -(2**70),
    "",
    " ",
    "\0",
    "\ud800",
    "a" * 20_000,
    "((((" * 300,
    '"' * 999,
    "x* AND " * 500,
    "🙂é\u202e\u200b",
    "../../etc/passwd",
    "ent_01h455vb4pex5vsknk084sn02q",
    [],
    {},
    [[[[[[[[]]]]]]]],
    {"": {"": {"": None}}},
    ["x"] * 1_001,
)
WORDS = ("Jon", "Gina", "person", "likes dancing", "banker", "NOT", "AND", '"a b"', "dan*", "東京")


class Generator:
    """Draws values of a JSON Schema as the tools' are: no more of it than they use."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def value(self, schema: Any, root: dict[str, Any]) -> Any:
        if "$ref" in schema:
            return self.value(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._dice.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(self._dice.choice(schema["anyOf"]), root)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self._dice.choice(kind)
        match kind:
            case "object":
                return self._object(schema, root)
            case "array":
                low, high = schema.get("minItems", 0), min(schema.get("maxItems", 4), 4)
                count = self._dice.randint(low, max(low, high))
                return [self.value(schema.get("items", {}), root) for _ in range(count)]
            case "string":
                return self._text(schema)
            case "integer":
                low = schema.get("minimum", -3)
                return self._dice.choice((low, low + 1, schema.get("maximum", low + 50)))
            case "number":
                return self._dice.choice((schema.get("minimum", 0), schema.get("maximum", 1), 0.5))
            case "boolean":
                return self._dice.random() < 0.5
            case "null":
                return None
        return self._dice.choice(WORDS)

    def _object(self, schema: Any, root: dict[str, Any]) -> dict[str, Any]:
        required = set(schema.get("required", ()))
        return {
            name: self.value(each, root)
            for name, each in schema.get("properties", {}).items()
            if name in required or self._dice.random() < 0.4
        }

    def _text(self, schema: Any) -> str:
        text = " ".join(self._dice.choices(WORDS, k=self._dice.randint(1, 3)))
        if "pattern" in schema:
            return self._dice.choice(("a", "project:shop", text))
        wanted = schema.get("minLength", 0), schema.get("maxLength", 200)
        if self._dice.random() < 0.03:
            text *= wanted[1] // len(text) + 1
        return text.ljust(wanted[0], "x")[: wanted[1]]

    def broken(self, value: Any) -> Any:
        """The same with one thing in it replaced, dropped, added or doubled."""
        if isinstance(value, dict) and value and self._dice.random() < 0.7:
            key = self._dice.choice(list(value))
            match self._dice.randrange(5):
                case 0:
                    return {each: value[each] for each in value if each != key}
                case 1:
                    return {**value, self._dice.choice((key + "s", key.upper(), "")): value[key]}
                case _:
                    return {**value, key: self.broken(value[key])}
        if isinstance(value, list) and value and self._dice.random() < 0.7:
            at = self._dice.randrange(len(value))
            return [*value[:at], self.broken(value[at]), *value[at:]]
        return self._dice.choice(ODD)


class Fuzz:
    """Calls tools until told to stop, over one service. Raises AssertionError with the case."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self._dice = random.Random(seed)
        self._generator = Generator(self._dice)
        self._service = Service(Settings(data_dir=data_dir, embedder="none"))
        self._session = Session(self._service, "default")
        self._session.ensure_default("default")
        self._tools = tools(self._service.settings.toolsets)
        self._schemas = {name: input_schema(tool.arguments) for name, tool in self._tools.items()}
        self.counts: Counter[str] = Counter()
        self.slowest = self.busiest = 0.0
        self.slowest_case = ""
        """By the clock, and by the processor: on a machine that has other things to do they differ."""

    def case(self) -> None:
        name = self._dice.choice(list(self._tools))
        schema = self._schemas[name]
        arguments = self._generator.value(schema, schema)
        for _ in range(self._dice.choice((0, 0, 1, 1, 2))):
            arguments = self._generator.broken(arguments)
        if isinstance(arguments, dict) and self._dice.random() < 0.9:
            arguments.pop("project", None)
        self._call(self._tools[name], arguments)
        self._come_back()

    def _come_back(self) -> None:
        """A case may have put the project away or left it: the next one has it again."""
        self._session.active = "default"
        if not self._service.store.knows("default"):
            self._service.store.create("default")
        if self._service.store.find("default").status == "archived":
            self._service.store.restore("default")

    def _call(self, tool: Tool, arguments: Any) -> None:
        shown = f"{tool.name} {repr(arguments)[:2000]}"
        before = self._head()
        command_id = f"c{self.counts.total()}" if self._dice.random() < 0.2 else None
        begun, worked = time.perf_counter(), time.thread_time()
        try:
            result = perform(
                tool, Call(self._session, Origin(command_id=command_id)), arguments
            ).as_result()
        except Exception as error:
            raise AssertionError(f"{shown}\nraised {error!r}") from error
        seconds = time.perf_counter() - begun
        self.busiest = max(self.busiest, time.thread_time() - worked)
        if seconds > self.slowest:
            self.slowest, self.slowest_case = seconds, shown
        code = ""
        if result.is_error:
            told = (result.structured_content or {}).get("error", {})
            code = str(told.get("code"))
            text = " ".join([told.get("message", ""), told.get("suggestion") or ""])
            assert not TELLING.search(text), f"{shown}\nis told {text}"
            assert self._head() == before, f"{shown}\nwrote a part"
        else:
            json.dumps(msgspec.to_builtins(result.structured_content))
        self.counts[f"{tool.name} {code or 'done'}"] += 1

    def _head(self) -> int:
        try:
            return self._service.store.project("default").head()
        except MemlogError:  # archived or deleted by the case
            return -1

    def prove(self) -> None:
        """What was written is whole, in every project there is."""
        for row in self._service.store.projects("active"):
            project = self._service.store.project(row.name)
            assert list(project.verify()) == list(range(1, project.head() + 1))
            assert project.is_as_rebuilt()

    def close(self) -> None:
        self._service.close()


def fuzz(cases: int, seed: int, progress: Any = None) -> Fuzz:
    with TemporaryDirectory(prefix="memlog-fuzz-") as folder:
        fuzzed = Fuzz(Path(folder), seed)
        try:
            for _ in range(cases):
                fuzzed.case()
                if progress is not None:
                    progress()
            fuzzed.prove()
        finally:
            fuzzed.close()
        return fuzzed


def main(arguments: Sequence[str] | None = None) -> int:
    import argparse

    from server.cli.printing import progress_bar

    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    with progress_bar() as progress:
        task = progress.add_task("cases", total=asked.cases)
        fuzzed = fuzz(asked.cases, asked.seed, lambda: progress.advance(task))
    for what, count in sorted(fuzzed.counts.items()):
        print(f"{count:>8} {what}")
    slowest, busiest = fuzzed.slowest * 1000, fuzzed.busiest * 1000
    print(f"{asked.cases} cases, the slowest {slowest:.0f} ms, at most {busiest:.0f} ms of work")
    if fuzzed.slowest > CASE_SECONDS_MAX:
        print(f"the slowest: {fuzzed.slowest_case}")
    return 1 if fuzzed.slowest > CASE_SECONDS_MAX else 0


if __name__ == "__main__":
    import sys

    sys.exit(main())
