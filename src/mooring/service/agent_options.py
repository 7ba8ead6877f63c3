"""The agent's own document: sockets, folders, and what to do in doubt; its fields are read and checked here.

Policies of the managers are no part of it: those are fields of a KubeletConfiguration, so that one file serves a
kubelet and the agent alike (:mod:`mooring.service.agent_configuration`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Final

from msgspec import Struct
from msgspec import field as named
from msgspec.structs import replace

from mooring.engine.core.config import AssignedScope
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.releases.catalog import LATEST_MINOR, minor_of, release_of
from mooring.inputs.decoding.fields import choice_at, text_at, within
from mooring.service.agent_status import STATUS_SOCKET
from mooring.service.options import (
    AGENT_CONFIGURATION,
    Address,
    LogFormat,
    LogLevel,
    address_at,
    duration_at,
    given_values,
    names_of,
    option,
    read_options,
)

ANNOTATION_PREFIX = "mooring/"
"""Annotations of pods that the agent keeps in memory begin with it."""

_ANNOTATION = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The part of an annotation's name after the slash (Kubernetes, Labels and Selectors, syntax of keys)."""
_NODE_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NODE = 253
_LONGEST_SOCKET = 107  # sun_path of Linux has 108 bytes, the last of them a zero
_SHORTEST_SPAN = 10 * 10**6
_LONGEST_SPAN = 60 * 10**9

_SYSTEM_FOLDERS = re.compile(
    r"/|/(dev/shm|etc|home|media|mnt|opt|root|run|srv|tmp|var)|/var/(cache|lib|log|mail|opt|run|spool|tmp)"
)
"""Folders of the Filesystem Hierarchy Standard that programs share: a folder of the agent may lie in one of them."""
_SYSTEM_TREES = re.compile(r"/(bin|boot|dev(?!/shm/)|lib|lib32|lib64|libx32|proc|sbin|sys|usr)(/.*)?")
"""Folders in which nothing of the agent may lie."""


def is_of_system(folder: str) -> bool:
    """Return whether a folder belongs to the operating system and cannot be the agent's own.

    Args:
        folder: an absolute path.

    >>> is_of_system("/"), is_of_system("/var/lib/"), is_of_system("/proc/1/cwd"), is_of_system("/var/lib/mooring")
    (True, True, True, False)
    """
    path = "/" + posixpath.normpath(folder).lstrip("/")
    return bool(_SYSTEM_FOLDERS.fullmatch(path) or _SYSTEM_TREES.fullmatch(path))


def path_at(content: Mapping[str, Any], field: str) -> str:
    """Return an absolute path; it may be empty.

    Raises:
        InputError: it is none.
    """
    path = text_at(content, field)
    if path and (not path.startswith("/") or "\0" in path):
        raise InputError(f"{path!r:.80} is not an absolute path", field=field, remedy="begin it with /")
    return path


def folder_at(content: Mapping[str, Any], field: str) -> str:
    """Return a folder that is the agent's alone: files of other programs in it would be removed.

    Raises:
        InputError: it is none, or not deep enough to be the agent's own.
    """
    path = _required(path_at(content, field), field).rstrip("/")
    if len(path.split("/")) < 3 or ".." in path.split("/"):
        raise InputError(f"{path or '/'!r:.80} is not deep enough", field=field, remedy="name a folder below another")
    return path


def state_folder_at(content: Mapping[str, Any], field: str) -> str:
    """Return the folder of the state.

    Raises:
        InputError: it is none, or the agent would write its files in a folder of the system.
    """
    path = _required(path_at(content, field), field)
    if is_of_system(path):
        remedy = "name a folder of the agent's own, such as /var/lib/mooring"
        raise InputError(f"{path!r:.80} is a folder of the system", field=field, remedy=remedy)
    return path


def socket_at(content: Mapping[str, Any], field: str) -> str:
    """Return the path of a socket; it may be empty.

    Raises:
        InputError: it is none, or too long for one.
    """
    path = path_at(content, field)
    if len(path.encode(errors="surrogateescape")) > _LONGEST_SOCKET:
        raise InputError(f"longer than the {_LONGEST_SOCKET} bytes that a socket's path can have", field=field)
    return path


def runtime_socket_at(content: Mapping[str, Any], field: str) -> str:
    """Return the path of the runtime's socket.

    Raises:
        InputError: as :func:`socket_at`, or it is empty.
    """
    return _required(socket_at(content, field), field)


def _required(path: str, field: str) -> str:
    if not path:
        raise InputError("must not be empty", field=field)
    return path


def span_at(content: Mapping[str, Any], field: str) -> int:
    """Return a time in nanoseconds.

    Raises:
        InputError: it is none, too short to be kept, or too long to be meant.
    """
    span = duration_at(content, field)
    if not _SHORTEST_SPAN <= span <= _LONGEST_SPAN:
        raise InputError("must be between 10ms and 1m", field=field)
    return span


def plugin_index_at(content: Mapping[str, Any], field: str) -> str:
    """Return an index of a plugin.

    Raises:
        InputError: it is none.
    """
    text = text_at(content, field)
    if not (len(text) == 2 and text.isascii() and text.isdigit()):
        raise InputError(f"{text!r:.40} is not an index", field=field, remedy='write two digits, such as "50"')
    return text


def opt_out_annotation_at(content: Mapping[str, Any], field: str) -> str:
    """Return the name of an annotation that a pod can have; it may be empty.

    Raises:
        InputError: no pod can have it, or the agent would not keep it.
    """
    text = text_at(content, field)
    if text and not (text.startswith(ANNOTATION_PREFIX) and _ANNOTATION.fullmatch(text[len(ANNOTATION_PREFIX) :])):
        remedy = f"write one that begins with {ANNOTATION_PREFIX}, such as {ANNOTATION_PREFIX}opt-out"
        raise InputError(f"{text!r:.60} is not an annotation of the agent", field=field, remedy=remedy)
    return text


def node_name_at(content: Mapping[str, Any], field: str) -> str:
    """Return the name of a node; it may be empty.

    Raises:
        InputError: no node of a cluster has such a name (RFC 1123, in lower case).

    >>> node_name_at({"nodeName": "node-7.example"}, "nodeName")
    'node-7.example'
    """
    text = text_at(content, field)
    if text and (len(text) > _LONGEST_NODE or not all(_NODE_LABEL.fullmatch(one) for one in text.split("."))):
        remedy = "write it as kubectl get nodes does: lower-case letters, digits, - and ."
        raise InputError(f"{text!r:.60} is not a node name", field=field, remedy=remedy)
    return text


def release_at(content: Mapping[str, Any], field: str) -> Release:
    """Return a kubelet release.

    Raises:
        InputError: it is none, or not one that Mooring knows.

    >>> release_at({"kubeletVersion": "v1.34.4"}, "kubeletVersion").name
    '1.34'
    """
    text = text_at(content, field)
    release, minor = release_of(text, field), minor_of(text)
    if minor is not None and minor > LATEST_MINOR:
        raise InputError(f"kubelet 1.{minor} is newer than all known releases", field=field, remedy=f"write {release}")
    return release


def refuse_same(paths: Mapping[str, str]) -> None:
    """Refuse one path for two sockets: the agent would listen where the runtime listens, and talk to itself.

    Args:
        paths: field -> path; empty ones are none.

    Raises:
        InputError: two are the same.
    """
    seen: dict[str, str] = {}
    for field, path in paths.items():
        if path and path in seen:
            raise InputError(f"is the path of {seen[path]} already", field=field, remedy="give each its own")
        seen[path] = field


KIND = AGENT_CONFIGURATION


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
    node_condition: Annotated[bool, option("whether a condition of the node tells if the agent is ready")] = False
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

    @property
    def marks_node(self) -> bool:
        """Whether the Node shows if the agent is ready, by a taint or a condition."""
        return self.fail_closed or self.node_condition


FIELDS: Final = names_of(AgentOptions)
"""Field of the document -> field of :class:`AgentOptions`."""


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
    with within(source=source):
        found = read_options(content, AgentOptions)
        refuse_same(_sockets(found))
    return found


def overridden(options: AgentOptions, *, state_dir: str = "", nri_socket: str = "") -> AgentOptions:
    """Return the options with those of the command line in place of the document's; empty texts replace nothing.

    Raises:
        InputError: as :func:`agent_options`.
    """
    typed = {"stateDir": state_dir or None, "nriSocket": nri_socket or None}
    with within(source="the command line"):
        new = replace(options, **given_values(typed, AgentOptions))
        refuse_same(_sockets(new))
    return new


def _sockets(options: AgentOptions) -> dict[str, str]:
    return {name: getattr(options, attribute) for name, attribute in FIELDS.items() if name.endswith("Socket")}
