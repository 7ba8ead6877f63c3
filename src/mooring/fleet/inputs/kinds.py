"""What the pods of a work ask, with equal pods as one object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.fleet.scheduler.asked import PodDemand, asked_of
from mooring.inputs.decoding.documents import located
from mooring.inputs.decoding.fields import inside, mapping_at, text_at
from mooring.inputs.pods.pod_files import PodOrigin
from mooring.inputs.pods.pod_relations import NO_RELATIONS, pod_relations
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
        spec = mapping_at(content, "spec")
        fields, relations = scheduling_fields_of(content), pod_relations(content, owner)
        self.ignored.update(fields.ignored, relations.ignored, _not_read(spec))
        preempts = text_at(spec, "preemptionPolicy") != "Never"
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
                raise (inside(error, origin.field) if origin.field else error) from None

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
        return [f"pods have {name}, which is not simulated" for name in sorted(self.ignored)]


def _not_read(spec: Mapping[str, Any]) -> Iterator[str]:
    if spec.get("resourceClaims"):
        yield "resourceClaims"
    # The API server sets the number; manifests have the name of the class alone.
    if spec.get("priorityClassName") and spec.get("priority") is None:
        yield "priorityClassName without priority"
