"""A kubelet's configuration inside documents of other tools: found by its shape, with the place where it is."""

from __future__ import annotations

import base64
import gzip
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.configuration.node_configuration import NodeConfiguration, configuration_of
from mooring.inputs.configuration.sources import load_sources

FOLDER = Path(__file__).parent / "embedded"
MACHINE = MachineInfo(8, 1, 16 * 1024**3, ())
FILE = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\nmaxPods: 7\n"
STATIC = {"cpuManagerPolicy": "static"}
BOTH = {"cpuManagerPolicy": "static", "maxPods": 7}


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def data_url(text: str) -> str:
    return "data:text/plain;charset=utf-8;base64," + base64.b64encode(text.encode()).decode()


GIVEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "MachineConfig in base64": (
        (
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nspec:\n  config:\n    storage:\n"
            f"      files:\n      - path: /etc/kubelet.conf\n        contents:\n          source: {data_url(FILE)}\n"
        ),
        BOTH,
        "given:9",
    ),
    "MachineConfig in a URL": (
        (
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nspec: {config: {storage: {files: "
            f"[{{contents: {{source: 'data:,{urllib.parse.quote(FILE)}'}}}}]}}}}}}\n"
        ),
        BOTH,
        "given:3",
    ),
    "cloud-init": (
        (
            "#cloud-config\nwrite_files:\n- path: /etc/kubelet.yaml\n  encoding: gz+b64\n  content: "
            f"{base64.b64encode(gzip.compress(FILE.encode(), mtime=0)).decode()}\n"
        ),
        BOTH,
        "given:5",
    ),
    "colours and Windows": (FILE.replace("\n", "\x1b[0m\r\n"), BOTH, "given:3:1"),
}
"""What is given, made by a program -> fields in force, and the place of the CPU manager's policy."""

SHOWN: list[tuple[str, dict[str, Any], str]] = [
    ("configmap-of-kubeadm", BOTH, "8"),
    ("configmap-as-json", STATIC, "2"),
    ("list", BOTH, "10"),
    ("hosted-control-plane", BOTH, "7"),
    (
        "bottlerocket",
        {
            **BOTH,
            "cpuManagerPolicyOptions.full-pcpus-only": "true",
            "kubeReserved.cpu": "1",
            "evictionHard.memory.available": "15%",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "993Mi"}}],
        },
        "3",
    ),
    ("ec2nodeclass-with-bottlerocket", STATIC, "7"),
    ("aksnodeclass-of-karpenter", {**BOTH, "kubeReserved.cpu": "180m", "cpuCFSQuota": False}, "6:5"),
    ("eksctl", {**BOTH, "kubeReserved.memory": "332Mi", "kubeReserved.cpu": "90m"}, "8:5"),
    ("eksctl-with-a-script", BOTH, "7"),
    (
        "kops",
        {**STATIC, "evictionHard.memory.available": "200Mi", "featureGates.CPUManagerPolicyAlphaOptions": True},
        "6:5",
    ),
    ("cluster-api", STATIC, "5:"),
    ("cluster-api-v1beta2", STATIC, "3:"),
    ("cluster-api-with-a-patch-of-kubeadm", BOTH, "11"),
    ("kind", {**BOTH, "reservedSystemCPUs": "0"}, "7"),
    ("gardener", {**STATIC, "evictionHard.memory.available": "200Mi", "evictionHard.nodefs.available": "5%"}, "7:7"),
    ("k0s", BOTH, "7:7"),
    ("k0sctl", BOTH, "7"),
    ("rancher", BOTH, "10:"),
    ("rke1", BOTH, "9:"),
    ("kubespray", {**BOTH, "kubeReserved.cpu": "200m", "topologyManagerPolicy": "restricted"}, "2:1"),
    ("kubespray-other-fields", BOTH, "3:3"),
    ("minikube-profile", STATIC, "3:"),
    ("minikube-command", BOTH, "1"),
    ("machineconfig-with-a-unit", BOTH, "9"),
    ("cloud-init-with-k3s", STATIC, "6"),
    ("a-script-with-a-file-in-it", BOTH, "6"),
    ("systemd-single-quotes", BOTH, "2"),
    ("systemd-another-name", STATIC, "2"),
    ("ps", BOTH, "2"),
    ("ps-of-k3s", BOTH, "1"),
    ("log-of-a-kubelet", BOTH, "1"),
    ("terraform-with-bottlerocket", {**BOTH, "kubeReserved.cpu": "90m"}, "2"),
    ("terraform-with-rke", BOTH, "3"),
    ("a-list-of-flags-alone", BOTH, "1:3"),
    ("flags-in-a-variable-of-a-script", BOTH, "2"),
    ("kubean", {**BOTH, "kubeReserved.cpu": "1"}, "5"),
    ("mke", BOTH, "2"),
    ("a-charm-configuration", BOTH, "1"),
    ("a-charm-flags", BOTH, "1"),
    ("k3d", BOTH, "1"),
    ("options-of-a-charm-in-a-bundle", BOTH, "4"),
    ("configmap-as-kubectl-describes-it", BOTH, "10"),
    ("numbers-of-remarks-between-the-lines", BOTH, "3"),
    ("user-data-that-changes-the-file-with-jq", BOTH, "8"),
    ("markdown", BOTH, "6:1"),
    ("e-mail", BOTH, "3:1"),
]
"""File of the folder ``embedded``, the fields in force, and the line of the CPU manager's policy in it."""


def loaded(folder: Path, text: str, chosen: str = "") -> NodeConfiguration:
    file = folder / "given"
    file.write_text(text)
    return configuration_of(load_sources(f"{file}{chosen}"), machine=MACHINE)


def check(found: NodeConfiguration, expected: dict[str, Any], place: str) -> None:
    effective = {one.name: one for one in found.effective()}
    assert {field: effective[field].value for field in expected} == expected
    assert str(effective["cpuManagerPolicy"].place).startswith(place)


@pytest.mark.parametrize(("name", "expected", "line"), SHOWN, ids=[name for name, _, _ in SHOWN])
def test_a_configuration_is_found_in_documents_of_other_tools(name: str, expected: dict[str, Any], line: str) -> None:
    check(configuration_of(load_sources(FOLDER / name), machine=MACHINE), expected, f"{FOLDER / name}:{line}")


@pytest.mark.parametrize("name", GIVEN)
def test_a_configuration_is_found_where_it_is_encoded(name: str, tmp_path: Path) -> None:
    text, expected, place = GIVEN[name]
    check(loaded(tmp_path, text), expected, f"{tmp_path}/{place}")


KUBELET = "      kubelet:\n        cpuManagerPolicy: static\n        maxPods: 7\n"
NODE_POOL = f"kind: NodePool\nspec:\n  template:\n    spec:\n{KUBELET}"


@pytest.mark.parametrize(
    ("text", "maximum", "refused"),
    [
        (f"apiVersion: karpenter.sh/v1beta1\n{NODE_POOL}", 7, "spec.template.spec.kubelet.cpuManagerPolicy"),
        (
            f"apiVersion: karpenter.sh/v1\n{NODE_POOL}",
            110,
            "spec.template.spec.kubelet.cpuManagerPolicy, spec.template.spec.kubelet.maxPods",
        ),
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec: {kubelet: {topologyManagerPolicy: none}}\n",
            110,
            "spec.kubelet.topologyManagerPolicy",
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: karpenter.k8s.aws/v1\n  kind: EC2NodeClass\n  spec:\n"
            + KUBELET.replace("      ", "    ", 1),
            7,
            "items[0].spec.kubelet.cpuManagerPolicy",
        ),
        (
            (
                "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nspec: {kubeletConfiguration: {"
                "containerRuntime: containerd, maxPods: 7, cpuManagerPolicy: static}}\n"
            ),
            7,
            "spec.kubeletConfiguration.cpuManagerPolicy",
        ),
        (
            "yaml_body = <<-YAML\n" + indented(f"apiVersion: karpenter.sh/v1beta1\n{NODE_POOL}", 2) + "YAML\n",
            7,
            "spec.template.spec.kubelet.cpuManagerPolicy",
        ),
    ],
)
def test_fields_that_karpenters_api_lacks_are_said_and_do_not_reach_the_kubelet(
    text: str, maximum: int, refused: str, tmp_path: Path
) -> None:
    found = loaded(tmp_path, text)
    assert (found.kubelet.cpu_manager_policy, found.kubelet.max_pods) == ("none", maximum)
    (said,) = [one.message for one in found.findings if one.code == "MOOR-501"]
    assert f" has no {refused}: the API server refuses or drops it" in said
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
    with pytest.raises(InputError) as raised:
        loaded(tmp_path, TWO_GROUPS)
    assert str(raised.value) == (
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
    with pytest.raises(InputError, match=r"InstanceGroup/a\.spec\.kubelet, InstanceGroup/b\.spec\.kubelet"):
        loaded(tmp_path, text)
    assert loaded(tmp_path, text, "#InstanceGroup/b").kubelet.max_pods == 2


def test_a_log_of_defaults_alone_is_a_kubelet_with_defaults(tmp_path: Path) -> None:
    text = 'I0626 19:05:10.4 5492 flags.go:33] FLAG: --cpu-manager-policy="none"\n'
    assert loaded(tmp_path, text).kubelet.cpu_manager_policy == "none"


def test_what_was_found_is_said_with_its_line(tmp_path: Path) -> None:
    found = loaded(tmp_path, TWO_GROUPS, "#nodeGroups[1]").findings
    assert ("nodeGroups[1].kubeletExtraConfig", f"{tmp_path}/given:7:3: this part of the file is read as") in [
        (one.subject, one.message[: len(f"{tmp_path}/given:7:3: this part of the file is read as")]) for one in found
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n",
            "of a ConfigMap give data.kubelet of kube-system/",
        ),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n", "of a Node give /api/v1/nodes/NAME/proxy/configz"),
        ('[settings.kubernetes]\ncpu-manager-policy = "static\n', "not valid TOML: "),
        ("[settings.host]\na = 1\n", "no field of a configuration in it; "),
        (
            "apiVersion: x/v1\nkind: Tool\nspec: {kubelet: {maxPods: [1]}}\n",
            "given:3:18: spec.kubelet.maxPods: must be",
        ),
        ("```yaml\nmaxPods: [\n```\n", "not valid YAML"),
        (
            'Jul 14 10:29:39 w kubelet[7]: I0714 10:29:39.1 70695 container_manager_linux.go:283] "Creating" a={B: c}',
            "a kubelet's log without FLAG lines; take the log from its first line",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        loaded(tmp_path, text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
