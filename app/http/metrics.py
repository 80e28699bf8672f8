"""What the API process counts, for Prometheus: requests by route template, streams, uploads, and its dependencies.

Streams are counted by a gauge and left out of the durations, which would otherwise be theirs.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class Metrics:
    """One registry an application, so that several in one process (tests) do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.requests = Counter(
            "seatrial_http_requests_total",
            "Requests by route template, method and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "seatrial_http_request_seconds",
            "Time to the end of the answer, streams left out.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.problems = Counter(
            "seatrial_http_problems_total", "Problems by their code.", ("code",), registry=self.registry
        )
        self.streams = Gauge("seatrial_http_streams", "Open server-sent event streams.", registry=self.registry)
        self.dropped = Counter(
            "seatrial_http_followers_dropped_total",
            "Followers that were too slow and were told to reconnect.",
            registry=self.registry,
        )
        self.hub_position = Gauge(
            "seatrial_http_hub_position", "Position of the last event handed to followers.", registry=self.registry
        )
        self.up = Gauge(
            "seatrial_dependency_up", "1 while the dependency can be reached.", ("dependency",), registry=self.registry
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
