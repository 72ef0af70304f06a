"""What the environment says to libraries, where it is meant for other programs: they would fail over it as they are
imported, or do what only others want."""

from __future__ import annotations

import os

_FOR_SEVERAL_PROCESSES = (
    "PROMETHEUS_MULTIPROC_DIR",  # where those of one program add up what they count
    "prometheus_multiproc_dir",
    "WEB_CONCURRENCY",
)
_NAMING = {
    "OTEL_PROPAGATORS": "opentelemetry_propagator",
    "OTEL_PYTHON_TRACER_PROVIDER": "opentelemetry_tracer_provider",
}
"""What OpenTelemetry looks for among the installed packages, and fails without: each with the group it is in there."""

_NO_PROPAGATOR = "none"


def forget_what_is_for_others() -> None:
    """Before the libraries are imported."""
    for variable in _FOR_SEVERAL_PROCESSES:
        os.environ.pop(variable, None)
    for variable, group in _NAMING.items():
        if variable in os.environ:
            from importlib.metadata import entry_points

            there = {*entry_points(group=group).names, _NO_PROPAGATOR}
            named = [name.strip() for name in os.environ.pop(variable).split(",")]
            if kept := [name for name in named if name in there]:
                os.environ[variable] = ",".join(kept)
