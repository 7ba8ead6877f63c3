"""What the API server's admission adds to a new pod: defaults of LimitRanges, and what webhooks inject.

Webhooks run elsewhere: what marks a pod for them is known, what they add is not. ``--inject`` gives it. LimitRanges
complete injected containers too, because the API server asks its own plugins again after a webhook (reinvocation).
Pods that the API server has stored already have all of it.

Source: API server v1.37.1; documentation of the injectors, Multus (k8snetworkplumbingwg, net-attach-def specification
v1.3) and the network resources injector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.inputs.decoding.documents import NotJSONError, read_json
from mooring.inputs.decoding.fields import Document, part_at
from mooring.inputs.pods import cluster_objects
from mooring.inputs.pods.claims import objects_of
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_fields import with_allocated
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.workloads import PodObject, pod_objects
from mooring.lazy import dataclass, field

LIMITED: Final = "MOOR-541"
INJECTED: Final = "MOOR-542"
NETWORK: Final = "NetworkAttachmentDefinition"
READ: Final = frozenset({cluster_objects.LIMIT_RANGE, NETWORK})
"""Kinds without pods that admission reads; Namespaces, too, but only their labels and annotations."""
_NETWORKS: Final = ("k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network")
_RESOURCE: Final = "k8s.v1.cni.cncf.io/resourceName"
_NO: Final = frozenset({"", "0", "disabled", "false", "n", "no", "off"})


class Injector(NamedTuple):
    """A webhook that adds containers to pods with a label or an annotation."""

    vendor: str
    key: str
    """Of the label or annotation; ``*`` matches anything. Any value marks the pod, but for those that say no."""
    adds: tuple[str, ...]
    """Names of the containers; a pod with one of them has been injected already."""
    of_namespace: bool = False
    """Whether the namespace can have the key, for all its pods; pods in the host's network are then left out."""


INJECTORS: Final = (
    Injector("Istio", "sidecar.istio.io/inject", ("istio-proxy",), of_namespace=True),
    Injector("Istio", "istio-injection", ("istio-proxy",), of_namespace=True),
    Injector("Istio", "istio.io/rev", ("istio-proxy",), of_namespace=True),
    Injector("Linkerd", "linkerd.io/inject", ("linkerd-proxy",), of_namespace=True),
    Injector("Kuma", "kuma.io/sidecar-injection", ("kuma-sidecar",), of_namespace=True),
    Injector("Open Service Mesh", "openservicemesh.io/sidecar-injection", ("envoy",), of_namespace=True),
    Injector("AWS App Mesh", "appmesh.k8s.aws/sidecarInjectorWebhook", ("envoy",), of_namespace=True),
    Injector("NGINX Service Mesh", "injector.nsm.nginx.com/auto-inject", ("nginx-mesh-sidecar",), of_namespace=True),
    Injector("Consul", "consul.hashicorp.com/connect-inject", ("consul-dataplane", "envoy-sidecar")),
    Injector("Dapr", "dapr.io/enabled", ("daprd",)),
    Injector("Vault Agent", "vault.hashicorp.com/agent-inject", ("vault-agent", "vault-agent-init")),
    Injector("Datadog", "agent.datadoghq.com/sidecar", ("datadog-agent-injected",)),
    Injector("Datadog", "admission.datadoghq.com/*-lib.version", ("datadog-init-apm-inject",)),
    Injector("OpenTelemetry", "sidecar.opentelemetry.io/inject", ("otc-container",), of_namespace=True),
    Injector(
        "OpenTelemetry", "instrumentation.opentelemetry.io/inject-*", ("opentelemetry-auto-instrumentation",),
        of_namespace=True,
    ),
    Injector("Jaeger", "sidecar.jaegertracing.io/inject", ("jaeger-agent",), of_namespace=True),
    Injector("GKE Cloud Storage FUSE", "gke-gcsfuse/volumes", ("gke-gcsfuse-sidecar",)),
    Injector("Azure Workload Identity", "azure.workload.identity/inject-proxy-sidecar", ("azwi-proxy",)),
)  # fmt: skip
"""A key of the vendor that says no, such as ``sidecar.istio.io/inject: "false"``, wins over its other keys."""


Fragment: TypeAlias = tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]
"""Containers of ``--inject``; then init containers and sidecars."""
NOTHING_INJECTED: Final[Fragment] = ((), ())


def fragment_of(documents: Iterable[Document]) -> Fragment:
    """Return the containers of documents: each a container, a list of them, a pod, its spec, or a workload.

    Raises:
        InputError: a document has none, or one cannot be understood.
    """
    apps: list[Mapping[str, Any]] = []
    inits: list[Mapping[str, Any]] = []
    for document in documents:
        found = list(_containers(document.content))
        if not found:
            remedy = "give a container (name, resources), a list of containers, or a pod template"
            raise InputError("has no container", source=document.source, field="--inject", remedy=remedy)
        own = [one for init, one in found if init], [one for init, one in found if not init]
        spec = {"initContainers": own[0], "containers": own[1] or [{"name": "app"}]}
        pod_from_object({"metadata": {"name": "inject"}, "spec": spec}, source=document.source)
        inits += own[0]
        apps += own[1]
    return tuple(apps), tuple(inits)


def _containers(content: Any, *, init: bool = False) -> Iterator[tuple[bool, Mapping[str, Any]]]:
    """Yield containers of a document, each with whether it is an init container or a sidecar."""
    if isinstance(content, list):
        for item in content:
            yield from _containers(item, init=init)
    elif isinstance(content, dict) and isinstance(content.get("kind"), str):
        for found in pod_objects(content):
            if isinstance(found, PodObject):
                yield from _containers(found.content["spec"])
    elif isinstance(content, dict) and isinstance(content.get("name"), str):
        yield init or content.get("restartPolicy") == "Always", content
    elif isinstance(content, dict):
        yield from _containers(content.get("initContainers"), init=True)
        yield from _containers(content.get("containers"))
        for part in ("template", "spec"):
            yield from _containers(content.get(part))


@dataclass(slots=True)
class APIServerAdmission:
    """What admission does to the pods of some documents; what it did is noted for :meth:`findings`."""

    limits: Mapping[str, Sequence[cluster_objects.LimitRange]]
    """By namespace."""
    namespaces: Mapping[str, Mapping[str, str]]
    """Name -> labels and annotations."""
    networks: Mapping[tuple[str, str], str]
    """Namespace and name -> resource; empty where the network names none."""
    fragment: Fragment
    noted: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    """Severity, code and message -> pods."""

    @staticmethod
    def of(documents: Sequence[Document], fragment: Fragment = NOTHING_INJECTED) -> APIServerAdmission:
        """Return what documents say of admission.

        Raises:
            InputError: a LimitRange cannot be understood.
        """
        namespaces: dict[str, Mapping[str, str]] = {}
        networks: dict[tuple[str, str], str] = {}
        for document in documents:
            for _, content in objects_of(document.content, {"Namespace", NETWORK}):
                name, namespace, keys = _metadata(content)
                if content["kind"] == NETWORK:
                    networks[namespace, name] = keys.get(_RESOURCE, "")
                else:
                    namespaces[name] = keys
        return APIServerAdmission(cluster_objects.limit_ranges(documents), namespaces, networks, fragment)

    def new_pod(self, found: PodObject, source: str, gates: PodGates) -> Pod:
        """Return a pod as the API server stores it, as far as that is known.

        Args:
            found: what describes it.
            source: where that is, for messages.
            gates: the feature gates under which the pod is created.

        Raises:
            InputError: the API server refuses it.
        """
        spec = found.content.get("spec")
        # A pod that comes from the API server has a status or a uid: admission has seen it.
        is_stored = found.content.get("status") or part_at(found.content, "metadata").get("uid")
        if not isinstance(spec, dict) or is_stored:
            return pod_from_object(with_allocated(found.content), source=source, gates=gates)
        spec = self._injected(spec, found)
        _, namespace, _ = _metadata(found.content)
        ranges, by = self.limits.get(namespace, ()), []
        for one in ranges:
            spec, said = cluster_objects.with_defaults(spec, one)
            if said:
                by.append(f"LimitRange {namespace}/{one.name}")
                self._note(found, "info", LIMITED, f"LimitRanger plugin set: {said} ({by[-1]})")
        try:
            pod = pod_from_object({**found.content, "spec": spec}, source=source, gates=gates)
        except InputError as error:
            if not by:
                raise
            remedy = "; ".join((*filter(None, [error.remedy]), f"amounts that the pod lacks come from {', '.join(by)}"))
            raise InputError(error.problem, source=error.source, field=error.field, remedy=remedy) from None
        cluster_objects.check_limits(pod, ranges)
        return pod

    def findings(self) -> Iterator[Finding]:
        """Yield what was noted, once for all pods alike."""
        for (severity, code, message), pods in self.noted.items():
            more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
            yield Finding(severity, f"{pods[0]}{more}", message, code)
        if self.fragment != NOTHING_INJECTED and not any(one[:2] == ("info", INJECTED) for one in self.noted):
            yield Finding("warning", "--inject", "has no effect: no new pod is marked for an injector", INJECTED)

    def _note(self, found: PodObject, severity: str, code: str, message: str) -> None:
        name, namespace, _ = _metadata(found.content)
        self.noted.setdefault((severity, code, message), []).append(f"{namespace}/{name}")

    def _injected(self, spec: dict[str, Any], found: PodObject) -> dict[str, Any]:
        """Return a pod's spec with the containers of ``--inject``, if the pod is marked."""
        # What is no list of containers, or no name, is reported where the pod is read.
        lists = (given if isinstance(given := spec.get(part), list) else [] for part in _PARTS)
        apps, inits = ([one for one in listed if isinstance(one, dict)] for listed in lists)
        has = {str(one.get("name")) for one in (*apps, *inits)}
        self._note_networks(apps, [*apps, *inits], found)
        marks = list(self._marks(found, spec, has))
        apps_added, inits_added = added = tuple(
            tuple(one for one in part if one["name"] not in has) for part in self.fragment
        )
        for vendor, key, adds in marks:
            if added == NOTHING_INJECTED:
                consequence = (
                    "a container whose requests do not equal its limits makes the pod Burstable, without exclusive "
                    "CPUs; give the container with --inject FILE"
                )
                self._note(found, "warning", INJECTED, f"{vendor} will add container {adds[0]} ({key}): {consequence}")
            else:
                names = ", ".join(str(one["name"]) for part in added for one in part)
                self._note(found, "info", INJECTED, f"{vendor} ({key}): counted with {names} of --inject")
        if not marks or added == NOTHING_INJECTED:
            return spec
        return {
            **spec,
            "containers": [*(spec.get("containers") or ()), *apps_added],
            "initContainers": [*inits_added, *(spec.get("initContainers") or ())],
        }

    def _marks(
        self, found: PodObject, spec: Mapping[str, Any], has: set[Any]
    ) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Yield vendor, key with value, and containers of the injectors that will change a pod."""
        _, namespace, own = _metadata(found.content)
        around = self.namespaces.get(namespace, {})
        marked: dict[str, tuple[str, tuple[str, ...]]] = {}
        refused = set()
        for one in INJECTORS:
            for keys, where in ((own, ""), (around, f" of namespace {namespace}")):
                if where and not (one.of_namespace and not spec.get("hostNetwork")):
                    continue
                for key, value in keys.items():
                    # A pod's own key is read instead of its namespace's.
                    if not fnmatchcase(key, one.key) or (where and key in own):
                        continue
                    if value.lower() in _NO:
                        refused.add(one.vendor)
                    elif has.isdisjoint(one.adds):
                        marked.setdefault(one.vendor, (f"{key}: {value}{where}", one.adds))
        yield from ((vendor, *mark) for vendor, mark in marked.items() if vendor not in refused)

    def _note_networks(
        self, apps: Sequence[Mapping[str, Any]], containers: Sequence[Mapping[str, Any]], found: PodObject
    ) -> None:
        """Note the resources that networks of a pod name and none of its containers requests."""
        _, namespace, keys = _metadata(found.content)
        wanted: Counter[str] = Counter()
        for name in (name for key in _NETWORKS for name in _network_names(keys.get(key, ""), namespace)):
            if name not in self.networks:
                message = (
                    f"network {'/'.join(name)}: its {NETWORK} is not given, so a resource that it names is not "
                    "counted; give it with -f"
                )
                self._note(found, "warning", INJECTED, message)
            elif self.networks[name]:
                wanted[self.networks[name]] += 1
        for resource, count in wanted.items():
            asked = [one["resources"] for one in containers if isinstance(one.get("resources"), dict)]
            if apps and not any(resource in (part.get(where) or ()) for part in asked for where in _AMOUNTS):
                message = (
                    f"its networks need {count} of {resource}, which the network resources injector adds to container "
                    f"{apps[0].get('name')}: write it into requests and limits, and it is counted"
                )
                self._note(found, "warning", INJECTED, message)


_PARTS: Final = ("containers", "initContainers")
_AMOUNTS: Final = ("requests", "limits")


def _metadata(content: Mapping[str, Any]) -> tuple[str, str, dict[str, str]]:
    """Return name, namespace, and labels with annotations; what is wrong there is reported where pods are read."""
    metadata = part_at(content, "metadata")
    texts = {**part_at(metadata, "labels"), **part_at(metadata, "annotations")}
    keys = {str(key): str(value) for key, value in texts.items()}
    name, namespace = (metadata.get(key) for key in ("name", "namespace"))
    return str(name or metadata.get("generateName") or ""), str(namespace or "default"), keys


def _network_names(text: str, namespace: str) -> list[tuple[str, str]]:
    """Return namespace and name of the networks of an annotation: ``[NAMESPACE/]NAME[@INTERFACE],...`` or JSON."""
    if text.lstrip().startswith(("[", "{")):
        try:
            values = [value.content for value in read_json(text, "")]
        except (InputError, NotJSONError):
            return []
        items = [item for value in values for item in (value if isinstance(value, list) else [value])]
        return [
            (str(one.get("namespace") or namespace), str(one.get("name"))) for one in items if isinstance(one, dict)
        ]
    parts = [part.strip().partition("@")[0] for part in text.split(",") if part.strip()]
    return [(part.rpartition("/")[0] or namespace, part.rpartition("/")[2]) for part in parts]
