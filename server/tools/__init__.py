"""The tools, one module a toolset. Importing this package declares them all."""

from server.tools import facts, graph, knowledge, projects, reading, records

__all__ = ["facts", "graph", "knowledge", "projects", "reading", "records"]
