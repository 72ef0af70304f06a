"""The tools, one module a toolset. Importing this package declares them all."""

from server.tools import (
    analytics,
    facts,
    graph,
    history,
    knowledge,
    projects,
    reading,
    recalling,
    records,
)

__all__ = [
    "analytics",
    "facts",
    "graph",
    "history",
    "knowledge",
    "projects",
    "reading",
    "recalling",
    "records",
]
