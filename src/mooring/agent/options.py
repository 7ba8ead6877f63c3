"""The agent's own document: sockets, folders, and what to do in doubt.

Policies of the managers are no part of it: those are fields of a KubeletConfiguration, so that one file serves a
kubelet and the agent alike (:mod:`mooring.agent.configuration`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from mooring.agent.option_checks import node_name, opt_out_annotation, plugin_index, refuse_same, state_folder
from mooring.agent.reactor.values import AssignedScope, Options
from mooring.core.errors import InputError
from mooring.manifest.fields import choice_at, flag_at, inside, text_at
from mooring.manifest.quantities import nanoseconds
from mooring.service.options import AGENT_CONFIGURATION, Address, LogFormat, LogLevel, check_head, parse_address

KIND = AGENT_CONFIGURATION

STATUS_SOCKET = "/run/mooring/status.sock"
"""Where the agent tells its status unless it is told otherwise; ``mooring status`` asks there too."""

METRICS_ADDRESS = Address("127.0.0.1", 9477)
"""Where metrics and health are served by default."""

_LONGEST_SOCKET = 107  # sun_path of Linux has 108 bytes, the last of them a zero
_SHORTEST_SPAN = 10 * 10**6
_LONGEST_SPAN = 60 * 10**9


class OnRejection(Enum):
    """What becomes of a pod that the engine does not admit."""

    HOLD = "hold"
    """Its containers are refused until there is room; the kubelet tries again."""
    EVICT = "evict"
    """It is evicted through the API server, so that its controller tries another node."""


class IRQAffinity(Enum):
    """What the agent does about interrupts, with the extension irq-affinity."""

    OFF = "off"
    DRY_RUN = "dry-run"
    """It says what it would write."""
    ON = "on"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The document's fields; texts that are empty switch their part off."""

    state_dir: str = "/var/lib/mooring"
    """Folder of state files and journal; nobody else writes there."""
    nri_socket: str = "/var/run/nri/nri.sock"
    plugin_index: str = "50"
    """Two digits: the runtime asks its plugins in this order."""
    kubelet_config: str = ""
    """File of the node's kubelet, from which reservations and the rest come."""
    node_name: str = ""
    """Name of the node in the cluster; empty means the computer's."""
    kubeconfig: str = ""
    pod_manifests: str = ""
    """Folder of static pods."""
    on_rejection: OnRejection = OnRejection.HOLD
    opt_out_annotation: str = ""
    """Annotation by which a pod keeps out of pinning; empty means that no pod may."""
    place_while_unwritable: bool = True
    """Whether pods get CPUs of their own while the state folder cannot be written."""
    fail_closed: bool = False
    """Whether the node is tainted while the agent is not ready."""
    reply_budget_ns: int = 500 * 10**6
    """Nanoseconds within which the runtime is answered."""
    metrics_address: Address | None = METRICS_ADDRESS
    per_container_metrics: bool = False
    telling: AssignedScope = AssignedScope.ANNOTATED
    """Which containers are told their CPUs, with the extension assigned-cpuset."""
    assigned_dir: str = "/run/mooring/assigned"
    """Folder of the files that tell them."""
    assigned_mount_path: str = "/run/mooring-assigned"
    """Where a container finds its own."""
    status_socket: str = STATUS_SOCKET
    pod_resources_socket: str = "/run/mooring/pod-resources.sock"
    claims_socket: str = ""
    """Where a driver of dynamic resource allocation asks for CPUs; empty means that there are no claims."""
    irq_affinity: IRQAffinity = IRQAffinity.DRY_RUN
    """Whether interrupts are moved, with the extension irq-affinity."""
    kubelet_pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """Where the kubelet tells which devices pods hold; asked only for pods that want their interrupts."""
    publish: bool = False
    """Whether the cluster is told what the node has given away and what is left."""
    online_cpus_interval_ns: int = 10**9
    """Nanoseconds between two looks at the CPUs that are online, with the extension cpu-hotplug."""
    log_format: LogFormat = LogFormat.JSON
    log_level: LogLevel = LogLevel.INFO


def choices_of(options: AgentOptions) -> Options:
    """Return what of the options the reactor decides by."""
    return Options(
        evict=options.on_rejection is OnRejection.EVICT,
        opt_out_annotation=options.opt_out_annotation,
        place_while_unwritable=options.place_while_unwritable,
        telling=options.telling,
        assigned_dir=options.assigned_dir,
        assigned_mount_path=options.assigned_mount_path,
    )


FIELDS: Mapping[str, str] = {
    "stateDir": "state_dir",
    "nriSocket": "nri_socket",
    "pluginIndex": "plugin_index",
    "kubeletConfig": "kubelet_config",
    "nodeName": "node_name",
    "kubeconfig": "kubeconfig",
    "podManifests": "pod_manifests",
    "onRejection": "on_rejection",
    "optOutAnnotation": "opt_out_annotation",
    "placeWhileUnwritable": "place_while_unwritable",
    "failClosed": "fail_closed",
    "replyBudget": "reply_budget_ns",
    "metricsAddress": "metrics_address",
    "perContainerMetrics": "per_container_metrics",
    "assigned": "telling",
    "assignedDir": "assigned_dir",
    "assignedMountPath": "assigned_mount_path",
    "statusSocket": "status_socket",
    "podResourcesSocket": "pod_resources_socket",
    "claimsSocket": "claims_socket",
    "irqAffinity": "irq_affinity",
    "kubeletPodResourcesSocket": "kubelet_pod_resources",
    "publish": "publish",
    "onlineCPUsInterval": "online_cpus_interval_ns",
    "logFormat": "log_format",
    "logLevel": "log_level",
}
"""Field of the document -> field of :class:`AgentOptions`."""


def agent_options(content: Mapping[str, Any], *, source: str) -> AgentOptions:
    """Return what the document says.

    Raises:
        InputError: another version, an unknown field, or a value that cannot be meant.

    >>> agent_options({"onRejection": "evict", "replyBudget": "1s"}, source="example").reply_budget_ns
    1000000000
    >>> agent_options({"replyBudgt": "1s"}, source="agent.yaml")
    Traceback (most recent call last):
        ...
    mooring.core.errors.InputError: agent.yaml: replyBudgt: is not known; did you mean replyBudget?
    """
    try:
        check_head(content, FIELDS)
        found = _options(content)
        refuse_same(_sockets(found))
    except InputError as error:
        raise error.at(source) from None
    return found


def overridden(options: AgentOptions, *, state_dir: str = "", nri_socket: str = "") -> AgentOptions:
    """Return the options with what the command line says in place of the document's; empty texts say nothing.

    Raises:
        InputError: as :func:`agent_options`.
    """
    said = {name: text for name, text in (("stateDir", state_dir), ("nriSocket", nri_socket)) if text}
    try:
        given = _options(said)
        new = replace(options, **{FIELDS[name]: getattr(given, FIELDS[name]) for name in said})
        refuse_same(_sockets(new))
    except InputError as error:
        raise error.at("the command line") from None
    return new


def _sockets(options: AgentOptions) -> dict[str, str]:
    return {name: getattr(options, attribute) for name, attribute in FIELDS.items() if name.endswith("Socket")}


def _options(content: Mapping[str, Any]) -> AgentOptions:
    usual = AgentOptions()
    return AgentOptions(
        state_dir=state_folder(_path(content, "stateDir", usual.state_dir, required=True)),
        nri_socket=_socket(content, "nriSocket", usual.nri_socket, required=True),
        plugin_index=plugin_index(text_at(content, "pluginIndex", usual.plugin_index)),
        kubelet_config=_path(content, "kubeletConfig", usual.kubelet_config),
        node_name=node_name(text_at(content, "nodeName", usual.node_name)),
        kubeconfig=_path(content, "kubeconfig", usual.kubeconfig),
        pod_manifests=_path(content, "podManifests", usual.pod_manifests),
        on_rejection=choice_at(content, "onRejection", usual.on_rejection),
        opt_out_annotation=opt_out_annotation(text_at(content, "optOutAnnotation")),
        place_while_unwritable=flag_at(content, "placeWhileUnwritable", default=usual.place_while_unwritable),
        fail_closed=flag_at(content, "failClosed", default=usual.fail_closed),
        reply_budget_ns=_span(content, "replyBudget", usual.reply_budget_ns),
        metrics_address=parse_address(text_at(content, "metricsAddress", str(METRICS_ADDRESS)), field="metricsAddress"),
        per_container_metrics=flag_at(content, "perContainerMetrics", default=usual.per_container_metrics),
        telling=choice_at(content, "assigned", usual.telling),
        assigned_dir=_folder(content, "assignedDir", usual.assigned_dir),
        assigned_mount_path=_folder(content, "assignedMountPath", usual.assigned_mount_path),
        status_socket=_socket(content, "statusSocket", usual.status_socket),
        pod_resources_socket=_socket(content, "podResourcesSocket", usual.pod_resources_socket),
        claims_socket=_socket(content, "claimsSocket", usual.claims_socket),
        irq_affinity=_irq_affinity(content, usual.irq_affinity),
        kubelet_pod_resources=_socket(content, "kubeletPodResourcesSocket", usual.kubelet_pod_resources),
        publish=flag_at(content, "publish", default=usual.publish),
        online_cpus_interval_ns=_span(content, "onlineCPUsInterval", usual.online_cpus_interval_ns),
        log_format=choice_at(content, "logFormat", usual.log_format),
        log_level=choice_at(content, "logLevel", usual.log_level),
    )


def _path(content: Mapping[str, Any], field: str, default: str, *, required: bool = False) -> str:
    path = text_at(content, field, default)
    if required and not path:
        raise InputError("must not be empty", field=field)
    if path and (not path.startswith("/") or "\0" in path):
        raise InputError(f"{path!r:.80} is no absolute path", field=field, remedy="begin it with /")
    return path


def _folder(content: Mapping[str, Any], field: str, default: str) -> str:
    """Return a folder that is the agent's alone; files of others in it would be removed."""
    path = _path(content, field, default, required=True).rstrip("/")
    if len(path.split("/")) < 3 or ".." in path.split("/"):
        raise InputError(f"{path or '/'!r:.80} is not deep enough", field=field, remedy="name a folder below another")
    return path


def _socket(content: Mapping[str, Any], field: str, default: str, *, required: bool = False) -> str:
    path = _path(content, field, default, required=required)
    if len(path.encode(errors="surrogateescape")) > _LONGEST_SOCKET:
        raise InputError(f"longer than the {_LONGEST_SOCKET} bytes that a socket's path can have", field=field)
    return path


def _span(content: Mapping[str, Any], field: str, default: int) -> int:
    """Return a time in nanoseconds that is neither too short to be kept nor too long to be meant."""
    if content.get(field) is None:
        return default
    span = _within(field, nanoseconds, text_at(content, field))
    if not _SHORTEST_SPAN <= span <= _LONGEST_SPAN:
        raise InputError("must lie between 10ms and 1m", field=field)
    return span


def _irq_affinity(content: Mapping[str, Any], default: IRQAffinity) -> IRQAffinity:
    """Return the choice. YAML takes ``on`` and ``off`` without quotes for true and false."""
    written = content.get("irqAffinity")
    if isinstance(written, bool):
        return IRQAffinity.ON if written else IRQAffinity.OFF
    return choice_at(content, "irqAffinity", default)


_Read = TypeVar("_Read")


def _within(field: str, read: Callable[[str], _Read], text: str) -> _Read:
    try:
        return read(text)
    except InputError as error:
        raise inside(error, field) from None
