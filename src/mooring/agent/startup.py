"""What an agent starts with: configuration, machine and node, read once; and the services that it starts.

Among them is the gRPC service for claims of dynamic resource allocation: a claim that is answered with CPUs is in the
journal already, and no other container runs on them.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mooring.agent.cgroups.files import find_layout
from mooring.agent.cgroups.protocol import CGroups, KernelCGroups, UnseenCGroups
from mooring.agent.conflicts import KubeletFinder
from mooring.agent.known_machine import known_machine
from mooring.agent.metrics import AgentMetrics, health_pages, status_pages
from mooring.agent.pods.cluster import AgentAccount, connector, own_accounts
from mooring.agent.reactor.create_container import prepare_claim, unprepare_claim
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import EventOutcome, Refused
from mooring.agent.state import Options, variables
from mooring.agent.state_holder import StateHolder
from mooring.agent.status import Published, Snapshot
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import CPU_HOTPLUG
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.owners import HeldClaim, claim_key, claim_of, claims_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.claims import Claim, Share, claimable
from mooring.inputs.decoding.fields import Report
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.lazy import lazily
from mooring.service import messages
from mooring.service.agent_configuration import AgentConfiguration, load_agent_configuration
from mooring.service.agent_options import AgentOptions, OnRejection, overridden
from mooring.service.daemon import Heartbeat
from mooring.service.grpc_socket import GRPCSocket, Method, Methods
from mooring.service.http import serve_tcp, serve_unix
from mooring.service.logs import Log
from mooring.service.podresources import serve_pod_resources

if TYPE_CHECKING:
    from mooring.published.publisher import PublisherThread

with lazily():
    from mooring.published import publisher


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """The agent's command line."""

    config: str
    """The agent's file."""
    state_dir: str = ""
    """In place of the file's ``stateDir``."""
    nri_socket: str = ""
    """In place of the file's ``nriSocket``."""
    machine: str = ""
    """A machine of tests and simulations; empty means this computer, whose control groups are managed."""


@dataclass(frozen=True, slots=True)
class Startup:
    """Everything that is known before the first connection."""

    configuration: AgentConfiguration
    load: Callable[[], AgentConfiguration]
    """Reads the configuration again."""
    machine: Machine
    cgroups: CGroups
    node: str
    """Name of the node in the cluster."""
    root: str = ""
    """Folder that stands for ``/`` where interrupts and online CPUs are managed; empty: nowhere."""
    beside: KubeletFinder | None = None
    """Finds this computer's kubelet; None on a machine that is not this computer."""


def read_startup(asked: AgentCommand) -> Startup:
    """Read configuration and machine.

    Raises:
        InputError: one of them cannot be used, or a kubelet of this node manages CPUs or memory itself.
    """
    beside = None if asked.machine else KubeletFinder()

    def load() -> AgentConfiguration:
        # At a boot the agent is there before the kubelet, so that its flags are asked for each time.
        flags = None if beside is None else beside.flags()
        configuration = load_agent_configuration(asked.config, flags)
        options = overridden(configuration.options, state_dir=asked.state_dir, nri_socket=asked.nri_socket)
        return replace(configuration, options=options)

    configuration = load()
    machine = load_machine(asked.machine)
    if machine.info_error:
        raise InputError(f"cannot be described: {machine.info_error}", source=machine.name)
    if not asked.machine:
        configuration, machine = with_known_cpus(configuration, machine)
    cgroups: CGroups = UnseenCGroups() if asked.machine else KernelCGroups(find_layout())
    flags = None if beside is None else beside.flags()
    name = configuration.options.node_name or (flags.node if flags is not None else "") or socket.gethostname().lower()
    return Startup(configuration, load, machine, cgroups, name, "" if asked.machine else "/", beside)


def resume_state(startup: Startup, stored: Stored, observer: Observer | None = None) -> EventOutcome:
    """Return the agent's state after a start, and the reports about what was kept of it.

    Args:
        startup: what the agent runs with.
        stored: what was read of the state folder.
        observer: receives the engine's facts.

    Raises:
        InputError: the engine does not start.
    """
    configuration = startup.configuration
    return resume(
        startup.machine.info,
        configuration.kubelet,
        configuration.mooring,
        stored,
        choices_of(configuration.options),
        observer,
        configuration.source,
    )


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


def with_known_cpus(configuration: AgentConfiguration, found: Machine) -> tuple[AgentConfiguration, Machine]:
    """Return the machine with its offline CPUs too, where CPU hotplug is on; what is odd becomes a finding."""
    if CPU_HOTPLUG not in configuration.mooring.extensions:
        return configuration, found
    known, problem = known_machine(Path(configuration.options.state_dir), found)
    if problem:
        odd = Finding("warning", "the machine's description", problem)
        configuration = replace(configuration, findings=(*configuration.findings, odd))
    return configuration, known


def serve(
    options: AgentOptions,
    provider: Published,
    holder: StateHolder,
    metrics: AgentMetrics,
    heartbeat: Heartbeat,
    opened: ExitStack,
    log: Log,
) -> tuple[str, int] | None:
    """Serve status, metrics, health, PodResources and claims; return the address of metrics, None without one.

    Args:
        options: of the agent.
        provider: has the newest snapshot.
        holder: has the state.
        metrics: of the agent.
        heartbeat: of the agent's main thread.
        opened: closes the servers at the end.
        log: of the agent.

    Raises:
        InputError: a socket or address cannot be used.
    """
    address: tuple[str, int] | None = None
    if options.status_socket:
        opened.callback(serve_unix(options.status_socket, status_pages(provider, metrics.counts)).close)
    if options.metrics_address is not None:
        pages = {**health_pages(provider, heartbeat), "/metrics": metrics.page}
        server = serve_tcp(options.metrics_address, pages)
        opened.callback(server.close)
        address = server.address
    if options.pod_resources_socket:
        served = serve_pod_resources(options.pod_resources_socket, lambda: provider.snapshot().state.kubelet.node, log)
        opened.callback(served.close)
    if options.claims_socket:
        opened.callback(serve_claims(options.claims_socket, provider, holder, log).close)
    return address


def start_publisher(
    startup: Startup,
    provider: Published,
    report: Report,
    offered: Callable[[], Mapping[str, tuple[Device, ...]]] | None = None,
) -> PublisherThread:
    """Start the publisher beside the agent.

    Args:
        startup: what the agent runs with.
        provider: has the newest snapshot.
        report: receives outages.
        offered: returns the devices of the node, by resource and driver; None where they are not known.

    Raises:
        InputError: there is no kubeconfig, or it cannot be used.
    """
    path = startup.configuration.options.kubeconfig
    if not path:
        raise InputError("needs the API server", field="publish", remedy="write kubeconfig, or publish: false")
    last: tuple[Kubelet, Mapping[str, tuple[Device, ...]], Kubelet] | None = None

    def kubelet() -> Kubelet:
        nonlocal last
        now = provider.snapshot().state.kubelet
        if offered is None:
            return now
        devices = offered()
        if last is None or last[0] is not now or last[1] != devices:
            last = now, devices, now.with_devices(now.node.providers.devices.offering(devices))
        return last[2]

    connect = own_accounts(path).get(AgentAccount.PUBLISH) or connector(path)
    return publisher.PublisherThread(kubelet, connect, startup.node, report)


MOST_SHARES: Final = 64
"""Shares of one claim; the API server allows 32 devices."""
NOT_READY: Final = "NotReady: the container runtime has not reported the running containers yet"
_NAME = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.-]{0,252}[0-9A-Za-z])?", re.ASCII)
_REQUEST = re.compile(rf"{_NAME.pattern}(/{_NAME.pattern})?", re.ASCII)


def serve_claims(path: str, provider: Published, holder: StateHolder, log: Log) -> GRPCSocket:
    """Serve Prepare, Unprepare and Node on a Unix socket until that is closed.

    Args:
        path: of the socket.
        provider: knows the node.
        holder: has the state.
        log: of the agent.

    Raises:
        InputError: there can be no such socket.
    """

    def prepare(request: messages.PrepareRequestMessage) -> messages.PrepareResponseMessage:
        if not provider.snapshot().runtime.synchronized:
            return messages.PrepareResponseMessage(reason=NOT_READY)
        try:
            asked, pods = claim_asked(request)
        except InputError as error:
            return messages.PrepareResponseMessage(reason=f"InvalidClaim: {error}")
        key = claim_key(asked.uid)
        outcome = holder.apply(lambda state, observer: prepare_claim(state, asked, pods, observer), key)
        held = claim_of(outcome.state.kubelet.node.cpu, asked.uid)
        if isinstance(outcome.answer, Refused) or held is None:
            reason = outcome.answer.text if isinstance(outcome.answer, Refused) else NOT_READY
            return messages.PrepareResponseMessage(reason=reason)
        return messages.PrepareResponseMessage(shares=_shares(held))

    def unprepare(request: messages.UnprepareRequestMessage) -> messages.UnprepareResponseMessage:
        answer = holder.apply(lambda state, observer: unprepare_claim(state, request.uid, observer)).answer
        return messages.UnprepareResponseMessage(reason=answer.text if isinstance(answer, Refused) else "")

    methods: Methods = {
        "Prepare": Method(messages.PrepareRequestMessage, prepare),
        "Unprepare": Method(messages.UnprepareRequestMessage, unprepare),
        "Node": Method(messages.NodeRequestMessage, lambda _request: node_message(provider.snapshot())),
    }
    return GRPCSocket(path, messages.CLAIMS_SERVICE, methods, log)


def claim_asked(request: messages.PrepareRequestMessage) -> tuple[Claim, frozenset[str]]:
    """Return the claim of a request, and the uids of its pods.

    Raises:
        InputError: a name that is none, a list that is none, or nothing asked for.
    """
    for field, text in (("uid", request.uid), ("namespace", request.namespace), ("name", request.name)):
        _check(text, _NAME, field)
    shares: dict[tuple[str, str], Share] = {}
    for one in request.shares:
        _check(one.request, _REQUEST, "request")
        _check(one.device, _NAME, "device")
        if one.count < 1:
            raise InputError("requests no CPU", field="count")
        share = Share(
            one.request,
            one.device,
            one.count,
            CPUMask(_mask(one.within, "within")),
            CPUMask(_mask(one.wished, "wished")),
            one.numa_nodes,
        )
        if (share.device, share.request) in shares:
            raise InputError("is there twice for one request", field=f"device {share.device}")
        shares[share.device, share.request] = share
    if not 0 < len(shares) <= MOST_SHARES:
        raise InputError(f"are {len(shares)}", field="shares", remedy=f"request 1 to {MOST_SHARES}")
    return Claim(request.uid, request.namespace, request.name, tuple(shares.values())), frozenset(request.pods)


def node_message(snapshot: Snapshot) -> messages.NodeResponseMessage:
    """Return what a driver has to know of the node."""
    message = messages.NodeResponseMessage(node=snapshot.node, synchronized=snapshot.runtime.synchronized)
    message.machine = msgspec.json.encode(
        machine_info_document(snapshot.machine.info, info_error=snapshot.machine.info_error)
    )
    state = snapshot.state
    node = state.kubelet.node
    policy = node.settings.cpu
    if policy is not None:
        message.static = True
        message.group_size, message.whole_cores = policy.group_size, policy.rules.whole_cores
        message.reserved = list_text(policy.reserved)
        message.claimable = list_text(claimable(node))
        message.shared = list_text(node.cpu.default)
    for claim in claims_of(node.cpu).values():
        message.claims.add(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            shares=_shares(claim),
            pods=sorted(state.claim_users.get(claim.uid, ())),
        )
    return message


def _shares(claim: HeldClaim) -> list[messages.HeldShareMessage]:
    return [
        messages.HeldShareMessage(request=request, device=device, cpus=list_text(cpus), variable=variable)
        for ((device, request), cpus), variable in zip(claim.shares.items(), variables(claim), strict=True)
    ]


def _check(text: str, pattern: re.Pattern[str], field: str) -> None:
    if not pattern.fullmatch(text):
        raise InputError(f"{text!r:.60} is not a name", field=field)


def _mask(text: str, field: str) -> int:
    try:
        return CPUSet.parse(text).mask
    except CPUSetSyntaxError:
        raise InputError(f"{text!r:.60} is not a CPU list", field=field) from None
