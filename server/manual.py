"""The manual of tools and settings as Markdown, rendered from the registry and from `SETTINGS`.

`python -m server.manual` writes `docs/tools.md` and `docs/settings.md`; a test compares them with
what would be written. What is said there is what clients are told in `tools/list`, and bounds too far for that, so it
cannot be right in one place and wrong in the other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from memlog.configuration import allowed
from memlog.settings import SETTINGS, TOOLSETS, Settings
from server.input.schemas import Schema, input_schema, referred
from server.listing import result_schema
from server.registry import Tool, tools

DOCS = Path(__file__).parents[1] / "docs"
TOOLSET_ABOUT = {
    "graph": "Entities, their observations, and relations between them; the tools of the reference server.",
    "projects": "Memories apart from each other, and which one is active on this connection.",
    "knowledge": "Validated saving, histories of facts, and questions to the graph.",
    "facts": "Single facts that supersede each other.",
    "records": "Structured records with types and tags, saved once however often they are sent.",
    "history": "What happened, and taking it back.",
}
_GENERATED = "<!-- Written by scripts/docs from the code. Do not edit. -->"


def tools_page() -> str:
    """`docs/tools.md`: every tool with its arguments, its result and what it may change."""
    lines = [
        "# Tools",
        _GENERATED,
        'Every key is also taken in the other case (`entity_type` for `entityType`), and null or `""` for a key that '
        "may be absent says as much as leaving it out. Where no string may stand, one that holds as JSON what may "
        '(`"10"`, `"[…]"`, `"null"`) is taken for that. A failure is a result '
        "with `isError` and `error.code`, `error.message`, `error.suggestion` and `error.problems`, and the `project` "
        "where the call came into one. "
        "Below each tool stands what it answers: strings by their name alone, `?` after what may be absent.",
    ]
    for toolset in TOOLSETS:
        of_toolset = tools((toolset,))
        links = " · ".join(f"[`{name}`](#{name})" for name in of_toolset)
        lines += [f"## Toolset `{toolset}`", TOOLSET_ABOUT[toolset], links]
        for tool in of_toolset.values():
            lines += _tool(tool)
    return "\n\n".join(lines) + "\n"


def _tool(tool: Tool) -> Iterator[str]:
    asked = input_schema(tool.arguments)
    yield f"### {tool.name}"
    yield f"**{tool.title}.** {_effects(tool)}"
    yield _escaped(tool.description)
    arguments = list(_fields(asked, asked))
    if arguments:
        yield _table(
            ("argument", "type", "required", "default", "limits", "meaning"),
            (
                (
                    f"`{path}`",
                    _type(schema),
                    "yes" if required else "",
                    f"`{json.dumps(schema['default'])}`" if "default" in schema else "",
                    _limits(schema),
                    schema.get("description", ""),
                )
                for path, schema, required in arguments
            ),
        )
    else:
        yield "No arguments."
    yield f"```text\n{_result(result_schema(tool))}\n```"


def _effects(tool: Tool) -> str:
    if not tool.writes:
        return "Reads only."
    lossy = "may take something away" if tool.destructive else "takes nothing away"
    again = "the same call again changes nothing more" if tool.idempotent else "each call adds"
    return f"Writes: {lossy}; {again}."


# -- schemas in words


def _fields(schema: Schema, root: Schema, path: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Every property at any depth: its path (`entities[].name`), its schema, whether required."""
    required = schema.get("required", ())
    for name, found in schema.get("properties", {}).items():
        each = _resolved(found, root)
        here = f"{path}{name}"
        yield here, each, name in required
        yield from _below(each, root, here)


def _below(schema: Schema, root: Schema, here: str) -> Iterator[tuple[str, Schema, bool]]:
    for choice in schema.get("anyOf", [schema]):
        each = _resolved(choice, root)
        if "items" in each:
            yield from _below(_resolved(each["items"], root), root, f"{here}[]")
        elif each.get("type") == "object":
            yield from _fields(each, root, f"{here}.")


def _result(schema: Schema) -> str:
    """What a tool answers, a field a line, and the parts that several fields share."""
    shared = [f"{name} = {_shape(part)}" for name, part in schema.get("$defs", {}).items()]
    return "\n".join(["{", *(f"  {field}" for field in _named(schema)), "}", *shared])


def _shape(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_shape, schema["anyOf"]))
    if "$ref" in schema:
        return referred(schema)
    if "items" in schema:
        return f"[{_shape(schema['items'])}]"
    if "properties" in schema:
        return f"{{{', '.join(_named(schema))}}}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{{…: {_shape(schema['additionalProperties'])}}}"
    if "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema["enum"])
    return str(schema.get("type", "any"))


def _named(schema: Schema) -> Iterator[str]:
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        label = name if name in required else f"{name}?"
        shape = _shape(each)
        yield label if shape == "string" else f"{label}: {shape}"


def _resolved(schema: Schema, root: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    definition: Schema = root["$defs"][referred(schema)]
    return {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}


def _type(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return " · ".join(f"`{value}`" for value in schema["enum"])
    if "$ref" in schema:
        return "object"
    if schema.get("type") == "array":
        return f"list of {_plural(_type(schema.get('items', {})))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_plural(_type(schema['additionalProperties']))}"
    kind: str = schema.get("type", "any value")
    return kind


def _plural(kind: str) -> str:
    head, _, rest = kind.partition(" of ")
    words = " or ".join(f"{word}s" for word in head.split(" or "))
    return f"{words} of {rest}" if rest else words


def _limits(schema: Schema) -> str:
    found = [
        _span(schema.get("minLength"), schema.get("maxLength"), " characters"),
        _span(schema.get("minItems"), schema.get("maxItems"), " items"),
        _span(schema.get("minimum"), schema.get("maximum"), ""),
        f"`{schema['pattern']}`" if "pattern" in schema else "",
    ]
    if "items" in schema and (each := _limits(schema["items"])):
        found.append(f"each {each}")
    if "anyOf" in schema:
        found += [_limits(choice) for choice in schema["anyOf"]]
    return ", ".join(limit for limit in found if limit)


def _span(least: float | None, most: float | None, unit: str) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f"at least {least:,}{unit}"
    return f"up to {most:,}{unit}" if least is None else f"{least:,}–{most:,}{unit}"


# -- settings


def settings_page() -> str:
    """`docs/settings.md`: every setting, the variables that set it, and its default."""
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    rows = (
        (
            f"`{setting.field}`",
            ", ".join(f"`{variable}`" for variable in setting.variables),
            _taken(fields[setting.field].type),
            _default(fields[setting.field]),
            setting.about + (" (never shown or logged)" if setting.secret else ""),
        )
        for setting in SETTINGS
    )
    return (
        "\n\n".join(
            [
                "# Settings",
                _GENERATED,
                "From the environment; where several variables set one thing, the first that is set wins. Flags of "
                "`memlog serve` win over them. An empty variable counts as not set, but for that of the project. "
                "`memlog doctor` prints what is in effect, where it came from, and which variable is no setting.",
                _table(("setting", "variables", "takes", "default", "meaning"), rows),
            ]
        )
        + "\n"
    )


def _taken(kind: Any) -> str:
    words = allowed(kind)
    if len(words) == 1:
        return words[0]
    return (" or " if kind is bool else " · ").join(f"`{word}`" for word in words)


def _default(field: Any) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return "as the system has it; `~/.local/share/memlog` on Linux"
    value = field.default
    if value in (None, "", ()):
        return ""
    if isinstance(value, tuple):
        value = ",".join(value)
    return f"`{int(value) if isinstance(value, bool) else value}`"


# -- Markdown


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _escaped(description: str) -> str:
    """A description with its example set as code."""
    said, found, example = description.partition("Example: ")
    if not found:
        return description
    return f"{said.strip()}\n\nExample: `{' '.join(example.split())}`"


PAGES = {"tools.md": tools_page, "settings.md": settings_page}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
