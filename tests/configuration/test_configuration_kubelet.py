"""Configurations of kubelets: fields, types, values that no kubelet takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.values import cases, refusal

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machine import Finding
from mooring.inputs.configuration.kubelet_config import DURATIONS, KNOWN, READ, kubelet_config
from mooring.inputs.configuration.node_configuration import NodeConfiguration, load_config

FULL = (Path(__file__).parent / "every-field.yaml").read_text(encoding="utf-8")
WRITTEN = frozenset(re.findall(r"^(\w+):", FULL, re.MULTILINE))
EXPECTED = KubeletConfig(
    cpu_manager_policy="static",
    cpu_manager_policy_options={"full-pcpus-only": "true"},
    cpu_manager_reconcile_period_ns=90 * 10**9,
    memory_manager_policy="Static",
    reserved_memory=(
        ReservedMemory(0, {"memory": "1Gi", "hugepages-2Mi": "4194304"}),
        ReservedMemory(1, {"memory": "0.5"}),
    ),
    topology_manager_policy="single-numa-node",
    topology_manager_scope="pod",
    topology_manager_policy_options={"max-allowable-numa-nodes": "16"},
    reserved_system_cpus="0-1",
    kube_reserved={"cpu": "500m"},
    system_reserved={"memory": "1Gi"},
    kube_reserved_cgroup="/kube",
    system_reserved_cgroup="/system",
    eviction_hard={"memory.available": "5%"},
    merge_default_eviction_settings=True,
    cpu_cfs_quota=False,
    cpu_cfs_quota_period_ns=5_000_000,
    feature_gates={"CPUManagerPolicyAlphaOptions": True},
    max_pods=250,
    pods_per_core=10,
)


PERIOD = "cpuManagerReconcilePeriod"


def load(tmp_path: Path, *texts: str) -> NodeConfiguration:
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"config-{number}.yaml")
        paths[-1].write_text(text)
    return load_config(*paths)


def test_every_field_that_the_managers_read_is_read(tmp_path: Path) -> None:
    found = load(tmp_path, FULL)
    assert found == NodeConfiguration(EXPECTED, MooringConfig(), fields=WRITTEN)
    assert READ <= WRITTEN


def test_known_fields_are_those_of_the_type() -> None:
    assert len(KNOWN) == 128 + len({"apiVersion", "kind"})
    assert "userNamespaces" in KNOWN


def test_nothing_written_means_the_kubelets_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "kind: KubeletConfiguration").kubelet == KubeletConfig()
    assert load_config() == NodeConfiguration(KubeletConfig(), MooringConfig())
    nulls = dict.fromkeys(READ - DURATIONS)
    assert kubelet_config(nulls, source="k.yaml") == KubeletConfig()
    zeros = {"maxPods": 0, "cpuManagerReconcilePeriod": "0s", "evictionHard": {}}
    assert kubelet_config(zeros, source="k.yaml") == KubeletConfig(eviction_hard={})


def test_a_null_is_what_go_decodes(tmp_path: Path) -> None:
    texts = "systemReserved: {cpu: null}\ncpuManagerPolicyOptions: {full-pcpus-only: null}\n"
    found = load(tmp_path, f"kind: KubeletConfiguration\n{texts}").kubelet
    assert (found.system_reserved, found.cpu_manager_policy_options) == ({"cpu": ""}, {"full-pcpus-only": ""})
    assert load(tmp_path, "kind: KubeletConfiguration\ncpuManagerReconcilePeriod: null").kubelet.checked.null_duration
    assert not load(tmp_path, "kind: KubeletConfiguration\ncpuCFSQuotaPeriod: null").kubelet.checked.null_duration


def test_defaults_that_configz_shows_are_not_settings(tmp_path: Path) -> None:
    """A kubelet before 1.35 refuses both fields while their gates are off."""
    shown = '"crashLoopBackOff": {"maxContainerRestartPeriod": "5m0s"}'
    policy = '"imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages"'
    assert load(tmp_path, f'{{"kubeletconfig": {{{shown}, {policy}}}}}').kubelet == KubeletConfig()
    assert load(tmp_path, f'{{"kind": "KubeletConfiguration", {shown}}}').kubelet.checked.values


def test_configz_is_unpacked(tmp_path: Path) -> None:
    text = json.dumps({"kubeletconfig": {"cpuManagerPolicy": "static", "cpuCFSQuotaPeriod": "100ms"}})
    assert load(tmp_path, text).kubelet == KubeletConfig(cpu_manager_policy="static")


def test_bare_fields_are_a_configuration(tmp_path: Path) -> None:
    assert load(tmp_path, "topologyManagerScope: pod").kubelet == KubeletConfig(topology_manager_scope="pod")


def test_policies_are_taken_as_written() -> None:
    config = kubelet_config({"cpuManagerPolicy": "Static", "topologyManagerPolicy": ""}, source="k.yaml")
    assert (config.cpu_manager_policy, config.topology_manager_policy) == ("Static", "")


def test_unknown_field_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    found = load(tmp_path, "cpuManagerPolicy: static\nreservedSystemCpus: '0'\nfoo: 1\naddress: x\n")
    source = f"{tmp_path}/config-0.yaml"
    assert found.findings == (
        Finding(
            "warning",
            "reservedSystemCpus",
            f"{source}:2:1: KubeletConfiguration has no field reservedSystemCpus; did you mean reservedSystemCPUs?",
            "MOOR-501",
        ),
        Finding("warning", "foo", f"{source}:3:1: KubeletConfiguration has no field foo", "MOOR-501"),
    )


def test_a_flood_of_unknown_fields_is_cut_short() -> None:
    found: list[Finding] = []
    kubelet_config({f"x{number}": 1 for number in range(10_000)}, source="k.yaml", report=found.append)
    assert len(found) == 21
    assert found[-1].message == "k.yaml: 9980 more unknown fields"


@pytest.mark.parametrize(("fields", "message"), cases(__file__, "refused-kubelet.yaml", "fields", "says"))
def test_wrong_types_are_refused_with_field_and_remedy(fields: Mapping[str, Any], message: str) -> None:
    assert message in refusal(kubelet_config, fields, source="k.yaml")


@pytest.mark.parametrize(("text", "warning"), cases(__file__, "odd-kubelet.yaml", "text", "says"))
def test_a_value_that_no_kubelet_takes_is_named_with_its_place(tmp_path: Path, text: str, warning: str) -> None:
    found = [one for one in load(tmp_path, text).findings if one.code == "MOOR-515"]
    assert [one.message.partition("config-0.yaml:")[2] for one in found] == [warning]


def test_values_that_some_kubelet_takes_are_not_named(tmp_path: Path) -> None:
    text = """\
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: T, distribute-cpus-across-cores: "0"}
memoryManagerPolicy: ""
topologyManagerPolicyOptions: {max-allowable-numa-nodes: "12"}
featureGates: {AllAlpha: true, MemoryManager: true}
evictionHard: {memory.available: 5%, nodefs.available: 1Gi}
reservedSystemCPUs: ""
"""
    assert load(tmp_path, text).findings == ()
    [found] = load(tmp_path, '{"kubeletconfig": {"cpuManagerPolicy": "Static"}}').findings
    assert (found.subject, found.message.rpartition("yaml:")[2]) == (
        "kubeletconfig.cpuManagerPolicy",
        "1:20: 'Static' is not a value; did you mean static?",
    )


@pytest.mark.parametrize(("nanos", "text"), cases(__file__, "durations.yaml", "nanos", "text"))
def test_durations_are_those_of_go(nanos: int, text: str) -> None:
    assert kubelet_config({PERIOD: text}, source="k.yaml").cpu_manager_reconcile_period_ns == nanos


@pytest.mark.parametrize("text", ["", "-", "5", "s", ".s", "1 s", "1d", "5s ", "9999999999h", "1" * 1000 + "s"])
def test_other_texts_are_no_durations(text: str) -> None:
    assert "is not a duration" in refusal(kubelet_config, {PERIOD: text}, source="k.yaml")


def test_moorings_document_may_stand_beside_or_apart(tmp_path: Path) -> None:
    own = "apiVersion: mooring/v1alpha1\nkind: MooringConfiguration\nfixedDefects: [odd-uncore, saved-combo]\n"
    mooring = MooringConfig(frozenset(), frozenset({"odd-uncore", "saved-combo"}))
    expected = NodeConfiguration(EXPECTED, mooring, fields=WRITTEN)
    assert load(tmp_path, f"{own}---\n{FULL}") == expected
    assert load(tmp_path, FULL, own) == expected


@pytest.mark.parametrize(("text", "message"), cases(__file__, "other-documents.yaml", "text", "says"))
def test_other_documents_are_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(load, tmp_path, text)
