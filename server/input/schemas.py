"""JSON Schema (2020-12) of arguments and results, as short as it can be without losing meaning.

A model pays for every character of `tools/list` in every conversation. So titles, examples,
single-use definitions and nulls that mean "not given" are dropped: `server.input.arguments` knows them
still. The docstring of a struct is for readers of the code; what a model reads is in `Meta`.

Clients limit what they take: the root is always a plain object (a bare `$ref` there fails the
whole list), there are no circles, every enum names its type, and what a list shows has no bound that is too far to be
counted out (`countable`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect as mi

from server.input.arguments import parts

Schema = dict[str, Any]

SHARED_CHARACTERS_MIN = 100
"""What a `$ref` has to save. Clients that rewrite schemas for a model do not all follow one."""

COUNTED_OUT_MAX = 1_000
"""Characters or items, from which on an upper bound is not shown. Servers of local models make a grammar of the tools
that counts it out: up to version 0.4, llama.cpp refuses the whole list for one bound of 2,000, and what makes regular
expressions runs out of memory with lists of 1,000 texts."""

_DROPPED = frozenset({"examples", "discriminator"})
_NULL = {"type": "null"}
_UPPER_BOUNDS = frozenset({"maxLength", "maxItems"})


def input_schema(of: type[msgspec.Struct]) -> Schema:
    """The schema of arguments: unknown keys forbidden, `X | None = None` shown as X.

    Raises TypeError for a type that holds itself or is not written as an object.
    """
    return _Compact(of, is_input=True).root()


def output_schema(of: type) -> Schema:
    """The schema of a result: unknown keys allowed, null shown wherever it may be written.

    Structs with `omit_defaults` never write a null that is the default. Raises as `input_schema`.
    """
    return _Compact(of, is_input=False).root()


def countable(node: Any) -> Any:
    """A schema without the upper bounds that are too far to be counted out. `server.input.arguments` holds to them."""
    if isinstance(node, list):
        return [countable(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: countable(each) for key, each in node.items() if not _far(key, each)}


def _far(key: str, bound: Any) -> bool:
    return key in _UPPER_BOUNDS and isinstance(bound, int) and bound >= COUNTED_OUT_MAX


class _Compact:
    """One schema from msgspec, rewritten; definitions are inlined unless sharing saves much."""

    def __init__(self, of: type, *, is_input: bool) -> None:
        generated = msgspec.json.schema(of)
        self._definitions: dict[str, Schema] = generated["$defs"]
        self._name = referred(generated)
        self._is_input = is_input
        self._uses = Counter(_references(self._definitions))
        self._omitting = _omitting(of)
        self._open: list[str] = []
        self._shared: dict[str, Schema] = {}

    def root(self) -> Schema:
        schema = self._definition(self._name)
        if schema.get("type") != "object":
            raise TypeError(f"{self._name} is not written as a JSON object")
        return {**schema, "$defs": self._shared} if self._shared else schema

    def _definition(self, name: str) -> Schema:
        if name in self._open:
            raise TypeError(f"{name} holds itself, which schemas of tools may not")
        self._open.append(name)
        short = self._struct(self._definitions[name])
        self._open.pop()
        return short

    def _struct(self, schema: Schema) -> Schema:
        title = schema.get("title")
        schema = {key: schema[key] for key in schema if key not in ("title", "description")}
        properties = schema.get("properties", {})
        if self._is_input or title in self._omitting:
            properties = {key: _without_null(each) for key, each in properties.items()}
        short = self._rewrite({**schema, "properties": properties})
        if not short.get("required"):
            short.pop("required", None)
        if not self._is_input and short.get("additionalProperties") is False:
            del short["additionalProperties"]
        return short

    def _rewrite(self, schema: Schema) -> Schema:
        short: Schema = {}
        for key, value in schema.items():
            if key in _DROPPED or (key == "default" and value is None):
                continue
            if key == "properties":
                short[key] = {name: self._rewrite(each) for name, each in value.items()}
            elif key in ("anyOf", "prefixItems"):
                short[key] = [self._rewrite(each) for each in value]
            elif key in ("items", "additionalProperties") and isinstance(value, dict):
                if value:
                    short[key] = self._rewrite(value)
            else:
                short[key] = value
        if "enum" in short and all(isinstance(each, str) for each in short["enum"]):
            short = {"type": "string", **short}
        return self._placed(short) if "$ref" in short else short

    def _placed(self, reference: Schema) -> Schema:
        """The definition in place of the reference, or the reference and the definition shared."""
        name = referred(reference)
        definition = self._definition(name)
        uses, size = self._uses[name], _size(definition)
        saved = (uses - 1) * size - uses * _size({"$ref": reference["$ref"]}) - len(name)
        if saved < SHARED_CHARACTERS_MIN:
            rest = {key: value for key, value in reference.items() if key != "$ref"}
            return {**definition, **rest}
        self._shared[name] = definition
        return reference


def _without_null(schema: Schema) -> Schema:
    """A nullable property with default null, without the null."""
    if schema.get("default", ...) is not None or _NULL not in schema.get("anyOf", ()):
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    choices = [each for each in schema["anyOf"] if each != _NULL]
    return {**choices[0], **rest} if len(choices) == 1 else {**rest, "anyOf": choices}


def _omitting(of: type) -> set[str]:
    """The names of structs that leave out what is at its default; doubtful ones are not listed."""
    structs = [part.cls for part in parts(mi.type_info(of)) if isinstance(part, mi.StructType)]
    omitting = {cls.__name__ for cls in structs if cls.__struct_config__.omit_defaults}
    return omitting - {cls.__name__ for cls in structs if not cls.__struct_config__.omit_defaults}


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield referred(node)
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _references(each)


def referred(schema: Schema) -> str:
    """The name of the definition that `$ref` means."""
    reference: str = schema["$ref"]
    return reference.removeprefix("#/$defs/")


def _size(schema: Schema) -> int:
    return len(json.dumps(schema, separators=(",", ":")))
