"""What Prometheus reads at /metrics: calls as they happen, positions when it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from server.http.progress import progress
from server.service import Service

BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one server; `called` and `answered` may be called from any thread."""

    def __init__(self, service: Service, sessions: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "memlog_calls", "Calls of tools", ("tool", "outcome"), registry=self._registry
        )
        self._seconds = Histogram(
            "memlog_call_seconds",
            "How long calls of tools took",
            ("tool",),
            buckets=BUCKETS_SECONDS,
            registry=self._registry,
        )
        self._answers = Counter(
            "memlog_http_answers", "Answers over HTTP", ("status",), registry=self._registry
        )
        self._registry.register(_Positions(service, sessions))

    def called(self, tool: str, outcome: str, seconds: float) -> None:
        self._calls.labels(tool, outcome).inc()
        self._seconds.labels(tool).observe(seconds)

    def answered(self, status: int) -> None:
        self._answers.labels(str(status)).inc()

    def page(self) -> bytes:
        return generate_latest(self._registry)


class _Positions(Collector):
    """Read at the moment of asking."""

    def __init__(self, service: Service, sessions: Callable[[], int]) -> None:
        self._service = service
        self._sessions = sessions

    def collect(self) -> Iterator[Metric]:
        head = GaugeMetricFamily(
            "memlog_log_head", "Position of the last event", labels=("project",)
        )
        lag = GaugeMetricFamily(
            "memlog_projection_lag",
            "Events that a projection has not seen yet",
            labels=("project", "projection"),
        )
        pending = GaugeMetricFamily(
            "memlog_embeddings_pending",
            "Events whose texts are not embedded yet",
            labels=("project",),
        )
        reports = list(progress(self._service))
        for each in reports:
            head.add_metric([each.project], each.head)
            pending.add_metric([each.project], each.behind("vectors"))
            for projection in each.positions:
                lag.add_metric([each.project, projection], each.behind(projection))
        yield head
        yield lag
        yield pending
        yield GaugeMetricFamily("memlog_open_projects", "Projects in use", value=len(reports))
        yield GaugeMetricFamily("memlog_open_sessions", "Sessions", value=self._sessions())
