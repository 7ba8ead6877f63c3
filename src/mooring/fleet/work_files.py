"""Workloads of manifests: Deployments, ReplicaSets, StatefulSets and Jobs as controllers.

What the pods of a work ask, with equal pods as one object.

Work as people have it: manifests, lines of JSON with times, or a recipe for random pods.

A line of JSON is an object with ``pod`` (a v1 Pod) or ``workload`` (a Deployment, StatefulSet or Job), ``at`` (seconds,
0 by default), and at will ``runs`` (seconds from a pod's admission to its end), ``leaves`` (when it is deleted), for a
pod ``owner`` (the controller that makes it anew when it fails) and ``count``. Pods and workloads of manifests all come
at the beginning, and their pods do not end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.fleet.cluster import ControllerKind, PodArrival, PodDemand, Work, Workload, asked_of, work_of
from mooring.fleet.event_files import recorded_arrivals, seconds_at
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.documents import load_documents, located
from mooring.inputs.pods.pod_files import PodOrigin, pods_with_origins, scaled_down_pods
from mooring.inputs.pods.pod_relations import NO_RELATIONS, pod_relations
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.scheduling_fields import scheduling_fields_of


class Kinds:
    """Pods that ask the same, as one object."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: dict[object, PodDemand] = {}
        self.ignored: set[str] = set()
        """Fields of pods that the simulation does not read."""

    def of(self, pod: Pod, content: Mapping[str, Any], owner: Mapping[str, Any] | None = None) -> PodDemand:
        """Return what a pod asks.

        Args:
            pod: the pod.
            content: the v1 Pod that it is read from.
            owner: selector of the controller by which the scheduler spreads its pods; None for other pods.

        Raises:
            InputError: a field that the scheduler reads is not valid.
        """
        spec = reading.mapping_at(content, "spec")
        fields, relations = scheduling_fields_of(content), pod_relations(content, owner)
        self.ignored.update(fields.ignored, relations.ignored, [_CLAIMS] if spec.get(_CLAIMS) else ())
        # The API server sets the number; manifests have the name of the class alone.
        if spec.get("priorityClassName") and spec.get("priority") is None:
            self.ignored.add("priorityClassName without priority")
        preempts = reading.text_at(spec, "preemptionPolicy") != "Never"
        found = asked_of(pod, fields, relations, preempts=preempts)
        return self._known.setdefault(found.key, found)

    def described(self, pod: Pod, origin: PodOrigin, owner: Mapping[str, Any] | None = None) -> PodDemand:
        """Return what a pod of a manifest asks.

        Raises:
            InputError: as :meth:`of`, with the place in the manifest.
        """
        with located(origin.document):
            try:
                return self.of(pod, origin.content, owner)
            except InputError as error:
                raise (reading.inside(error, origin.field) if origin.field else error) from None

    def unrelated(self) -> dict[int, PodDemand]:
        """Return the identity of each demand -> the one that replaces it where no pod asks anything of others.

        Labels and namespaces then decide nothing, and pods that differ in these alone are equal.
        """
        if any(one.relations.has_terms for one in self._known.values()):
            return {}
        bare: dict[object, PodDemand] = {}
        return {
            id(one): bare.setdefault(plain.key, plain)
            for one in self._known.values()
            for plain in (replace(one, relations=NO_RELATIONS),)
        }

    def findings(self) -> list[str]:
        """Return what was not read."""
        return [f"pods have {name}, {_ASSUMED.get(name, 'which is not simulated')}" for name in sorted(self.ignored)]


_CLAIMS: Final = "resourceClaims"
_ASSUMED: Final = {_CLAIMS: "which are assumed to take no CPU (MOOR-549)"}
"""Field that is read otherwise -> how."""


_KINDS: Final = {
    "Deployment": ControllerKind.DEPLOYMENT,
    "ReplicaSet": ControllerKind.DEPLOYMENT,
    "ReplicationController": ControllerKind.DEPLOYMENT,
    "StatefulSet": ControllerKind.STATEFUL_SET,
    "Job": ControllerKind.JOB,
}
_BACKOFF_LIMIT: Final = 6
"""The API server's default."""


def is_workload(content: object) -> bool:
    """Tell whether an object is a controller that is simulated as one."""
    return isinstance(content, dict) and content.get("kind") in _KINDS


def workload_of(
    document: reading.Document,
    kinds: Kinds,
    report: Callable[[Finding], object],
    at: float = 0.0,
    runs: float | None = None,
    *,
    scaled_down: bool = False,
) -> Workload | None:
    """Return the controller of a document; None where it wants no pod.

    Args:
        document: of one object.
        kinds: what pods ask, once for all.
        report: receives what was left out.
        at: when it is created, in seconds.
        runs: seconds from the admission of a pod to its end.
        scaled_down: whether it is returned even if it wants no pod.

    Raises:
        InputError: it is not valid.
    """
    pods = pods_with_origins([document], report=report)
    wanted = len(pods)
    if scaled_down and not pods:
        pods = scaled_down_pods([document])
    if not pods:
        return None
    content: Mapping[str, Any] = document.content  # type: ignore[assignment]
    spec, kind = reading.mapping_at(content, "spec"), _KINDS[reading.text_at(content, "kind")]
    pod, origin = pods[0]
    name = f"{pod.namespace}/{reading.text_at(reading.mapping_at(origin.content, 'metadata'), 'name')}"
    # By this selector the scheduler spreads the pods of a controller.
    owner = None if kind is ControllerKind.JOB else reading.mapping_at(spec, "selector")
    if content["kind"] == "ReplicationController":
        owner = {"matchLabels": owner}
    asked = kinds.described(pod, origin, owner)
    if kind is not ControllerKind.JOB:
        ordered = kind is ControllerKind.STATEFUL_SET and reading.text_at(spec, "podManagementPolicy") != "Parallel"
        ordinals = reading.mapping_at(spec, "ordinals") if kind is ControllerKind.STATEFUL_SET else {}
        first = reading.count_at(ordinals, "start", 0, least=0)
        return Workload(name, kind, asked, at, wanted, ordered=ordered, first=first, runs=runs)
    with reading.within("spec"):
        parallelism = reading.count_at(spec, "parallelism", 1, least=0)
        completions = reading.count_at(spec, "completions", parallelism, least=0)
        limit = reading.count_at(spec, "backoffLimit", _BACKOFF_LIMIT, least=0)
    return Workload(name, kind, asked, at, completions, parallelism, limit, runs=runs)


GENERATED: Final = "GeneratedWork"
MOST_PODS: Final = 1_000_000
"""Pods of one work; a simulation keeps about a kilobyte of each."""
_LINE_FIELDS: Final = ("pod", "workload", "at", "runs", "leaves", "owner", "count")


def load_work(
    paths: Sequence[str], seed: int = 0, *, traces: Sequence[str] = (), stay: bool = False, scaled_down: bool = False
) -> Work:
    """Read work from files; all of them together are one.

    Args:
        paths: of the files.
        traces: recordings of nodes.
        seed: of random pods.
        stay: whether pods do not end.
        scaled_down: whether workloads of manifests that are scaled to 0 are read, too.

    Raises:
        InputError: a file cannot be read or understood, or has no pod.
    """
    kinds, found, findings = Kinds(), list[PodArrival | Workload](), list[str]()
    for path in paths:
        if path.endswith(".jsonl"):
            _gather(found, _of_lines(path, kinds), path)
        else:
            draw = random.Random(seed)  # noqa: S311 - repeatable
            _gather(found, _of_documents(load_documents(path), kinds, findings, draw, scaled_down=scaled_down), path)
    for path in traces:
        _gather(found, recorded_arrivals(path, kinds, findings), path)
    name = ", ".join((*paths, *traces))
    if not found:
        raise InputError("there is no pod in it", source=name, remedy="give manifests or a trace")
    if stay:
        found = [replace(one, runs=None, leaves=None) for one in found]
        findings.append("pods stay where they are: their ends are left out")
    if unrelated := kinds.unrelated():
        found = [replace(one, asked=unrelated.get(id(one.asked), one.asked)) for one in found]
    arrivals = [one for one in found if isinstance(one, PodArrival)]
    workloads = [one for one in found if isinstance(one, Workload)]
    return work_of(name, arrivals, [*findings, *kinds.findings()], workloads)


def _gather(found: list[PodArrival | Workload], more: Iterable[PodArrival | Workload], path: str) -> None:
    """Add pods and workloads to those of the files before.

    Raises:
        InputError: they are more than a simulation can keep.
    """
    count = len(found)
    for one in more:
        count += one.pods if isinstance(one, Workload) else 1
        if count > MOST_PODS:
            raise InputError(f"more than {MOST_PODS} pods", source=path, remedy="split the work")
        found.append(one)


def _of_lines(path: str, kinds: Kinds) -> Iterator[PodArrival | Workload]:
    known: dict[bytes, PodDemand] = {}
    try:
        # Line by line: a file may be larger than memory.
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                with reading.within(source=f"{path}:{number}"):
                    yield from _of_line(line, number, kinds, known)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", source=path) from None


def _of_line(line: str, number: int, kinds: Kinds, known: dict[bytes, PodDemand]) -> Iterator[PodArrival | Workload]:
    try:
        content = reading.as_mapping(msgspec.json.decode(line))
    except msgspec.MsgspecError as error:
        raise InputError(f"is not JSON: {error}", remedy="write one object a line") from None
    reading.check_names(content, _LINE_FIELDS)
    times = {field: seconds_at(content, field) for field in ("at", "runs", "leaves")}
    if content.get("workload") is not None:
        yield from _of_workload(content, times, number, kinds)
        return
    described = reading.mapping_at(content, "pod")
    metadata = reading.mapping_at(described, "metadata")
    name, owner = reading.text_at(metadata, "name") or f"line-{number}", reading.text_at(content, "owner")
    place = f"{reading.text_at(metadata, 'namespace') or 'default'}/{name}"
    # Replicas are read once: name and uid decide nothing.
    parts = described.get("spec"), metadata.get("annotations"), metadata.get("labels"), metadata.get("namespace")
    key = msgspec.json.encode(parts)
    if key not in known:
        named = {**described, "metadata": {**metadata, "name": name}}
        with reading.within("pod"):
            known[key] = kinds.of(pod_from_object(named, source=""), described)
    count = _few(content, 1)
    for index in range(count):
        own = place if count == 1 else f"{place}-{index}"
        yield PodArrival(own, known[key], times["at"] or 0.0, times["runs"], times["leaves"], owner)


def _few(content: Mapping[str, Any], default: int) -> int:
    count = reading.count_at(content, "count", default, least=0)
    if count > MOST_PODS:
        raise InputError(f"more than {MOST_PODS} pods", field="count", remedy="split the work")
    return count


def _of_workload(
    content: Mapping[str, Any], times: Mapping[str, float | None], number: int, kinds: Kinds
) -> Iterator[Workload]:
    described = reading.mapping_at(content, "workload")
    if not is_workload(described):
        kind = reading.text_at(described, "kind")
        raise InputError(f"{kind!r:.40} is not simulated", field="workload.kind", remedy="write Deployment or Job")
    try:
        document = reading.Document(described, f"line {number}", 1, 1)
        found = workload_of(document, kinds, lambda _: None, times["at"] or 0.0, times["runs"])
    except InputError as error:
        raise InputError(error.problem, field=f"workload.{error.field}", remedy=error.remedy) from None
    if found is not None:
        yield replace(found, leaves=times["leaves"])


def _of_documents(
    documents: Sequence[reading.Document], kinds: Kinds, findings: list[str], draw: random.Random, *, scaled_down: bool
) -> Iterator[PodArrival | Workload]:
    noticed: list[Finding] = []
    manifests = []
    for document in chain.from_iterable(map(_flattened, documents)):
        content = document.content
        if isinstance(content, dict) and content.get("kind") == GENERATED:
            with located(document):
                yield from _generated(content, kinds, draw)
        elif is_workload(content):
            if (found := workload_of(document, kinds, noticed.append, scaled_down=scaled_down)) is not None:
                yield found
        else:
            manifests.append(document)
    for pod, origin in pods_with_origins(manifests, report=noticed.append):
        named = reading.text_at(reading.mapping_at(origin.content, "metadata"), "name")
        owner = "" if named == pod.name else f"{pod.namespace}/{named}"
        yield PodArrival(f"{pod.namespace}/{pod.name}", kinds.described(pod, origin), 0.0, owner=owner)
    for pod, origin in scaled_down_pods(manifests) if scaled_down else ():
        yield Workload(f"{pod.namespace}/{pod.name}", ControllerKind.DEPLOYMENT, kinds.described(pod, origin), 0.0, 0)
    findings += [f"{one.subject}: {one.message}" for one in noticed]


def _flattened(document: reading.Document) -> list[reading.Document]:
    """Return the items of a list that has controllers, and any other document as it is."""
    content = document.content
    items = content.get("items") if isinstance(content, dict) and content.get("kind") == "List" else None
    if not isinstance(items, list) or not any(is_workload(one) for one in items):
        return [document]
    return [replace(document, content=one) for one in items]


def _generated(content: Mapping[str, Any], kinds: Kinds, draw: random.Random) -> Iterator[PodArrival]:
    """Draw pods: Poisson arrivals, exponential lifetimes, shapes by weight."""
    reading.check_names(
        content, ("apiVersion", "kind", "metadata", "count", "perHour", "meanLifetime", "burst", "shapes")
    )
    shapes = [reading.as_mapping(one) for one in reading.list_at(content, "shapes")]
    if not shapes:
        raise InputError("must not be empty", field="shapes", remedy="list pods with their weights")
    asked, weights, owners = [], [], []
    for index, shape in enumerate(shapes):
        with reading.within(f"shapes[{index}]"):
            reading.check_names(shape, ("weight", "pod", "owner"))
            described = reading.mapping_at(shape, "pod")
            named = {**described, "metadata": {"name": f"shape-{index}", **reading.mapping_at(described, "metadata")}}
            asked.append(kinds.of(pod_from_object(named, source=""), described))
            weights.append(reading.count_at(shape, "weight", 1, least=0))
            owners.append(reading.text_at(shape, "owner"))
    if not any(weights):
        raise InputError("all weights are 0", field="shapes", remedy="give at least one shape a weight of 1 or more")
    per_second = reading.count_at(content, "perHour", 60, least=0) / 3600
    mean, burst = seconds_at(content, "meanLifetime"), reading.count_at(content, "burst", 1, least=1)
    now, name = 0.0, reading.text_at(reading.mapping_at(content, "metadata"), "name") or "generated"
    for number in range(_few(content, 100)):
        if number % burst == 0:
            now += draw.expovariate(per_second / burst) if per_second else 0.0
        chosen = draw.choices(range(len(asked)), weights)[0]
        runs = draw.expovariate(1 / mean) if mean else mean
        yield PodArrival(f"default/{name}-{number}", asked[chosen], now, runs, owner=owners[chosen])
