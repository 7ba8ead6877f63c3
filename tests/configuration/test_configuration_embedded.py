"""A kubelet's configuration inside documents of other tools: found by its shape, with the place where it is."""

from __future__ import annotations

import base64
import gzip
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.values import refusal

from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.configuration.node_configuration import NodeConfiguration, configuration_of
from mooring.inputs.configuration.sources import load_sources

FOLDER = Path(__file__).parent / "embedded"
CASES: dict[str, Any] = yaml.safe_load((FOLDER.parent / "cases.yaml").read_text(encoding="utf-8"))
MACHINE = MachineInfo(8, 1, 16 * 1024**3, ())
FILE = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\nmaxPods: 7\n"
BOTH = {"cpuManagerPolicy": "static", "maxPods": 7}


def data_url(text: str) -> str:
    return "data:text/plain;charset=utf-8;base64," + base64.b64encode(text.encode()).decode()


GIVEN: dict[str, tuple[str, str]] = {
    "MachineConfig in base64": (
        (
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nspec:\n  config:\n    storage:\n"
            f"      files:\n      - path: /etc/kubelet.conf\n        contents:\n          source: {data_url(FILE)}\n"
        ),
        "given:9",
    ),
    "MachineConfig in a URL": (
        (
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nspec: {config: {storage: {files: "
            f"[{{contents: {{source: 'data:,{urllib.parse.quote(FILE)}'}}}}]}}}}}}\n"
        ),
        "given:3",
    ),
    "cloud-init": (
        (
            "#cloud-config\nwrite_files:\n- path: /etc/kubelet.yaml\n  encoding: gz+b64\n  content: "
            f"{base64.b64encode(gzip.compress(FILE.encode(), mtime=0)).decode()}\n"
        ),
        "given:5",
    ),
    "colours and Windows": (FILE.replace("\n", "\x1b[0m\r\n"), "given:3:1"),
}
"""What is given, made by a program -> the place of the CPU manager's policy."""


def loaded(folder: Path, text: str, chosen: str = "") -> NodeConfiguration:
    file = folder / "given"
    file.write_text(text)
    return configuration_of(load_sources(f"{file}{chosen}"), machine=MACHINE)


def check(found: NodeConfiguration, expected: dict[str, Any], place: str) -> None:
    effective = {one.name: one for one in found.effective()}
    assert {field: effective[field].value for field in expected} == expected
    assert str(effective["cpuManagerPolicy"].place).startswith(place)


@pytest.mark.parametrize("name", CASES["embedded"])
def test_a_configuration_is_found_in_documents_of_other_tools(name: str) -> None:
    case = CASES["embedded"][name]
    found = configuration_of(load_sources(FOLDER / name), machine=MACHINE)
    check(found, case["fields"], f"{FOLDER / name}:{case['line']}")


@pytest.mark.parametrize("name", GIVEN)
def test_a_configuration_is_found_where_it_is_encoded(name: str, tmp_path: Path) -> None:
    text, place = GIVEN[name]
    check(loaded(tmp_path, text), BOTH, f"{tmp_path}/{place}")


@pytest.mark.parametrize("case", CASES["karpenter"])
def test_fields_that_karpenters_api_lacks_are_said_and_do_not_reach_the_kubelet(
    case: dict[str, Any], tmp_path: Path
) -> None:
    found = loaded(tmp_path, case["text"])
    assert (found.kubelet.cpu_manager_policy, found.kubelet.max_pods) == ("none", case["maximum"])
    (said,) = [one.message for one in found.findings if one.code == "MOOR-501"]
    assert f" has no {case['refused']}: the API server refuses or drops it" in said
    assert "spec.userData" in said


def test_user_data_of_a_node_class_reaches_the_kubelet_whose_block_lacks_the_field(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec:\n  kubelet: {maxPods: 7, cpuManagerPolicy: none}\n"
        "  userData: |\n    apiVersion: node.eks.aws/v1alpha1\n    kind: NodeConfig\n    spec:\n      kubelet:\n"
        "        config: {cpuManagerPolicy: static}\n",
    )
    assert (found.kubelet.cpu_manager_policy, found.kubelet.max_pods) == ("static", 7)


TWO_GROUPS = (
    "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nnodeGroups:\n- name: a\n"
    "  kubeletExtraConfig: {cpuManagerPolicy: static}\n- name: b\n  kubeletExtraConfig: {cpuManagerPolicy: none}\n"
)


def test_of_several_nodes_one_is_chosen_by_its_path(tmp_path: Path) -> None:
    assert refusal(loaded, tmp_path, TWO_GROUPS) == (
        f"{tmp_path}/given: has 2 configurations of kubelets: nodeGroups[0].kubeletExtraConfig, "
        f"nodeGroups[1].kubeletExtraConfig; choose one: --config '{tmp_path}/given#nodeGroups[0].kubeletExtraConfig'"
    )
    assert loaded(tmp_path, TWO_GROUPS, "#nodeGroups[0]").kubelet.cpu_manager_policy == "static"
    assert loaded(tmp_path, TWO_GROUPS, "#nodeGroups[1]").kubelet.cpu_manager_policy == "none"
    with pytest.raises(InputError, match=r"nothing is at nodeGroups\[2\]; parts are nodeGroups\[0\]"):
        loaded(tmp_path, TWO_GROUPS, "#nodeGroups[2]")


def test_of_several_objects_one_is_chosen_by_kind_and_name(tmp_path: Path) -> None:
    group = (
        "apiVersion: kops.k8s.io/v1alpha2\nkind: InstanceGroup\nmetadata: {name: %s}\nspec: {kubelet: {maxPods: %d}}\n"
    )
    text = f"{group % ('a', 1)}---\n{group % ('b', 2)}"
    assert "InstanceGroup/a.spec.kubelet, InstanceGroup/b.spec.kubelet" in refusal(loaded, tmp_path, text)
    assert loaded(tmp_path, text, "#InstanceGroup/b").kubelet.max_pods == 2


def test_a_log_of_defaults_alone_is_a_kubelet_with_defaults(tmp_path: Path) -> None:
    text = 'I0626 19:05:10.4 5492 flags.go:33] FLAG: --cpu-manager-policy="none"\n'
    assert loaded(tmp_path, text).kubelet.cpu_manager_policy == "none"


def test_what_was_found_is_said_with_its_line(tmp_path: Path) -> None:
    found = loaded(tmp_path, TWO_GROUPS, "#nodeGroups[1]").findings
    assert ("nodeGroups[1].kubeletExtraConfig", f"{tmp_path}/given:7:3: this part of the file is read as") in [
        (one.subject, one.message[: len(f"{tmp_path}/given:7:3: this part of the file is read as")]) for one in found
    ]
