"""The settings: one object, which `configuration` fills from defaults, then the environment, then flags.

`SETTINGS` is the one table of them: the reference in the documentation, `memlog doctor` and the
reading of the environment all derive from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from memlog.commands import (
    MEMORY_CONTENT_CHARACTERS_MAX,
    TAGS_MAX,
    IfExists,
)
from memlog.errors import invalid_at

Mode = Literal["hybrid", "text", "semantic"]
Embedder = Literal["minilm", "openai", "fastembed", "none"]
LogLevel = Literal["debug", "info", "warn", "error"]
Secrets = Literal["warn", "reject", "off"]
HostHeader = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:([0-9]+|\*))?$",
        description="a host such as memory.example, memory.example:8081 or memory.example:*",
    ),
]
OriginHeader = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z][A-Za-z0-9+.-]*://[^/\s*]+(:\*)?|null)$",
        description="an origin such as https://app.example or http://localhost:*",
    ),
]
LIMIT_MAX = 1_000_000
TOOLSETS = ("graph", "projects", "knowledge", "facts", "records", "history")


class Setting(msgspec.Struct, frozen=True):
    """One setting: its field, what it is about, and the variables of other services that set it, too; `shared`, where
    those may be meant for any other software: what does not fit from there is passed over."""

    field: str
    about: str
    also: tuple[str, ...] = ()
    secret: bool = False
    shared: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Of the environment: the first that is found wins."""
        return (f"MEMLOG_{self.field.upper()}", *self.also)


def default_data_dir() -> Path:
    """Where the system keeps a user's data: ~/.local/share/memlog on Linux.

    Raises InvalidParameter where this user has no home, as one of a container that only has a number.
    """
    from platformdirs import user_data_path

    try:
        return user_data_path("memlog", appauthor=False)
    except RuntimeError as error:
        problem = "there is none by default, for this user has no home directory"
        raise invalid_at("MEMLOG_DATA_DIR", problem, "Name a folder, or set HOME.") from error


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server or a command runs with. See `SETTINGS` for what each field means."""

    data_dir: Path = msgspec.field(default_factory=default_data_dir)
    project: str = "default"
    toolsets: tuple[str, ...] = TOOLSETS
    read_only: bool = False
    if_exists: IfExists = "replace"
    strict_relations: bool = False
    secrets: Secrets = "warn"
    resource_links: bool = True
    search_mode: Mode = "hybrid"
    search_limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 10
    search_limit_max: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 100
    similar_min: Annotated[float, Meta(ge=-1, le=1)] = 0.5
    content_characters_max: Annotated[int, Meta(ge=1)] = MEMORY_CONTENT_CHARACTERS_MAX
    tags_max: Annotated[int, Meta(ge=0)] = TAGS_MAX
    embedder: Embedder = "minilm"
    embedder_model: str = ""
    embedder_url: str = ""
    embedder_key: str = ""
    embedder_retries: Annotated[int, Meta(ge=0)] = 3
    model_dir: Path | None = None
    piece_vectors: bool = True
    log_level: LogLevel = "info"
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Meta(ge=0, le=65_535)] = 8081
    http_path: Annotated[
        str,
        Meta(
            # No client asks for a path with steps such as `..` in it, but for what is left of it.
            pattern=r"^(?!/(healthz|readyz|metrics)$)(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+$",
            description="a path such as /mcp, not /healthz, /readyz or /metrics, which tell of the server",
        ),
    ] = "/mcp"
    http_stateless: bool = False
    allowed_hosts: tuple[HostHeader, ...] = ()
    allowed_origins: tuple[OriginHeader, ...] = ()
    token: str = ""
    tokens_file: Path | None = None
    oauth_issuer: str = ""
    oauth_resource: str = ""
    oauth_audience: str = ""
    oauth_scope_prefix: Annotated[
        str,
        Meta(
            pattern=r"^[!#-\[\]-~]*\Z",  # RFC 6749, 3.3; strangers are told it in a header
            description="what scopes begin with, without white space, quotes or a backslash",
        ),
    ] = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    http_body_bytes_max: Annotated[int, Meta(ge=1_024)] = 4 * 1024 * 1024
    http_connections_max: Annotated[int, Meta(ge=1)] = 1_000
    http_requests_max: Annotated[int, Meta(ge=1)] = 100
    http_requests_per_second: Annotated[float, Meta(gt=0)] = 200.0
    http_request_seconds: Annotated[float, Meta(gt=0)] = 60.0
    http_patience_seconds: Annotated[float, Meta(gt=0)] = 15.0
    http_sessions_max: Annotated[int, Meta(ge=1)] = 1_000
    http_session_seconds: Annotated[float, Meta(gt=0)] = 86_400.0


SETTINGS = (
    Setting("data_dir", "Folder that holds the logs and their indexes"),
    Setting("project", "Project that is active at the start, made on first use; empty for none"),
    Setting("toolsets", "Toolsets to offer, separated by commas"),
    Setting("read_only", "Hide every tool that writes"),
    Setting(
        "if_exists",
        "What create_entities does with a name that exists: replace, merge, skip or error",
    ),
    Setting("strict_relations", "Refuse relations to entities that do not exist"),
    Setting(
        "secrets",
        "What to do with a text that looks like a credential: warn (store it and say so), reject, or off",
    ),
    Setting(
        "resource_links",
        "Link the records that memory_search and memory_list find; 0 for a client that fails at a resource_link",
    ),
    Setting("search_mode", "Default mode: hybrid, text or semantic"),
    Setting(
        "search_limit",
        "Results of memory_search and memory_list where the call gives no limit",
        also=("SEARCH_DEFAULT_LIMIT",),
    ),
    Setting(
        "search_limit_max",
        "The largest limit memory_search and memory_list take",
        also=("SEARCH_MAX_LIMIT",),
    ),
    Setting("similar_min", "Cosine from which store_memory offers a stored memory as similar"),
    Setting(
        "content_characters_max",
        "The longest content of a memory, in characters, those of its JSON where it is no text; a fact never has "
        "more than 10000",
        also=("MAX_CONTENT_LENGTH",),
    ),
    Setting("tags_max", "The most tags that one call gives a record", also=("MAX_TAGS_COUNT",)),
    Setting(
        "embedder",
        "What turns text into vectors: minilm (local), openai (any compatible endpoint), fastembed, or none",
    ),
    Setting(
        "embedder_model",
        "Model name for openai and fastembed; without one text-embedding-3-small and BAAI/bge-small-en-v1.5",
        also=("EMBEDDINGS_MODEL",),
    ),
    Setting(
        "embedder_url",
        "Base address of the endpoint for openai, ending before /embeddings (of Azure that of the deployment, with "
        "?api-version=...); without one that of OpenAI itself, https://api.openai.com/v1",
        also=("OPENAI_BASE_URL",),
    ),
    Setting("embedder_key", "Key for the endpoint", also=("OPENAI_API_KEY",), secret=True),
    Setting(
        "embedder_retries",
        "How often a failed call to the endpoint is repeated",
        also=("EMBEDDINGS_MAX_RETRIES",),
    ),
    Setting("model_dir", "Folder with model.safetensors and tokenizer.json of all-MiniLM-L6-v2"),
    Setting(
        "piece_vectors",
        "Keep the vectors of word pieces, by which hybrid search orders what it found; some 2 KB a text",
    ),
    Setting(
        "log_level",
        "How much the log tells: debug, info, warn or error, also as other loggers spell them; from LOG_LEVEL "
        "anything else is passed over",
        also=("LOG_LEVEL",),
        shared=True,
    ),
    Setting(
        "http_host",
        "Address to serve HTTP on; one that others can reach needs a token and allowed hosts",
    ),
    Setting("http_port", "Port of HTTP; 0 for any that is free"),
    Setting("http_path", "Path of MCP over HTTP; /p/NAME behind it is fixed to a project"),
    Setting(
        "http_stateless",
        "Keep no sessions for clients of protocols that have them, so that none switches the project",
    ),
    Setting(
        "allowed_hosts",
        "Host headers to answer to beside the loopback's, separated by commas; name:* for any port or none",
    ),
    Setting(
        "allowed_origins",
        "Origin headers of web pages to answer to beside the loopback's, separated by commas; :* for any port or none",
    ),
    Setting(
        "token", "A bearer token that may do everything, of at least 32 characters", secret=True
    ),
    Setting("tokens_file", "File of `memlog token`; by default tokens.json in the data directory"),
    Setting(
        "oauth_issuer",
        "Address of the OAuth authorization server whose access tokens (JWT) are taken",
    ),
    Setting(
        "oauth_resource",
        "Address under which clients reach the server, which their OAuth tokens are issued for",
    ),
    Setting(
        "oauth_audience",
        "What the OAuth tokens for this server, and no others, have in `aud` where it is not that address",
    ),
    Setting(
        "oauth_scope_prefix",
        "What clients have to put before each scope that they ask the authorization server for",
    ),
    Setting("tls_cert", "File with the certificate chain, for HTTPS"),
    Setting("tls_key", "File with the key of the certificate"),
    Setting("http_body_bytes_max", "The largest body of a request"),
    Setting("http_connections_max", "Connections open at a time"),
    Setting("http_requests_max", "Requests worked on at a time"),
    Setting(
        "http_requests_per_second",
        "Requests of one token a second; twice as many in a burst, a large body counts as several",
    ),
    Setting(
        "http_request_seconds",
        "Seconds until a request that is still worked on is answered with an error",
    ),
    Setting(
        "http_patience_seconds",
        "Seconds a client has to send a request, and to take each part of an answer",
    ),
    Setting("http_sessions_max", "Sessions open at a time"),
    Setting("http_session_seconds", "Seconds after which a session that nobody used ends"),
)

VARIABLES = tuple(variable for setting in SETTINGS for variable in setting.variables)
