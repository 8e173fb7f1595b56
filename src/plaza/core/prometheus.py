"""Prometheus' client without its HTTP servers, which Plaza does not use: that saves 20 modules at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plaza.core.submodules import import_submodule

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, values
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.mmap_dict import MmapedDict
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.samples import Sample
else:
    _metrics = import_submodule("prometheus_client.metrics")
    Counter, Gauge, Histogram = _metrics.Counter, _metrics.Gauge, _metrics.Histogram
    Metric, MetricWrapperBase = _metrics.Metric, _metrics.MetricWrapperBase
    CollectorRegistry = import_submodule("prometheus_client.registry").CollectorRegistry
    ProcessCollector = import_submodule("prometheus_client.process_collector").ProcessCollector
    MmapedDict = import_submodule("prometheus_client.mmap_dict").MmapedDict
    MultiProcessCollector = import_submodule("prometheus_client.multiprocess").MultiProcessCollector
    Sample = import_submodule("prometheus_client.samples").Sample
    values = import_submodule("prometheus_client.values")

__all__ = [
    "CollectorRegistry",
    "Counter",
    "Gauge",
    "Histogram",
    "Metric",
    "MetricWrapperBase",
    "MmapedDict",
    "MultiProcessCollector",
    "ProcessCollector",
    "Sample",
    "generate_latest",
    "values",
]


def generate_latest(registry: CollectorRegistry) -> bytes:
    """Return the metrics of a registry in the Prometheus text format."""
    from prometheus_client.exposition import generate_latest as generate  # with the HTTP servers

    return generate(registry)
