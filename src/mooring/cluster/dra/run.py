"""The driver as a process: it starts unless the kubelet owns the CPUs, reconciles every second, and stops.

The sockets that the kubelet uses: registration, and the interface of a driver.

The kubelet finds the registration socket in its folder of plugins, asks there for the driver's name, and calls the
other one.

Source: kubelet v1.37.1, pkg/kubelet/cm/dra/plugin. Measured order of the calls: GetInfo, NotifyRegistrationStatus,
NodePrepareResources at a pod's start, NodeUnprepareResources after its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

import msgspec

from mooring.cluster.dra.cdi import CDISpecs
from mooring.cluster.dra.devices import Grouping, SlicePublisher
from mooring.cluster.dra.driver import Driver, Reconciler
from mooring.cluster.dra.health import (
    HEALTH_SERVICES,
    DeviceHealth,
    DriverMetrics,
    Health,
    NodeWatchResourcesRequestMessage,
)
from mooring.cluster.dra.objects import AgentNode, ClaimObjects, ClaimsClient, ClaimsError
from mooring.engine.core.errors import InputError, MooringError
from mooring.engine.core.machine import Hardware
from mooring.service import messages
from mooring.service.apiserver import cluster_of, configuration_of
from mooring.service.daemon import stop_signals
from mooring.service.grpc_socket import CallLimits, Method, Methods, serve_at_once
from mooring.service.http import serve_tcp
from mooring.service.logs import LAST_LINES, Log, open_log
from mooring.service.options import Address, LogFormat, LogLevel

_LIMITS: Final = CallLimits(threads=8, waiting=64, grace=2.0)
"""The kubelet repeats a call that is refused because too many are under way. Each report of health takes a thread."""


class Plugin:
    """Serves both sockets until it is closed."""

    def __init__(
        self, driver: Driver, plugin_folder: Path, registry: Path, metrics: DriverMetrics, devices: DeviceHealth
    ) -> None:
        """Begin to serve; the registration socket comes last, when everything behind it is there.

        Args:
            driver: answers.
            plugin_folder: of this driver's own socket.
            registry: the kubelet's folder of registration sockets.
            metrics: count claims.
            devices: reports their health.

        Raises:
            InputError: there can be no such socket.
        """
        self._driver, self._log, self._metrics = driver, driver.log, metrics
        self.registered = Event()
        """Set when the kubelet has taken the driver."""
        self._endpoint = str(plugin_folder / "dra.sock")
        with ExitStack() as opened:
            watch = Method(NodeWatchResourcesRequestMessage, devices.watch, is_stream=True)
            methods: Methods = {
                "NodePrepareResources": Method(messages.NodePrepareResourcesRequestMessage, self._prepare),
                "NodeUnprepareResources": Method(messages.NodeUnprepareResourcesRequestMessage, self._unprepare),
                **{f"{service}/NodeWatchResources": watch for service in HEALTH_SERVICES},
            }
            opened.callback(self._served(self._endpoint, messages.DRA_SERVICE, methods))
            opened.callback(devices.close)
            place = str(registry / f"{driver.name}-reg.sock")
            versions = [messages.DRA_VERSION, *HEALTH_SERVICES]
            info = messages.PluginInfoMessage(
                type="DRAPlugin", name=driver.name, endpoint=self._endpoint, supported_versions=versions
            )
            methods = {
                "GetInfo": Method(messages.InfoRequestMessage, lambda _: info),
                "NotifyRegistrationStatus": Method(messages.RegistrationStatusMessage, self._notified),
            }
            opened.callback(self._served(place, messages.REGISTRATION_SERVICE, methods))
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Stop serving and remove the sockets' names."""
        self._closing.close()

    def _served(self, path: str, service: str, methods: Methods) -> Callable[[], object]:
        return serve_at_once(path, service, methods, self._log, _LIMITS, "check --kubelet-root")

    def _notified(self, status: messages.RegistrationStatusMessage) -> messages.RegistrationStatusResponseMessage:
        if status.plugin_registered:
            self.registered.set()
            self._log.info("driver registered by the kubelet")
        else:
            self.registered.clear()
            self._log.error("driver rejected by the kubelet", problem=status.error)
        return messages.RegistrationStatusResponseMessage()

    def _prepare(
        self, request: messages.NodePrepareResourcesRequestMessage
    ) -> messages.NodePrepareResourcesResponseMessage:
        response = messages.NodePrepareResourcesResponseMessage()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            with self._step("prepare", claim, answer):
                answer.devices.extend(self._driver.prepare(claim))
        return response

    def _unprepare(
        self, request: messages.NodeUnprepareResourcesRequestMessage
    ) -> messages.NodeUnprepareResourcesResponseMessage:
        response = messages.NodeUnprepareResourcesResponseMessage()
        for claim in request.claims:
            with self._step("unprepare", claim, response.claims[claim.uid]):
                self._driver.unprepare(claim)
        return response

    @contextmanager
    def _step(self, step: str, claim: messages.ClaimMessage, answer: Any) -> Iterator[None]:
        """Count one of :data:`STEPS`; what it raises is the claim's error in the answer."""
        try:
            with self._metrics.counted(step):
                yield
        except MooringError as error:
            answer.error = str(error)
            self._log.warning(f"claim not {step}d", claim=f"{claim.namespace}/{claim.name}", why=str(error))


PERIOD: Final = 1.0
"""Seconds between two reconciliations."""


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """The command line."""

    agent: str
    kubeconfig: str
    """Empty for the service account of the pod in which the driver runs."""
    node_name: str
    """Empty for what the agent says."""
    name: str
    grouping: Grouping
    kubelet_root: Path
    kubelet_config: str
    cdi_root: Path
    hardware: Hardware | None
    sysfs: Path
    pcie_roots: Mapping[str, int]
    health: Address | None
    log_format: LogFormat
    log_level: LogLevel
    numa_node_list: bool
    whole: bool
    node_allocatable: bool
    immediate: bool


def run_driver(asked: DriverOptions) -> None:
    """Run the driver of this node until SIGTERM or SIGINT.

    Args:
        asked: the command line.

    Raises:
        InputError: the driver cannot begin: the kubelet owns the CPUs, no agent answers, or a socket cannot be made.
    """
    if asked.immediate and (asked.whole or asked.grouping.is_whole):
        problem = "allocates capacity, which devices that are given whole do not have"
        raise InputError(problem, source="--immediate", remedy="leave it out, or --whole")
    refuse_static_kubelet(asked.kubelet_root, asked.kubelet_config)
    open_config = partial(configuration_of, asked.kubeconfig or None)
    open_config()
    with ExitStack() as opened:
        agent = ClaimsClient(asked.agent)
        now = _first_node(agent, asked)
        # The kubelet waits for the driver, so the driver must not wait for a reader of its log.
        log, lines = open_log(asked.log_format, asked.log_level, name="mooring.cluster.dra")
        opened.callback(lines.finish, LAST_LINES)
        node = asked.node_name or now.node
        objects = ClaimObjects(lambda: cluster_of(open_config()))
        opened.callback(objects.close)
        publisher = SlicePublisher(
            asked.name,
            node,
            asked.grouping,
            objects,
            log,
            asked.hardware,
            asked.pcie_roots,
            asked.numa_node_list,
            asked.whole,
            asked.node_allocatable,
        )
        driver = Driver(agent, CDISpecs(asked.cdi_root, asked.name), publisher)
        device_health = DeviceHealth(node, asked.sysfs)
        reconciler = Reconciler(driver, device_health, immediate=asked.immediate)
        plugin_folder = asked.kubelet_root / "plugins" / asked.name
        health = Health()
        metrics = DriverMetrics(health.is_ready)
        registry = asked.kubelet_root / "plugins_registry"
        plugin = Plugin(driver, plugin_folder, registry, metrics, device_health)
        opened.callback(plugin.close)
        health.is_registered = plugin.registered.is_set
        if asked.health is not None:
            pages = {"/healthz": health.page, "/readyz": health.page, "/metrics": metrics.page}
            opened.callback(serve_tcp(asked.health, pages).close)
        log.info("driver started", driver=asked.name, node=node, group=asked.grouping.value)
        with stop_signals() as stop:
            _until(stop, reconciler, health, log)
        log.info("driver stopped")


def _first_node(agent: ClaimsClient, asked: DriverOptions) -> AgentNode:
    try:
        now = agent.node()
    except ClaimsError as error:
        raise InputError(str(error)) from None
    if not now.is_static:
        raise InputError(
            "the agent's CPU manager policy is none, so no CPU can be claimed",
            source=asked.agent,
            remedy="give the agent cpuManagerPolicy: static",
        )
    if asked.grouping is Grouping.CPU and now.room.whole_cores and now.room.group_size > 1:
        raise InputError(
            "single CPUs are not whole cores, which the agent's full-pcpus-only requires",
            source="--group cpu",
            remedy="use --group core",
        )
    return now


def _until(stop: threading.Event, reconciler: Reconciler, health: Health, log: Log) -> None:
    while True:
        try:
            reconciler.reconcile(time.monotonic())
            problem = ""
        except MooringError as error:
            problem = str(error)
        if problem and problem != health.problem:
            log.warning("reconciliation failed", problem=problem)
        health.problem = problem
        if stop.wait(PERIOD):
            return


_REMEDY = "let mooring agent place containers, and set the kubelet's cpuManagerPolicy to none"


def refuse_static_kubelet(kubelet_root: Path, configuration: str) -> None:
    """Refuse a node whose kubelet gives exclusive CPUs itself.

    Args:
        kubelet_root: the kubelet's root directory, with its state file.
        configuration: the kubelet's file; empty when it is not named.

    Raises:
        InputError: the kubelet's CPU manager has the policy static.
    """
    from mooring.inputs.configuration.node_configuration import load_config  # noqa: PLC0415 - YAML is only needed for it

    state = kubelet_root / "cpu_manager_state"
    if configuration and load_config(configuration).kubelet.cpu_manager_policy == "static":
        problem = "the kubelet gives CPUs to containers itself (cpuManagerPolicy: static), and two cannot own them"
        raise InputError(problem, source=configuration, remedy=_REMEDY)
    try:
        content = msgspec.json.decode(state.read_bytes())
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return
    if isinstance(content, dict) and content.get("policyName") == "static":
        problem = "the kubelet gives CPUs to containers itself (its policy is static), and two cannot own them"
        raise InputError(problem, source=str(state), remedy=_REMEDY)
