"""The tools; each says to which toolset it belongs. Importing this package declares them all."""

from server.tools import (  # noqa: F401  (they are declared)
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
    recent,
    records,
    threads,
)
