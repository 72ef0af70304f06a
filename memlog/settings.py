"""The settings: one object, filled from defaults, then the environment, then flags.

`SETTINGS` is the one table of them: the reference in the documentation, `memlog doctor` and the
reading of the environment all derive from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from memlog.closest import did_you_mean
from memlog.commands import MEMORY_CONTENT_CHARACTERS_MAX, TAGS_MAX, IfExists
from memlog.errors import InvalidParameter, Problem, refusal

Mode = Literal["hybrid", "text", "semantic"]
Embedder = Literal["minilm", "openai", "fastembed", "none"]
LogLevel = Literal["debug", "info", "warn", "error"]
TOOLSETS = ("graph", "projects", "knowledge", "facts", "records", "history")


class Setting(msgspec.Struct, frozen=True):
    """One setting: its field, the environment variables that set it (first found wins), and why."""

    field: str
    variables: tuple[str, ...]
    about: str
    secret: bool = False


def default_data_dir() -> Path:
    """Where the system keeps a user's data: ~/.local/share/memlog on Linux."""
    from platformdirs import user_data_path

    return user_data_path("memlog", appauthor=False)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server or a command runs with. See `SETTINGS` for what each field means."""

    data_dir: Path = msgspec.field(default_factory=default_data_dir)
    project: str = "default"
    toolsets: tuple[str, ...] = TOOLSETS
    read_only: bool = False
    if_exists: IfExists = "replace"
    strict_relations: bool = False
    search_mode: Mode = "hybrid"
    search_limit: int = 10
    search_limit_max: int = 100
    similar_min: float = 0.5
    content_characters_max: int = MEMORY_CONTENT_CHARACTERS_MAX
    tags_max: int = TAGS_MAX
    embedder: Embedder = "minilm"
    embedder_model: str = ""
    embedder_url: str = ""
    embedder_key: str = ""
    embedder_retries: int = 3
    model_dir: Path | None = None
    log_level: LogLevel = "info"


SETTINGS = (
    Setting("data_dir", ("MEMLOG_DATA_DIR",), "Folder that holds the logs and their indexes"),
    Setting(
        "project",
        ("MEMLOG_PROJECT",),
        "Project that is active at the start, made on first use; empty for none",
    ),
    Setting("toolsets", ("MEMLOG_TOOLSETS",), "Toolsets to offer, separated by commas"),
    Setting("read_only", ("MEMLOG_READ_ONLY",), "Hide every tool that writes"),
    Setting(
        "if_exists",
        ("MEMLOG_IF_EXISTS",),
        "What create_entities does with a name that exists: replace, merge, skip or error",
    ),
    Setting(
        "strict_relations",
        ("MEMLOG_STRICT_RELATIONS",),
        "Refuse relations to entities that do not exist",
    ),
    Setting("search_mode", ("MEMLOG_SEARCH_MODE",), "Default mode: hybrid, text or semantic"),
    Setting(
        "search_limit",
        ("MEMLOG_SEARCH_LIMIT", "SEARCH_DEFAULT_LIMIT"),
        "Results of memory_search and memory_list where the call gives no limit",
    ),
    Setting(
        "search_limit_max",
        ("MEMLOG_SEARCH_LIMIT_MAX", "SEARCH_MAX_LIMIT"),
        "The largest limit memory_search and memory_list take",
    ),
    Setting(
        "similar_min",
        ("MEMLOG_SIMILAR_MIN",),
        "Cosine from which store_memory offers a stored memory as similar",
    ),
    Setting(
        "content_characters_max",
        ("MEMLOG_CONTENT_CHARACTERS_MAX", "MAX_CONTENT_LENGTH"),
        "The longest content of a memory, in characters of its JSON",
    ),
    Setting("tags_max", ("MEMLOG_TAGS_MAX", "MAX_TAGS_COUNT"), "The most tags of a record"),
    Setting(
        "embedder",
        ("MEMLOG_EMBEDDER",),
        "What turns text into vectors: minilm (local), openai (any compatible endpoint), "
        "fastembed, or none",
    ),
    Setting(
        "embedder_model",
        ("MEMLOG_EMBEDDER_MODEL", "EMBEDDINGS_MODEL"),
        "Model name for openai and fastembed",
    ),
    Setting(
        "embedder_url",
        ("MEMLOG_EMBEDDER_URL", "OPENAI_BASE_URL"),
        "Base address of the endpoint for openai, ending before /embeddings",
    ),
    Setting(
        "embedder_key",
        ("MEMLOG_EMBEDDER_KEY", "OPENAI_API_KEY"),
        "Key for the endpoint",
        secret=True,
    ),
    Setting(
        "embedder_retries",
        ("MEMLOG_EMBEDDER_RETRIES", "EMBEDDINGS_MAX_RETRIES"),
        "How often a failed call to the endpoint is repeated",
    ),
    Setting(
        "model_dir",
        ("MEMLOG_MODEL_DIR",),
        "Folder with model.safetensors and tokenizer.json of all-MiniLM-L6-v2",
    ),
    Setting("log_level", ("MEMLOG_LOG_LEVEL", "LOG_LEVEL"), "debug, info, warn or error"),
)

_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def load(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Settings, dict[str, str]]:
    """The effective settings, and for each field where it came from: a variable, a flag, "default".

    Flags that are None were not given, nor were empty variables, but for that of the project. Raises
    InvalidParameter with every value that does not fit.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins = {setting.field: "default" for setting in SETTINGS}
    abouts = {setting.field: f"{setting.about}." for setting in SETTINGS}
    for setting in SETTINGS:
        for variable in setting.variables:
            if environment.get(variable) or (
                variable in environment and setting.field == "project"
            ):
                values[setting.field] = environment[variable]
                origins[setting.field] = variable
                break
    for field, value in (flags or {}).items():
        if value is not None:
            values[field] = value
            origins[field] = f"--{field.replace('_', '-')}"
    problems = []
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    for name, value in list(values.items()):
        try:
            values[name] = _convert(name, value, fields[name].type)
        except ValueError as error:
            problem = Problem(origins[name], str(error), abouts[name], value)
            problems.append((InvalidParameter, problem))
    if problems:
        raise refusal(problems)
    return Settings(**values), origins


def _convert(name: str, value: Any, wanted: Any) -> Any:
    if name == "toolsets" and isinstance(value, str):
        return _toolsets(value)
    if wanted is bool and isinstance(value, str):
        if value.lower() not in _YES | _NO:
            raise ValueError(f"{name} is {value!r}: say 1 or 0")
        return value.lower() in _YES
    if wanted in (Path, Path | None):
        return Path(value).expanduser() if value else None
    try:
        return msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name} is {value!r}: {error}") from error


def _toolsets(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in TOOLSETS:
            near = did_you_mean(name, TOOLSETS) or f"There are {', '.join(TOOLSETS)}."
            raise ValueError(f"there is no toolset {name!r}. {near}")
    return names or TOOLSETS
