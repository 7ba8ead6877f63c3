"""A changed file is taken up whole, or the old configuration stays and somebody is told why."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.agent.outside.nodes import STATIC, busy, pod, started

from mooring.agent.reload import PERIOD, READ_WITH, RESTART, ConfigurationWatch, engine_refusal, restart_reasons
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.inputs.pods.defaults import PodGates
from mooring.service.agent_configuration import AgentConfiguration, load_agent_configuration
from mooring.service.agent_options import FIELDS, AgentOptions, OnRejection
from mooring.service.daemon import notify, watchdog_seconds
from mooring.service.logs import set_level, start_log
from mooring.service.options import LogFormat, LogLevel

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

    def __init__(
        self,
        folder: Path,
        accepts: Callable[[AgentConfiguration], str] = lambda _: "",
        take_up: Callable[[AgentConfiguration], str] = lambda _: "",
    ) -> None:
        self.file, self.clock = folder / "agent.yaml", Clock()
        self.write("")

        def load() -> AgentConfiguration:
            return load_agent_configuration(str(self.file))

        self.watch = ConfigurationWatch(load(), load, accepts, take_up, self.clock)

    def write(self, options: str, kubelet: str = KUBELET) -> None:
        beside = self.file.with_name("new")
        beside.write_text(f"{kubelet}---\nkind: AgentConfiguration\n{options}", encoding="utf-8")
        beside.replace(self.file)

    def polled(self, times: int = 2) -> list[str]:
        """Return what came of so many looks: ``taken`` or the refusal."""
        found = []
        for _ in range(times):
            self.clock.pass_time()
            is_taken = self.watch.poll()
            if is_taken is not None:
                found.append("taken" if is_taken else self.watch.refusal)
        return found


def test_a_change_is_taken_up_when_it_has_come_to_rest(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.polled(3) == []
    watched.write("onRejection: evict")
    assert watched.polled(1) == [], "it may still be written"
    assert watched.polled(1) == ["taken"]
    assert watched.watch.current.options.on_rejection is OnRejection.EVICT
    assert watched.watch.generation == 2
    assert watched.polled(3) == []


def test_nothing_is_looked_at_between_two_looks(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write("onRejection: evict")
    assert [watched.watch.poll() for _ in range(5)] == [None] * 5


def test_asking_takes_it_up_at_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write("logLevel: debug")
    watched.watch.ask()
    assert watched.watch.poll() is True
    assert watched.watch.current.options.log_level.value == "debug"
    watched.watch.ask()
    assert watched.watch.poll() is not None, "asked again it is read again"


@pytest.mark.parametrize("damage", ["onRejectoin: evict", "]"])
def test_an_invalid_change_is_reported_once_and_the_old_configuration_stays(damage: str, tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    before = watched.watch.current
    watched.write(damage)
    (refusal,) = watched.polled(5)
    assert refusal.startswith(str(watched.file))
    assert watched.watch.current is before
    assert watched.watch.refusal == refusal
    watched.write("logLevel: debug")
    assert watched.polled() == ["taken"]
    assert watched.watch.refusal == ""


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
    assert watched.watch.current.options == AgentOptions()


def test_what_the_engine_does_not_take_up_after_all_is_refused_and_nothing_else_changes(tmp_path: Path) -> None:
    taken: list[AgentConfiguration] = []

    def take_up(new: AgentConfiguration) -> str:
        taken.append(new)
        return "somebody came between"

    watched = Watched(tmp_path, take_up=take_up)
    before = watched.watch.current
    watched.write("logLevel: debug")
    assert watched.polled(4) == ["somebody came between"]
    assert len(taken) == 1
    assert watched.watch.current is before
    assert (watched.watch.generation, watched.watch.refusal) == (1, "somebody came between")


def test_nothing_is_taken_up_that_is_refused(tmp_path: Path) -> None:
    def take_up(_: AgentConfiguration) -> str:
        raise AssertionError

    watched = Watched(tmp_path, accepts=lambda _: "no", take_up=take_up)
    watched.write("stateDir: /elsewhere")
    assert len(watched.polled()) == 1
    watched.write("", KUBELET + "topologyManagerPolicy: restricted\n")
    assert watched.polled() == ["no"]


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


def test_only_what_concerns_the_engine_is_asked_of_it(tmp_path: Path) -> None:
    asked: list[AgentConfiguration] = []

    def accepts(new: AgentConfiguration) -> str:
        asked.append(new)
        return "no"

    watched = Watched(tmp_path, accepts)
    watched.write("logLevel: debug")
    assert (watched.polled(), asked) == (["taken"], [])
    watched.write("logLevel: debug", KUBELET + "topologyManagerPolicy: restricted\n")
    assert watched.polled() == ["no"]
    assert [one.kubelet.topology_manager_policy for one in asked] == ["restricted"]


def test_reasons_for_a_restart_are_of_fields_that_there_are() -> None:
    assert {*RESTART} <= {*FIELDS}
    assert restart_reasons(AgentConfiguration(), AgentConfiguration()) == ()


def test_the_engine_goes_on_with_another_option() -> None:
    kubelet = busy().kubelet
    new = replace(STATIC, cpu_manager_policy_options={"distribute-cpus-across-numa": "true"})
    assert engine_refusal(kubelet, AgentConfiguration(kubelet=new)) == ""
    assert engine_refusal(kubelet, AgentConfiguration(kubelet=STATIC)) == ""


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


def test_a_pod_that_would_be_admitted_at_last_is_no_reason_to_refuse() -> None:
    strict = replace(STATIC, topology_manager_policy="single-numa-node")
    kubelet = started(strict).admit(pod("db", 3)).kubelet
    waiting = replace(kubelet, node=kubelet.node.adopt([pod("odd", 9)]))
    assert engine_refusal(waiting, AgentConfiguration(kubelet=STATIC)) == ""


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
