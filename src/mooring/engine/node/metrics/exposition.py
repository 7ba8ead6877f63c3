"""Metrics in the text format of Prometheus.

Source: the exposition format 0.0.4; names and meanings are those of kubelet v1.37.1 (docs/reference/metrics.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.node.metrics.metrics import Metrics, samples
from mooring.engine.node.metrics.names import METRICS, SCALE_DOWN_METRICS, MetricType
from mooring.engine.releases.metrics import metric_name

_SUFFIXES = ("_bucket", "_sum", "_count")


def exposition(metrics: Metrics) -> str:
    """Return all samples, each metric under its help and its type, with the names of the kubelet's release.

    A histogram without observations is left out: the planner has no clock, and zeros would look like measurements.

    >>> from mooring.engine.core.config import KubeletConfig
    >>> from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
    >>> from mooring.engine.node import Node
    >>> info = MachineInfo(1, 1, 2**30, (NUMANode(0, 2**30, cores=(Core(0, (0,), 0),)),))
    >>> node = Node.fresh(info, KubeletConfig())
    >>> text = exposition(Metrics.initial(node.settings, node.cpu))
    >>> [line for line in text.splitlines() if "pinning_errors" in line and "cpu" in line][1:]
    ['# TYPE kubelet_cpu_manager_pinning_errors_total counter', 'kubelet_cpu_manager_pinning_errors_total 0']
    """
    return "\n".join(_lines(metrics)) + "\n"


def _lines(metrics: Metrics) -> Iterator[str]:
    known = {metric.name: metric for metric in (*METRICS, *SCALE_DOWN_METRICS)}
    told = ""
    for name, labels, value in samples(metrics):
        metric = known.get(name) or known[_base(name)]
        own = metric_name(metric.name, metrics.settings.release.name)
        if not own or (metric.type is MetricType.HISTOGRAM and not _is_observed(metrics, metric.name)):
            continue
        if metric.name != told:
            told = metric.name
            yield f"# HELP {own} {metric.help}"
            yield f"# TYPE {own} {_type_name(metric.type)}"
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        sample = own + name.removeprefix(metric.name)
        yield f"{sample}{{{inside}}} {value}" if inside else f"{sample} {value}"


def _is_observed(metrics: Metrics, metric: str) -> bool:
    return any(sum(histogram.counts) for (name, _), histogram in metrics.histograms.items() if name == metric)


def _base(name: str) -> str:
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _type_name(kind: MetricType) -> str:
    return kind.name.lower()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
