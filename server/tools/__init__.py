"""The tools, one module a toolset. Importing this package declares them all."""

from server.tools import (
    analytics,
    facts,
    graph,
    history,
    knowledge,
    observing,
    opening,
    projects,
    querying,
    reading,
    recalling,
    records,
    threads,
)

__all__ = [
    "analytics",
    "facts",
    "graph",
    "history",
    "knowledge",
    "observing",
    "opening",
    "projects",
    "querying",
    "reading",
    "recalling",
    "records",
    "threads",
]
