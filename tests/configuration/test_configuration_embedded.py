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

MACHINE = MachineInfo(8, 1, 16 * 1024**3, ())
FILE = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\nmaxPods: 7\n"
STATIC = {"cpuManagerPolicy": "static"}
BOTH = {"cpuManagerPolicy": "static", "maxPods": 7}


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def data_url(text: str) -> str:
    return "data:text/plain;charset=utf-8;base64," + base64.b64encode(text.encode()).decode()


UNIT = '[Service]\\nEnvironment=\\"KUBELET_EXTRA_ARGS=--cpu-manager-policy=static --max-pods=7\\"\\n'

GIVEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "ConfigMap of kubeadm": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kubelet-config}\ndata:\n  kubelet: |\n" + indented(FILE, 4),
        BOTH,
        "given:8",
    ),
    "ConfigMap as JSON": (
        (
            '{"kind": "ConfigMap", "apiVersion": "v1",\n "data": {"kubelet": "kind: KubeletConfiguration\\napiVersion: '
            'kubelet.config.k8s.io/v1beta1\\ncpuManagerPolicy: static\\n"}}'
        ),
        STATIC,
        "given:2",
    ),
    "List": (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  data:\n    kubelet: |\n"
        + indented(FILE, 6),
        BOTH,
        "given:10",
    ),
    "hosted control plane": (
        (
            "kind: ConfigMap\ndata:\n  config: |\n    apiVersion: machineconfiguration.openshift.io/v1\n"
            "    kind: KubeletConfig\n    spec:\n      kubeletConfig: {cpuManagerPolicy: static, maxPods: 7}\n"
        ),
        BOTH,
        "given:7",
    ),
    "Bottlerocket": (
        (
            '[settings.kubernetes]\ncluster-name = "demo"\ncpu-manager-policy = "static"\nmax-pods = 7\n'
            'cpu-manager-policy-options = ["full-pcpus-only"]\n[settings.kubernetes.kube-reserved]\ncpu = "1"\n'
            '[settings.kubernetes.eviction-hard]\n"memory.available" = "15%"\n'
            '[settings.kubernetes.memory-manager-reserved-memory.0]\nenabled = true\nmemory = "993Mi"\n'
            '[settings.kubernetes.memory-manager-reserved-memory.1]\nenabled = false\nmemory = "1Mi"\n'
        ),
        {
            **BOTH,
            "cpuManagerPolicyOptions.full-pcpus-only": "true",
            "kubeReserved.cpu": "1",
            "evictionHard.memory.available": "15%",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "993Mi"}}],
        },
        "given:3",
    ),
    "EC2NodeClass with Bottlerocket": (
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec:\n  kubelet: {maxPods: 7}\n  userData: |\n"
            '    [settings.kubernetes]\n    cpu-manager-policy = "static"\n'
        ),
        STATIC,
        "given:7",
    ),
    "AKSNodeClass of Karpenter": (
        (
            "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nspec:\n  maxPods: 7\n  kubelet:\n"
            "    cpuManagerPolicy: static\n    cpuCFSQuota: false\n"
        ),
        {**BOTH, "kubeReserved.cpu": "180m", "cpuCFSQuota": False},
        "given:6:5",
    ),
    "eksctl": (
        (
            "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmanagedNodeGroups:\n- name: plain\nnodeGroups:\n"
            "- name: pinned\n  kubeletExtraConfig:\n    cpuManagerPolicy: static\n    maxPods: 7\n"
        ),
        {**BOTH, "kubeReserved.memory": "332Mi", "kubeReserved.cpu": "90m"},
        "given:8:5",
    ),
    "eksctl with a script": (
        (
            "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmanagedNodeGroups:\n- name: pinned\n"
            "  overrideBootstrapCommand: |\n    #!/bin/bash\n    /etc/eks/bootstrap.sh demo "
            "--kubelet-extra-args '--cpu-manager-policy=static --max-pods=7'\n"
        ),
        BOTH,
        "given:7",
    ),
    "kops": (
        (
            "apiVersion: kops.k8s.io/v1alpha2\nkind: InstanceGroup\nspec:\n  kubelet:\n    anonymousAuth: false\n"
            "    cpuManagerPolicy: static\n    evictionHard: memory.available<200Mi,nodefs.available<10%\n"
            "    featureGates: {CPUManagerPolicyAlphaOptions: 'true'}\n"
        ),
        {
            **STATIC,
            "evictionHard.memory.available": "200Mi",
            "featureGates.CPUManagerPolicyAlphaOptions": True,
        },
        "given:6:5",
    ),
    "Cluster API": (
        (
            "apiVersion: controlplane.cluster.x-k8s.io/v1beta1\nkind: KubeadmControlPlane\nspec:\n"
            "  kubeadmConfigSpec:\n"
            "    initConfiguration: {nodeRegistration: {kubeletExtraArgs: {cpu-manager-policy: static}}}\n"
            "    joinConfiguration: {nodeRegistration: {kubeletExtraArgs: {cpu-manager-policy: static}}}\n"
        ),
        STATIC,
        "given:5:",
    ),
    "Cluster API v1beta2": (
        (
            "apiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nspec: {template: {spec: "
            "{joinConfiguration: {nodeRegistration: {kubeletExtraArgs: "
            "[{name: cpu-manager-policy, value: static}]}}}}}\n"
        ),
        STATIC,
        "given:3:",
    ),
    "Cluster API with a patch of kubeadm": (
        "apiVersion: bootstrap.cluster.x-k8s.io/v1beta1\nkind: KubeadmConfigTemplate\nspec:\n  template:\n    spec:\n"
        "      files:\n      - path: /etc/kubernetes/patches/kubeletconfiguration0+strategic.yaml\n        content: |\n"
        + indented(FILE, 10),
        BOTH,
        "given:11",
    ),
    "kind": (
        "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nkubeadmConfigPatches:\n- |\n"
        + indented(FILE, 2)
        + "nodes:\n- role: control-plane\n- role: worker\n  kubeadmConfigPatches:\n  - |\n    kind: JoinConfiguration\n"
        "    nodeRegistration:\n      kubeletExtraArgs:\n        reserved-cpus: '0'\n",
        {**BOTH, "reservedSystemCPUs": "0"},
        "given:7",
    ),
    "Gardener": (
        (
            "apiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\nspec:\n  kubernetes:\n    version: 1.33.4\n"
            "    kubelet:\n      cpuManagerPolicy: static\n"
            "      evictionHard: {memoryAvailable: 200Mi, nodeFSAvailable: 5%}\n"
        ),
        {**STATIC, "evictionHard.memory.available": "200Mi", "evictionHard.nodefs.available": "5%"},
        "given:7:7",
    ),
    "k0s": (
        (
            "apiVersion: k0s.k0sproject.io/v1beta1\nkind: ClusterConfig\nspec:\n  workerProfiles:\n  - name: pinned\n"
            "    values:\n      cpuManagerPolicy: static\n      maxPods: 7\n"
        ),
        BOTH,
        "given:7:7",
    ),
    "k0sctl": (
        (
            "apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\nspec:\n  hosts:\n  - role: worker\n"
            '    installFlags:\n    - --kubelet-extra-args="--cpu-manager-policy=static --max-pods=7"\n'
        ),
        BOTH,
        "given:7",
    ),
    "Rancher": (
        (
            "apiVersion: provisioning.cattle.io/v1\nkind: Cluster\nspec:\n  rkeConfig:\n    machineGlobalConfig:\n"
            "      cni: calico\n    machineSelectorConfig:\n    - config:\n        kubelet-arg:\n"
            "        - cpu-manager-policy=static\n        - max-pods=7\n"
        ),
        BOTH,
        "given:10:",
    ),
    "RKE1": (
        (
            "nodes:\n- address: 10.0.0.1\n  role: [worker]\nauthentication: {strategy: x509}\nservices:\n  kubelet:\n"
            "    cluster_domain: cluster.local\n    extra_args:\n      cpu-manager-policy: static\n      max-pods: 7\n"
        ),
        BOTH,
        "given:9:",
    ),
    "Kubespray": (
        (
            "---\nkubelet_cpu_manager_policy: static\nkubelet_max_pods: 7\nkube_reserved: true\n"
            "kube_cpu_reserved: 200m\n"
            "kube_version: 1.33.4\nkubelet_topology_manager_policy: restricted\n"
        ),
        {**BOTH, "kubeReserved.cpu": "200m", "topologyManagerPolicy": "restricted"},
        "given:2:1",
    ),
    "Kubespray, other fields": (
        "kube_network_plugin: calico\nkubelet_config_extra_args:\n  cpuManagerPolicy: static\n  maxPods: 7\n",
        BOTH,
        "given:3:3",
    ),
    "minikube's profile": (
        (
            '{"Name": "minikube", "KubernetesConfig": {"ExtraOptions": [\n {"Component": "apiserver", "Key": "v", '
            '"Value": "9"},\n {"Component": "kubelet", "Key": "cpu-manager-policy", "Value": "static"}]}}'
        ),
        STATIC,
        "given:3:",
    ),
    "minikube's command": (
        "minikube start --extra-config=kubelet.cpu-manager-policy=static --extra-config=kubelet.max-pods=7\n",
        BOTH,
        "given:1",
    ),
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
    "MachineConfig with a unit": (
        (
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nspec:\n  config:\n    systemd:\n"
            f'      units:\n      - name: kubelet.service\n        dropins:\n        - contents: "{UNIT}"\n'
        ),
        BOTH,
        "given:9",
    ),
    "cloud-init": (
        (
            "#cloud-config\nwrite_files:\n- path: /etc/kubelet.yaml\n  encoding: gz+b64\n  content: "
            f"{base64.b64encode(gzip.compress(FILE.encode(), mtime=0)).decode()}\n"
        ),
        BOTH,
        "given:5",
    ),
    "cloud-init with k3s": (
        (
            "#cloud-config\nwrite_files:\n- path: /etc/rancher/k3s/config.yaml\n  content: |\n    kubelet-arg:\n"
            "    - cpu-manager-policy=static\n"
        ),
        STATIC,
        "given:6",
    ),
    "a script with a file in it": (
        "#!/bin/bash\nset -e\ncat > /etc/kubelet.yaml <<'EOF'\n" + FILE + "EOF\nsystemctl restart kubelet\n",
        BOTH,
        "given:6",
    ),
    "systemd, single quotes": (
        "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--cpu-manager-policy=static --max-pods=7'\n",
        BOTH,
        "given:2",
    ),
    "systemd, another name": (
        (
            '[Service]\nEnvironment="KUBELET_OPTS=--cpu-manager-policy=static" "OTHER=a"\nExecStart=\n'
            "ExecStart=/usr/bin/kubelet $KUBELET_OPTS\n"
        ),
        STATIC,
        "given:2",
    ),
    "ps": (
        (
            "USER PID %CPU COMMAND\nroot 1234 2.0 /usr/bin/kubelet --cpu-manager-policy=static --max-pods=7 --v=2\n"
            "root 1300 0.0 grep kubelet\n"
        ),
        BOTH,
        "given:2",
    ),
    "ps of k3s": (
        "root 77 1.0 /usr/local/bin/k3s agent --kubelet-arg=cpu-manager-policy=static --kubelet-arg max-pods=7\n",
        BOTH,
        "given:1",
    ),
    "log of a kubelet": (
        (
            'Nov 28 10:00:00 n kubelet[9]: I1128 10:00:00.1 9 flags.go:64] FLAG: --cpu-manager-policy="static"\n'
            'Nov 28 10:00:00 n kubelet[9]: I1128 10:00:00.1 9 flags.go:64] FLAG: --max-pods="7"\n'
            'Nov 28 10:00:00 n kubelet[9]: I1128 10:00:00.1 9 flags.go:64] FLAG: --topology-manager-policy="none"\n'
            'Nov 28 10:00:00 n kubelet[9]: I1128 10:00:00.1 9 flags.go:64] FLAG: --kube-reserved=""\n'
        ),
        BOTH,
        "given:1",
    ),
    "Terraform with Bottlerocket": (
        """  bootstrap_extra_args = <<-EOT
    settings.kubernetes.cpu-manager-policy = "static"
    settings.kubernetes.max-pods = 7
  EOT
""",
        {**BOTH, "kubeReserved.cpu": "90m"},
        "given:2",
    ),
    "Terraform with RKE": (
        """kubelet {
  extra_args = {
    cpu-manager-policy = "static"
    max-pods           = "7"
  }
}
""",
        BOTH,
        "given:3",
    ),
    "a list of flags alone": (
        """- "cpu-manager-policy=static" # pins
- "max-pods=7"
""",
        BOTH,
        "given:1:3",
    ),
    "flags in a variable of a script": (
        """#!/bin/bash
KubeletExtraArguments="--cpu-manager-policy=static --max-pods=7"
cat << EOF > /etc/systemd/system/kubelet.service.d/90.conf
[Service]
Environment='USERDATA_EXTRA_ARGS=$KubeletExtraArguments'
EOF
""",
        BOTH,
        "given:2",
    ),
    "Kubean": (
        """kind: ConfigMap
data:
  group_vars.yml: |
    kubelet_max_pods: 7
    kubelet_cpu_manager_policy: static
    kubelet_config_extra_args: {kubeAPIQPS: 50}
    kube_cpu_reserved: 1
""",
        {**BOTH, "kubeReserved.cpu": "1"},
        "given:5",
    ),
    "MKE": (
        """[cluster_config]
  custom_kubelet_flags = ["--cpu-manager-policy=static"]
  kubelet_max_pods = 7
""",
        BOTH,
        "given:2",
    ),
    "a charm's configuration": (
        """juju config kubernetes-worker kubelet-extra-config='{cpuManagerPolicy: static, maxPods: 7}'
""",
        BOTH,
        "given:1",
    ),
    "a charm's flags": (
        """juju config kubernetes-worker kubelet-extra-args="cpu-manager-policy=static max-pods=7"
""",
        BOTH,
        "given:1",
    ),
    "k3d": (
        """k3d cluster create --k3s-arg "--kubelet-arg=cpu-manager-policy=static@agent:*" \\
 --k3s-arg "--kubelet-arg=max-pods=7@agent:*"
""",
        BOTH,
        "given:1",
    ),
    "options of a charm in a bundle": (
        "applications:\n  worker:\n    options:\n      kubelet-extra-args: cpu-manager-policy=static max-pods=7\n",
        BOTH,
        "given:4",
    ),
    "ConfigMap as kubectl describes it": (
        "Name:   kubelet-config\nLabels: <none>\n\nData\n====\nkubelet:\n----\n" + FILE + "\nEvents:  <none>\n",
        BOTH,
        "given:10",
    ),
    "numbers of remarks between the lines": (FILE.replace("static\n", "static\n1\n\n"), BOTH, "given:3"),
    "user data that changes the file with jq": (
        (
            'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n--B\n'
            "Content-Type: text/x-shellscript\n\n#!/bin/bash\n"
            'echo "$(jq \'.cpuManagerPolicy="static" | .maxPods = 7\' $FILE)" > $FILE\n--B--\n'
        ),
        BOTH,
        "given:8",
    ),
    "Markdown": (f"This is the file:\n\n```yaml\n{FILE}```\n\nThanks!\n", BOTH, "given:6:1"),
    "e-mail": ("".join(f"> {line}\n" for line in FILE.splitlines()), BOTH, "given:3:1"),
    "colours and Windows": (FILE.replace("\n", "\x1b[0m\r\n"), BOTH, "given:3:1"),
}
"""What is given -> fields in force, and the place of the CPU manager's policy."""


def loaded(folder: Path, text: str, chosen: str = "") -> NodeConfiguration:
    file = folder / "given"
    file.write_text(text)
    return configuration_of(load_sources(f"{file}{chosen}"), machine=MACHINE)


@pytest.mark.parametrize("name", GIVEN)
def test_a_configuration_is_found_in_documents_of_other_tools(name: str, tmp_path: Path) -> None:
    text, expected, place = GIVEN[name]
    found = loaded(tmp_path, text)
    effective = {one.name: one for one in found.effective()}
    assert {field: effective[field].value for field in expected} == expected
    assert str(effective["cpuManagerPolicy"].place).removeprefix(f"{tmp_path}/").startswith(place)


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
