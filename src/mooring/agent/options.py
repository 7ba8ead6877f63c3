"""The agent's own document: sockets, folders, and what to do in doubt.

Policies of the managers are no part of it: those are fields of a KubeletConfiguration, so that one file serves a
kubelet and the agent alike (:mod:`mooring.agent.configuration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Final

from msgspec import Struct
from msgspec import field as named
from msgspec.structs import replace

from mooring.agent.option_checks import (
    folder_at,
    node_name_at,
    opt_out_annotation_at,
    path_at,
    plugin_index_at,
    refuse_same,
    release_at,
    runtime_socket_at,
    socket_at,
    span_at,
    state_folder_at,
)
from mooring.agent.reactor.values import AssignedScope, Options
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST, Release
from mooring.inputs.decoding.fields import choice_at
from mooring.service.configuration import given_values, names_of, option, read_options
from mooring.service.options import AGENT_CONFIGURATION, Address, LogFormat, LogLevel, address_at

KIND = AGENT_CONFIGURATION

STATUS_SOCKET = "/run/mooring/status.sock"
"""Default path of the agent's status socket, where ``mooring status`` asks too."""


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


def _irq_affinity_at(content: Mapping[str, Any], field: str) -> IRQAffinity:
    """Return the choice. YAML reads ``on`` and ``off`` without quotes as true and false."""
    written = content.get(field)
    if isinstance(written, bool):
        return IRQAffinity.ON if written else IRQAffinity.OFF
    return choice_at(content, field, IRQAffinity.OFF)


class AgentOptions(Struct, frozen=True, rename="camel"):
    """The document's fields; an empty text switches its part off."""

    state_dir: Annotated[
        str, option("folder of state files and journal; no other program writes there", state_folder_at)
    ] = "/var/lib/mooring"
    nri_socket: Annotated[str, option("the runtime's socket for plugins", runtime_socket_at)] = "/var/run/nri/nri.sock"
    plugin_index: Annotated[str, option("two digits; the runtime asks its plugins in this order", plugin_index_at)] = (
        "50"
    )
    kubelet_config: Annotated[
        str, option("file of the node's kubelet, from which reservations and the rest come", path_at)
    ] = ""
    kubelet_version: Annotated[
        Release, option("release of the kubelet as which the engine decides, such as 1.34", release_at)
    ] = NEWEST
    node_name: Annotated[str, option("name of the node in the cluster; empty for the computer's", node_name_at)] = ""
    kubeconfig: Annotated[str, option("how to reach the API server", path_at)] = ""
    pod_manifests: Annotated[str, option("folder of static pods", path_at)] = ""
    on_rejection: Annotated[OnRejection, option("what becomes of a pod that the engine rejects")] = OnRejection.HOLD
    opt_out_annotation: Annotated[
        str, option("annotation by which a pod keeps out of pinning; empty: no pod may", opt_out_annotation_at)
    ] = ""
    place_while_unwritable: Annotated[
        bool, option("whether pods get exclusive CPUs while the state folder cannot be written")
    ] = True
    fail_closed: Annotated[bool, option("whether the node is tainted while the agent is not ready")] = False
    reply_budget_ns: Annotated[int, option("nanoseconds within which the runtime gets a reply", span_at)] = named(
        default=500 * 10**6, name="replyBudget"
    )
    metrics_address: Annotated[Address | None, option("address of metrics and health; None: none", address_at)] = (
        Address("127.0.0.1", 9477)
    )
    per_container_metrics: Annotated[
        bool, option("whether containers with exclusive CPUs have series of their own")
    ] = False
    assigned: Annotated[
        AssignedScope, option("which containers get files with their CPUs, with the extension assigned-cpuset")
    ] = AssignedScope.ANNOTATED
    assigned_dir: Annotated[str, option("folder of those files", folder_at)] = "/run/mooring/assigned"
    assigned_mount_path: Annotated[str, option("where a container finds its files", folder_at)] = (
        "/run/mooring-assigned"
    )
    status_socket: Annotated[str, option("where the agent reports its status", socket_at)] = STATUS_SOCKET
    pod_resources_socket: Annotated[str, option("where the agent serves the PodResources API", socket_at)] = (
        "/run/mooring/pod-resources.sock"
    )
    claims_socket: Annotated[
        str, option("where a driver of dynamic resource allocation requests CPUs; empty: no claims", socket_at)
    ] = ""
    irq_affinity: Annotated[
        IRQAffinity, option("whether interrupts are moved, with the extension irq-affinity", _irq_affinity_at)
    ] = IRQAffinity.DRY_RUN
    kubelet_pod_resources: Annotated[
        str,
        option(
            "where the kubelet tells the devices of pods; asked for their interrupts, and with device-alignment",
            socket_at,
        ),
    ] = named(default="/var/lib/kubelet/pod-resources/kubelet.sock", name="kubeletPodResourcesSocket")
    publish: Annotated[bool, option("whether the agent publishes what the node has allocated and what is free")] = False
    online_cpus_interval_ns: Annotated[
        int, option("nanoseconds between two checks of the online CPUs, with the extension cpu-hotplug", span_at)
    ] = named(default=10**9, name="onlineCPUsInterval")
    log_format: Annotated[LogFormat, option("form of a line in the log")] = LogFormat.JSON
    log_level: Annotated[LogLevel, option("the least important lines that are written")] = LogLevel.INFO


FIELDS: Final = names_of(AgentOptions)
"""Field of the document -> field of :class:`AgentOptions`."""


def choices_of(options: AgentOptions) -> Options:
    """Return what of the options the reactor decides by."""
    return Options(
        evict=options.on_rejection is OnRejection.EVICT,
        opt_out_annotation=options.opt_out_annotation,
        place_while_unwritable=options.place_while_unwritable,
        telling=options.assigned,
        assigned_dir=options.assigned_dir,
        assigned_mount_path=options.assigned_mount_path,
    )


def agent_options(content: Mapping[str, Any], *, source: str) -> AgentOptions:
    """Return what the document says.

    Raises:
        InputError: another version, an unknown field, or a value that cannot be used.

    >>> agent_options({"onRejection": "evict", "replyBudget": "1s"}, source="example").reply_budget_ns
    1000000000
    >>> agent_options({"replyBudgt": "1s"}, source="agent.yaml")
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: agent.yaml: replyBudgt: is not known; did you mean replyBudget?
    """
    try:
        found = read_options(content, AgentOptions)
        refuse_same(_sockets(found))
    except InputError as error:
        raise error.at(source) from None
    return found


def overridden(options: AgentOptions, *, state_dir: str = "", nri_socket: str = "") -> AgentOptions:
    """Return the options with those of the command line in place of the document's; empty texts replace nothing.

    Raises:
        InputError: as :func:`agent_options`.
    """
    typed = {"stateDir": state_dir or None, "nriSocket": nri_socket or None}
    try:
        new = replace(options, **given_values(typed, AgentOptions))
        refuse_same(_sockets(new))
    except InputError as error:
        raise error.at("the command line") from None
    return new


def _sockets(options: AgentOptions) -> dict[str, str]:
    return {name: getattr(options, attribute) for name, attribute in FIELDS.items() if name.endswith("Socket")}
