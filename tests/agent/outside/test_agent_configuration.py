"""The agent's file: what it may say, what comes from the kubelet's, and with which kubelet the agent does not run."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agent.outside.nodes import STATIC, busy, pod, snapshot_of, started
from tests.service.recorded_log import RecordedLog
from tests.values import cases

from mooring.agent.metrics import AgentMetrics
from mooring.agent.reactor.response import EventOutcome, Refused
from mooring.agent.reload import PERIOD, READ_WITH, RESTART, ConfigurationReloader, engine_refusal, restart_reasons
from mooring.agent.startup import choices_of
from mooring.agent.state import Options
from mooring.agent.status import Published
from mooring.documents.status import ConfigurationPart
from mooring.engine.core.config import AssignedScope, KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST
from mooring.inputs.configuration.kubelet_flags import kubelet_flags
from mooring.inputs.pods.defaults import PodGates
from mooring.service.agent_configuration import AgentConfiguration, load_agent_configuration
from mooring.service.agent_options import FIELDS, AgentOptions, IRQAffinity, OnRejection, agent_options, overridden
from mooring.service.daemon import notify, watchdog_seconds
from mooring.service.logs import set_level, start_log
from mooring.service.options import Address, LogFormat, LogLevel

FULL: dict[str, Any] = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "AgentConfiguration",
    "stateDir": "/srv/mooring",
    "nriSocket": "/run/nri.sock",
    "pluginIndex": "07",
    "kubeletConfig": "",
    "kubeletVersion": "v1.34.4",
    "nodeName": "edge-7",
    "kubeconfig": "/etc/kubeconfig",
    "podManifests": "/etc/manifests",
    "onRejection": "evict",
    "optOutAnnotation": "mooring/opt-out",
    "placeWhileUnwritable": False,
    "failClosed": True,
    "nodeCondition": True,
    "replyBudget": "1.5s",
    "metricsAddress": "[::1]:80",
    "perContainerMetrics": True,
    "assigned": "all",
    "assignedDir": "/run/other/assigned",
    "assignedMountPath": "/run/other-assigned",
    "statusSocket": "",
    "podResourcesSocket": "",
    "onlineCPUsInterval": "250ms",
    "claimsSocket": "/run/other/claims.sock",
    "irqAffinity": "on",
    "kubeletPodResourcesSocket": "/run/other/kubelet.sock",
    "publish": True,
    "logFormat": "console",
    "logLevel": "debug",
}
OWN = """
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: restricted
featureGates: {CPUManagerPolicyBetaOptions: true}
"""


def load(folder: Path, *texts: str, kubelet: str = "", **more: Any) -> AgentConfiguration:
    own = folder / "agent.yaml"
    if kubelet:
        (folder / "kubelet.yaml").write_text(kubelet, encoding="utf-8")
        texts += (json.dumps({"kind": "AgentConfiguration", "kubeletConfig": str(folder / "kubelet.yaml")}),)
    own.write_text("\n---\n".join(texts), encoding="utf-8")
    return load_agent_configuration(str(own), **more)


def complaint(folder: Path, *texts: str, **more: Any) -> str:
    with pytest.raises(InputError) as refused:
        load(folder, *texts, **more)
    text = str(refused.value)
    assert "\n" not in text
    return text.replace(str(folder), "DIR")


def test_every_field_is_read(tmp_path: Path) -> None:
    options = load(tmp_path, json.dumps(FULL)).options
    usual = AgentOptions()
    same = {name for name in FIELDS.values() if getattr(options, name) == getattr(usual, name)}
    assert same == {"kubelet_config"}
    assert options.reply_budget_ns == 1_500_000_000
    assert (options.metrics_address, str(options.metrics_address)) == (Address("::1", 80), "[::1]:80")
    assert options.on_rejection is OnRejection.EVICT
    assert options.log_level is LogLevel.DEBUG
    assert set(FIELDS) == set(FULL) - {"apiVersion", "kind"}
    assert choices_of(options) == Options(
        evict=True,
        opt_out_annotation="mooring/opt-out",
        place_while_unwritable=False,
        telling=AssignedScope.ALL,
        assigned_dir="/run/other/assigned",
        assigned_mount_path="/run/other-assigned",
    )


@pytest.mark.parametrize(("text", "choice"), [("on", "on"), ("off", "off"), ('"off"', "off"), ("dry-run", "dry-run")])
def test_words_that_yaml_takes_for_true_and_false_are_choices_too(text: str, choice: str, tmp_path: Path) -> None:
    found = load(tmp_path, f"kind: AgentConfiguration\nirqAffinity: {text}")
    assert found.options.irq_affinity is IRQAffinity(choice)


def test_what_is_not_said_has_its_default() -> None:
    assert agent_options({}, source="agent.yaml") == AgentOptions()
    assert agent_options(dict.fromkeys(FIELDS), source="agent.yaml") == AgentOptions()


@pytest.mark.parametrize(("field", "value", "says"), cases(__file__, "agent-mistakes.yaml", "field", "value", "says"))
def test_a_mistake_is_reported_in_one_line(field: str, value: object, says: str, tmp_path: Path) -> None:
    assert says in complaint(tmp_path, json.dumps({"kind": "AgentConfiguration", field: value}))


def test_a_mistake_names_its_line(tmp_path: Path) -> None:
    agents = "kind: AgentConfiguration\nstateDir: /srv/mooring\nonRejectoin: evict\n"
    says = "DIR/agent.yaml:10:1: onRejectoin: is not known; did you mean onRejection?"
    assert complaint(tmp_path, OWN, agents) == says
    says = "DIR/agent.yaml:6:1: maxPods: must be a whole number, not a string"
    assert complaint(tmp_path, f"{OWN}maxPods: many\n") == says
    says = "DIR/agent.yaml:9:28: fixedDefects[1]: 'numa-gaugee' is not known; did you mean numa-gauge?"
    assert complaint(tmp_path, OWN, "kind: MooringConfiguration\nfixedDefects: [numa-gauge, numa-gaugee]\n") == says


def test_policies_come_from_the_own_file_and_the_rest_from_the_kubelets(tmp_path: Path) -> None:
    of_kubelet = """
kind: KubeletConfiguration
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
topologyManagerPolicy: best-effort
topologyManagerScope: pod
reservedSystemCPUs: "0-1"
maxPods: 50
featureGates: {CPUManagerPolicyBetaOptions: false, CPUManagerPolicyAlphaOptions: true}
"""
    found = load(tmp_path, OWN, kubelet=of_kubelet)
    kubelet = found.kubelet
    assert (kubelet.cpu_manager_policy, kubelet.cpu_manager_policy_options) == ("static", {})
    assert (kubelet.topology_manager_policy, kubelet.topology_manager_scope) == ("restricted", "container")
    assert (kubelet.reserved_system_cpus, kubelet.max_pods) == ("0-1", 50)
    assert kubelet.feature_gates == {"CPUManagerPolicyBetaOptions": True, "CPUManagerPolicyAlphaOptions": True}
    assert found.files == (str(tmp_path / "agent.yaml"), str(tmp_path / "kubelet.yaml"))


def test_the_own_file_wins(tmp_path: Path) -> None:
    of_kubelet = "kind: KubeletConfiguration\nreservedSystemCPUs: '0'\nmaxPods: 50\n"
    kubelet = load(tmp_path, OWN + "reservedSystemCPUs: '0-3'\nmaxPods: null\n", kubelet=of_kubelet).kubelet
    assert (kubelet.reserved_system_cpus, kubelet.max_pods) == ("0-3", 50)


@pytest.mark.parametrize(
    ("field", "policy", "idle"), [("cpuManagerPolicy", "static", "none"), ("memoryManagerPolicy", "Static", "None")]
)
def test_a_kubelet_that_manages_itself_is_refused(field: str, policy: str, idle: str, tmp_path: Path) -> None:
    refused = complaint(tmp_path, OWN, kubelet=f"kind: KubeletConfiguration\n{field}: {policy}\n")
    assert refused == (
        f"DIR/kubelet.yaml: {field}: is {policy} on this node, so kubelet and agent would write the same cpusets; "
        f"set it to {idle} for the kubelet, drain the node and restart the kubelet; the policy belongs into the "
        "agent's file"
    )


def test_flags_of_the_running_kubelet_count_more_than_its_file(tmp_path: Path) -> None:
    static = "kind: KubeletConfiguration\ncpuManagerPolicy: static\nmaxPods: 50\n"
    flags = kubelet_flags(["--cpu-manager-policy=none", "--max-pods=70"])
    assert load(tmp_path, OWN, kubelet=static, flags=flags).kubelet.max_pods == 70
    flags = kubelet_flags(["--cpu-manager-policy=static"])
    refused = complaint(tmp_path, OWN, kubelet="kind: KubeletConfiguration\n", flags=flags)
    assert refused.startswith("the kubelet's command line: cpuManagerPolicy: is static on this node")


def test_drop_ins_of_the_running_kubelet_count_more_than_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "kubelet.conf.d"
    folder.mkdir()
    own = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    (folder / "10.conf").write_text(f"{own}cpuManagerPolicy: none\nmaxPods: 60\n")
    flags = kubelet_flags([f"--config-dir={folder}"])
    static = "kind: KubeletConfiguration\ncpuManagerPolicy: static\nmaxPods: 50\n"
    assert load(tmp_path, OWN, kubelet=static, flags=flags).kubelet.max_pods == 60
    (folder / "20.conf").write_text(f"{own}cpuManagerPolicy: static\n")
    refused = complaint(tmp_path, OWN, kubelet="kind: KubeletConfiguration\n", flags=flags)
    assert refused.startswith("DIR/kubelet.conf.d/20.conf: cpuManagerPolicy: is static on this node")


def test_the_file_of_the_running_kubelet_is_looked_at_though_nobody_named_it(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kind: KubeletConfiguration\nmemoryManagerPolicy: Static\nmaxPods: 7\n", encoding="utf-8")
    flags = kubelet_flags([f"--config={file}"])
    assert complaint(tmp_path, OWN, flags=flags).startswith(
        "DIR/config.yaml: memoryManagerPolicy: is Static on this node"
    )
    file.write_text("kind: KubeletConfiguration\nmaxPods: 7\n", encoding="utf-8")
    assert load(tmp_path, OWN, flags=flags).kubelet.max_pods == 110, "nothing is taken from a file that nobody named"
    file.unlink()
    assert load(tmp_path, OWN, flags=flags).kubelet.cpu_manager_policy == "static"


def test_defects_are_as_the_agent_needs_them_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    assert load(tmp_path, OWN).mooring.fixed_defects == {"pod-restart"}
    said = "kind: MooringConfiguration\n"
    assert load(tmp_path, OWN, said).mooring.fixed_defects == {"pod-restart"}
    assert load(tmp_path, OWN, said + "fixedDefects: []\n").mooring.fixed_defects == frozenset()
    assert load(tmp_path, OWN, said + "fixedDefects: [numa-gauge]\n").mooring.fixed_defects == {"numa-gauge"}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ((OWN, OWN), "DIR/agent.yaml:9: a second KubeletConfiguration; the first is in DIR/agent.yaml:2"),
        (("kind: Pod",), "'Pod' is not a configuration; write kind: AgentConfiguration, KubeletConfiguration or"),
        (("kind: NodeDevices\nresources: {}",), "NodeDevices is not for the agent; the kubelet has them"),
        (("- 1",), "a configuration must be a mapping, not a list"),
        (("kind: KubeletConfiguration\nmaxPods: many",), "maxPods: must be a whole number, not a string"),
    ],
)
def test_files_that_cannot_be_used_are_refused(texts: tuple[str, ...], says: str, tmp_path: Path) -> None:
    assert says in complaint(tmp_path, *texts)


@pytest.mark.parametrize("content", ["kind: Pod", "[]", "kind: KubeletConfiguration\n---\nkind: KubeletConfiguration"])
def test_another_file_than_the_kubelets_is_refused(content: str, tmp_path: Path) -> None:
    says = "DIR/kubelet.yaml: must hold one KubeletConfiguration and nothing else"
    assert complaint(tmp_path, OWN, kubelet=content).startswith(says)


def test_an_agent_without_a_policy_is_told_that_it_places_nothing(tmp_path: Path) -> None:
    (finding,) = load(tmp_path, "kind: AgentConfiguration").findings
    assert finding.message.endswith("so that the agent places nothing")
    assert load(tmp_path, OWN).findings == ()


def test_a_folder_is_no_file_of_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.yaml").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in (str(tmp_path), ""):
        with pytest.raises(InputError, match=r"must be a file: .*; name the agent's file with --config"):
            load_agent_configuration(name)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("failClosed: true", "names no kubeconfig: the node gets no taint, and pods are scheduled to it"),
        ("onRejection: evict", "names no kubeconfig: rejected pods are held back instead of evicted"),
    ],
)
def test_what_needs_an_api_server_and_has_none_is_a_warning(field: str, says: str, tmp_path: Path) -> None:
    agents = f"kind: AgentConfiguration\n{field}\n"
    (finding,) = load(tmp_path, OWN, agents).findings
    assert (finding.severity, finding.subject) == ("warning", field.partition(":")[0])
    assert says in finding.message
    assert load(tmp_path, OWN, f"{agents}kubeconfig: /etc/kubernetes/kubelet.conf\n").findings == ()


def test_the_command_line_is_judged_as_the_file_is() -> None:
    options = overridden(AgentOptions(), state_dir="/srv/state", nri_socket="/run/nri.sock")
    assert (options.state_dir, options.nri_socket) == ("/srv/state", "/run/nri.sock")
    assert overridden(options) == options
    with pytest.raises(InputError, match="the command line: nriSocket: longer than the 107 bytes"):
        overridden(options, nri_socket="/" + "s" * 107)
    with pytest.raises(InputError, match="the command line: statusSocket: is the path of nriSocket already"):
        overridden(options, nri_socket=options.status_socket)


def test_the_engine_decides_as_the_release_of_the_file_and_else_as_the_newest(tmp_path: Path) -> None:
    assert load(tmp_path, OWN).mooring.release == NEWEST
    own = "kind: AgentConfiguration\nkubeletVersion: v1.34.4\n"
    assert load(tmp_path, OWN, own).mooring.release.name == "1.34"


# A changed file is taken up whole, or the old configuration stays and somebody is told why.


KUBELET = "kind: KubeletConfiguration\ncpuManagerPolicy: static\n"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_time(self) -> None:
        self.now += PERIOD


class Watched:
    """A file and a watch over it."""

    def __init__(self, folder: Path) -> None:
        self.file, self.clock = folder / "agent.yaml", Clock()
        self.write("")
        self.shown: list[ConfigurationPart] = []
        self.asked = 0
        self.between = ""
        """What the state that has changed meanwhile is the reason for, not to take up what was accepted."""
        told = busy()
        state = told.state()

        def load() -> AgentConfiguration:
            return load_agent_configuration(str(self.file))

        def apply(_decide: object) -> EventOutcome:
            self.asked += 1
            return EventOutcome(state, Refused(self.between)) if self.between else EventOutcome(state)

        def show(configuration: ConfigurationPart) -> None:
            self.shown.append(configuration)

        published = Published(snapshot_of(told))
        holder = SimpleNamespace(state=state, apply=apply, show=show)
        beginning = SimpleNamespace(configuration=load(), load=load)
        metrics, log = AgentMetrics(published), RecordedLog()
        self.watch = ConfigurationReloader(beginning, holder, published, metrics, log, self.clock)  # type: ignore[arg-type]

    def write(self, options: str, kubelet: str = KUBELET) -> None:
        beside = self.file.with_name("new")
        beside.write_text(f"{kubelet}---\nkind: AgentConfiguration\n{options}", encoding="utf-8")
        beside.replace(self.file)

    def polled(self, times: int = 2) -> list[str]:
        """Return what came of so many looks: ``taken`` or the refusal."""
        self.shown.clear()
        for _ in range(times):
            self.clock.pass_time()
            self.watch.check()
        return [one.refusal or "taken" for one in self.shown]


def test_a_change_is_taken_up_when_it_has_come_to_rest(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.polled(3) == []
    watched.write("onRejection: evict")
    assert watched.polled(1) == [], "it may still be written"
    assert watched.polled(1) == ["taken"]
    assert watched.watch.options.on_rejection is OnRejection.EVICT
    assert watched.shown[-1].generation == 2
    assert watched.polled(3) == []


def test_nothing_is_looked_at_between_two_looks(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write("onRejection: evict")
    for _ in range(5):
        watched.watch.check()
    assert watched.shown == []


def test_asking_takes_it_up_at_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write("logLevel: debug")
    for generation in (2, 3):
        watched.watch.ask()
        watched.watch.check()
        assert [one.generation for one in watched.shown[1:]] == [3][: generation - 2], "asked again it is read again"
    assert watched.watch.options.log_level.value == "debug"


@pytest.mark.parametrize("damage", ["onRejectoin: evict", "]"])
def test_an_invalid_change_is_reported_once_and_the_old_configuration_stays(damage: str, tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    before = watched.watch.options
    watched.write(damage)
    (refusal,) = watched.polled(5)
    assert refusal.startswith(str(watched.file))
    assert watched.watch.options is before
    watched.write("logLevel: debug")
    assert watched.polled() == ["taken"]


def test_a_file_that_goes_away_changes_nothing(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.file.unlink()
    (refusal,) = watched.polled(4)
    assert "cannot be read" in refusal
    watched.write("")
    assert watched.polled() == ["taken"]


def test_a_change_that_needs_a_restart_is_refused_as_a_whole(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write("onRejection: evict\nstateDir: /elsewhere\npluginIndex: '11'")
    (refusal,) = watched.polled()
    assert refusal == (
        "stateDir needs a restart: the state of the running containers is in the old folder; "
        "pluginIndex needs a restart: the plugin is registered under the old index"
    )
    assert watched.watch.options == AgentOptions()


def test_what_the_engine_does_not_take_up_after_all_is_refused_and_nothing_else_changes(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.between, before = "somebody came between", watched.watch.options
    watched.write("logLevel: debug")
    assert watched.polled(4) == ["somebody came between"]
    assert watched.asked == 1
    assert watched.watch.options is before
    assert watched.shown[-1].generation == 1


READ_BY = {
    "featureGates.PodLevelResources": ({"PodLevelResources": False}, set()),
    "featureGates.PodLevelResourcesFixKubeletQOSClass": ({"PodLevelResourcesFixKubeletQOSClass": False}, set()),
    "featureGates.PodLevelResourcesFixDefaulting": ({"PodLevelResourcesFixDefaulting": False}, set()),
    "the extension mixed-cpus": ({}, {"mixed-cpus"}),
    "the extension scale-down-delay": ({}, {"scale-down-delay"}),
    "the extension cpu-hotplug": ({}, {"cpu-hotplug"}),
}


@pytest.mark.parametrize("name", READ_BY)
def test_by_what_pods_are_read_changes_with_a_restart_only(name: str) -> None:
    gates, extensions = READ_BY[name]
    old = AgentConfiguration()
    new = replace(
        old,
        kubelet=replace(old.kubelet, feature_gates=gates),
        mooring=replace(old.mooring, extensions=frozenset(extensions)),
    )
    for one, other in ((old, new), (new, old)):
        (reason,) = restart_reasons(one, other)
        assert reason.startswith(f"{name} needs a restart: ")
    assert restart_reasons(new, new) == ()


def test_the_gate_of_the_delay_needs_a_restart_where_there_is_one() -> None:
    gate = "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay"
    old = AgentConfiguration(mooring=MooringConfig(extensions=frozenset({"scale-down-delay", "exclusive-resize"})))
    new = replace(old, kubelet=replace(old.kubelet, feature_gates={gate: True}))
    (reason,) = restart_reasons(old, new)
    assert reason.startswith(f"featureGates.{gate} needs a restart: ")


def test_every_gate_by_which_pods_are_read_has_a_name() -> None:
    # Whether an API server has defaulted a pod depends on where the pod comes from, not on the configuration, and
    # which pods may be resized is decided by the API server.
    assert {*READ_WITH, "api_server", "resizes_pod_level_pods"} == {one.name for one in fields(PodGates)}


def test_extensions_of_the_engine_alone_need_no_restart() -> None:
    old = AgentConfiguration()
    new = replace(old, mooring=MooringConfig(extensions=frozenset({"exclusive-resize", "plugins", "irq-affinity"})))
    assert restart_reasons(old, new) == ()


def test_only_what_concerns_the_engine_is_asked_of_it_and_its_no_takes_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AgentConfiguration] = []

    def refusal(_kubelet: object, new: AgentConfiguration) -> str:
        asked.append(new)
        return "no"

    monkeypatch.setattr("mooring.agent.reload.engine_refusal", refusal)
    watched = Watched(tmp_path)
    watched.write("logLevel: debug")
    assert (watched.polled(), asked, watched.asked) == (["taken"], [], 1)
    watched.write("logLevel: debug\nstateDir: /elsewhere", KUBELET + "topologyManagerPolicy: restricted\n")
    assert (len(watched.polled()), asked) == (1, [])
    watched.write("logLevel: debug", KUBELET + "topologyManagerPolicy: restricted\n")
    assert watched.polled() == ["no"]
    assert [one.kubelet.topology_manager_policy for one in asked] == ["restricted"]
    assert watched.asked == 1


def test_reasons_for_a_restart_are_of_fields_that_there_are() -> None:
    assert {*RESTART} <= {*FIELDS}
    assert restart_reasons(AgentConfiguration(), AgentConfiguration()) == ()


def test_the_engine_refuses_what_a_restarted_kubelet_would_refuse() -> None:
    kubelet = busy().kubelet
    other = replace(STATIC, cpu_manager_policy="none")
    refusal = engine_refusal(kubelet, AgentConfiguration(kubelet=other))
    assert refusal.startswith("the engine does not start with it: ")
    assert 'configured policy "none" differs from state checkpoint policy "static"' in refusal
    other = replace(STATIC, reserved_system_cpus="0-2,8")
    assert engine_refusal(kubelet, AgentConfiguration(kubelet=other)).startswith("the engine does not start with it: ")


def test_the_engine_refuses_when_a_running_pod_would_be_refused() -> None:
    # Nine CPUs are more than one NUMA node has.
    kubelet = started(replace(STATIC, topology_manager_policy="none")).admit(pod("odd", 9)).kubelet
    new = replace(STATIC, topology_manager_policy="single-numa-node")
    refusal = engine_refusal(kubelet, AgentConfiguration(kubelet=new))
    assert refusal == "the running pod apps/odd would be refused: TopologyAffinityError"


def test_a_pod_that_runs_without_being_admitted_does_not_stand_in_the_way() -> None:
    told = started().admit(pod("db", 3))
    kubelet = told.kubelet
    wide = pod("wide", 40)
    unplaced = replace(kubelet, node=kubelet.node.adopt([wide]))
    new = replace(STATIC, cpu_manager_policy_options={"distribute-cpus-across-numa": "true"})
    assert engine_refusal(unplaced, AgentConfiguration(kubelet=new)) == ""


def test_the_engine_refuses_what_would_move_running_containers() -> None:
    # With the defect pod-restart the kubelet allocates a pod-level pod a second time.
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="best-effort",
        topology_manager_scope="pod",
        feature_gates=gates,
    )
    kubelet = started(config).admit(pod("part", 2, 0, whole=4)).kubelet
    assert engine_refusal(kubelet, AgentConfiguration(kubelet=config)) == ""
    defective = AgentConfiguration(kubelet=config, mooring=MooringConfig())
    assert engine_refusal(kubelet, defective) == "running containers would be placed elsewhere"


# What the agent tells its service manager and its log, and the unit that starts it.


ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "packaging" / "systemd" / "mooring-agent.service"
PROFILE = ROOT / "charts" / "mooring" / "files" / "seccomp.json"


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers, root.level
    yield
    root.handlers = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.usefixtures("restored_logging")
def test_a_line_of_the_log_is_one_document_with_everything_that_the_event_brings() -> None:
    stream = io.StringIO()
    log = start_log(LogFormat.JSON, LogLevel.INFO, stream)
    log.info("pod placed", pod="apps/db", cpus="1-2\n,9")
    log.debug("not heard")
    logging.getLogger("library").warning("of %s", "a library")
    logging.getLogger("library").info("not heard either")
    first, second = lines(stream)
    assert (first["event"], first["pod"], first["cpus"], first["level"]) == ("pod placed", "apps/db", "1-2\n,9", "info")
    assert str(first["time"]).endswith("Z")
    assert (second["event"], second["logger"]) == ("of a library", "library")


@pytest.mark.usefixtures("restored_logging")
def test_the_level_can_be_changed_while_the_agent_runs() -> None:
    stream = io.StringIO()
    log = start_log(LogFormat.JSON, LogLevel.ERROR, stream)
    log.warning("not heard")
    set_level(LogLevel.DEBUG)
    log.debug("heard")
    try:
        int("odd")
    except ValueError:
        log.exception("failed")
    heard, failed = lines(stream)
    assert heard["event"] == "heard"
    assert "ValueError: invalid literal" in str(failed["exception"])


@pytest.mark.usefixtures("restored_logging")
def test_people_get_one_line_an_event_too() -> None:
    stream = io.StringIO()
    start_log(LogFormat.CONSOLE, LogLevel.INFO, stream).info("pod placed", pod="apps/db")
    (line,) = stream.getvalue().splitlines()
    assert "event='pod placed' " in line
    assert "pod='apps/db'" in line


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_hears_every_field(tmp_path: Path, *, abstract: bool) -> None:
    name = f"@mooring-test-{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if abstract else name)
        assert notify({"READY": "1", "STATUS": "2 pods,\n1 held back"}, {"NOTIFY_SOCKET": name})
        assert manager.recv(4096) == b"READY=1\nSTATUS=2 pods, 1 held back"


@pytest.mark.parametrize("address", ["", "nowhere", "/no/such/socket"])
def test_without_a_service_manager_nothing_happens(address: str) -> None:
    assert not notify({"READY": "1"}, {"NOTIFY_SOCKET": address})
    assert watchdog_seconds({"WATCHDOG_USEC": "odd"}) == 0.0


def settings_of_unit() -> dict[str, str]:
    rows = (line.partition("=") for line in UNIT.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: value for name, sign, value in rows if sign}


def test_the_unit_makes_the_folders_that_the_configuration_names() -> None:
    found, usual = settings_of_unit(), AgentOptions()
    assert usual.state_dir == f"/var/lib/{found['StateDirectory']}"
    run = f"/run/{found['RuntimeDirectory']}/"
    assert usual.status_socket.startswith(run)
    assert usual.pod_resources_socket.startswith(run)


def test_the_unit_is_a_good_one(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # The program and the other units of a node are not there on the machine that runs this test.
    text = UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/mooring", sys.executable)
    unit = tmp_path / UNIT.name
    unit.write_text(text, encoding="utf-8")
    found = subprocess.run(
        [analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def test_the_unit_leaves_little_to_attack() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # 0 is a service that can do nothing, 10 one that may do everything.
    words = [analyze, "security", "--offline=yes", "--no-pager", str(UNIT)]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze looks at running units only")
    level = re.search(r"Overall exposure level for \S+ ([0-9.]+)", found.stdout)
    assert level is not None, found.stdout + found.stderr
    assert float(level[1]) < 2, found.stdout


def test_the_unit_has_no_capabilities() -> None:
    assert settings_of_unit()["CapabilityBoundingSet"] == ""


def test_the_units_filter_lets_every_call_pass_that_was_recorded() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    allowed: set[str] = set()
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line.startswith("SystemCallFilter="):
            words = line.partition("=")[2]
            for group in words.removeprefix("~").split():
                allowed = allowed - calls_of(analyze, group) if words[0] == "~" else allowed | calls_of(analyze, group)
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    recorded = {name for rule in profile["syscalls"] for name in rule["names"]}
    # Newer than systemd 252 in Debian 12; C libraries do without.
    assert recorded - allowed - {"fchmodat2", "set_tls"} == set()


def calls_of(analyze: str, group: str) -> set[str]:
    """Return the system calls of a group, those of the groups in it too."""
    words = [analyze, "syscall-filter", "--no-pager", group]
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    names = [line.strip() for line in text.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for name in names for call in (calls_of(analyze, name) if name.startswith("@") else {name})}
