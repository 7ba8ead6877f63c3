"""The agent's file: what it may say, what comes from the kubelet's, and with which kubelet the agent does not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.agent.startup import choices_of
from mooring.agent.state import Options
from mooring.engine.core.config import AssignedScope
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST
from mooring.inputs.configuration.kubelet_flags import kubelet_flags
from mooring.service.agent_configuration import AgentConfiguration, load_agent_configuration
from mooring.service.agent_options import FIELDS, AgentOptions, IRQAffinity, OnRejection, agent_options, overridden
from mooring.service.options import Address, LogLevel

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


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("stateDirr", "/x", "stateDirr: is not known; did you mean stateDir?"),
        ("apiVersion", "mooring/v9", "apiVersion: 'mooring/v9' is not supported; write mooring/v1alpha1"),
        ("stateDir", "state", "stateDir: 'state' is not an absolute path; begin it with /"),
        ("stateDir", "", "stateDir: must not be empty"),
        ("nriSocket", "/" + "s" * 107, "nriSocket: longer than the 107 bytes that a socket's path can have"),
        *(
            ("stateDir", path, f"stateDir: '{path}' is a folder of the system; name a folder of the agent's own")
            for path in ("/", "//", "/var/lib/", "/var/lib/../../etc", "/proc/self/cwd", "/usr/local/mooring", "/dev/x")
        ),
        ("pluginIndex", "7", "pluginIndex: '7' is not an index; write two digits, such as \"50\""),
        ("pluginIndex", 50, "pluginIndex: must be a string, not a number; put it in quotes"),
        ("onRejection", "evicts", "onRejection: 'evicts' is not known; did you mean evict?"),
        ("onRejection", "x", "onRejection: 'x' is not known; known are hold, evict"),
        (
            "optOutAnnotation",
            "example.org/out",
            "'example.org/out' is not an annotation of the agent; write one that begins",
        ),
        ("optOutAnnotation", "mooring/opt out", "'mooring/opt out' is not an annotation of the agent"),
        (
            "kubeletVersion",
            "1.30",
            "kubeletVersion: kubelet 1.30 is older than all known releases; known are 1.31 to 1.38",
        ),
        ("kubeletVersion", "1.99", "kubeletVersion: kubelet 1.99 is newer than all known releases; write v1.37.2"),
        ("nodeName", "../x", "nodeName: '../x' is not a node name; write it as kubectl get nodes does"),
        ("nodeName", "Node-7", "nodeName: 'Node-7' is not a node name"),
        ("statusSocket", "/var/run/nri/nri.sock", "statusSocket: is the path of nriSocket already; give each its own"),
        ("failClosed", "yes", "failClosed: must be true or false, not a string"),
        ("irqAffinity", "dry", "irqAffinity: 'dry' is not known; did you mean dry-run?"),
        ("irqAffinity", 1, "irqAffinity: must be a string, not a number; put it in quotes"),
        ("replyBudget", "0s", "replyBudget: must be between 10ms and 1m"),
        ("replyBudget", "", "replyBudget: '' is not a duration; write one such as 10s or 100ms"),
        ("metricsAddress", "9477", "metricsAddress: '9477' is not an address; write host:port, such as 127.0.0.1:9477"),
        (
            "metricsAddress",
            "::1:80",
            "metricsAddress: '::1:80' is not an address; write host:port, such as 127.0.0.1:9477",
        ),
        ("metricsAddress", "a:70000", "metricsAddress: 'a:70000' is not an address; write host:port"),
    ],
)
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


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(sorted(FIELDS)),
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.text(max_size=3), max_size=2),
        max_size=4,
    )
)
def test_whatever_it_says_it_is_understood_or_refused_with_its_file(content: dict[str, Any]) -> None:
    try:
        agent_options(content, source="agent.yaml")
    except InputError as error:
        assert str(error).startswith("agent.yaml: ")  # noqa: PT017 - both outcomes are right


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
