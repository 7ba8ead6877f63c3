"""Values that no kubelet takes are named with their place and the nearest value that one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.inputs.configuration.node_configuration import load_config

HEAD = "kind: KubeletConfiguration\n"


def warnings(folder: Path, text: str) -> list[str]:
    file = folder / "k.yaml"
    file.write_text(HEAD + text)
    found = [one for one in load_config(file).findings if one.code == "MOOR-515"]
    return [one.message.removeprefix(f"{file}:") for one in found]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("memoryManagerPolicy: static", "2:1: 'static' is not a value; did you mean Static?"),
        ("topologyManagerScope: node", "2:1: 'node' is not a value; known are container, pod"),
        (
            "topologyManagerPolicyOptions: {prefer-closest-numa: 'true'}",
            "2:32: 'prefer-closest-numa' is not an option; did you mean prefer-closest-numa-nodes?",
        ),
        ("cpuManagerPolicyOptions: {full-pcpus-only: 'on'}", "2:27: 'on' is not a truth value; did you mean \"true\"?"),
        ("featureGates: {MemoryQos: true}", "2:16: 'MemoryQos' is not a feature gate; did you mean MemoryQoS?"),
        ("systemReserved: {memory: 1 Gi}", "2:18: '1 Gi' is not a quantity; write one such as 2, \"500m\" or 4Gi"),
        (
            "evictionHard: {memory.available: low}",
            "2:16: 'low' is not a quantity; write one such as 2, \"500m\" or 4Gi",
        ),
        ("reservedSystemCPUs: 0..3", "2:1: '0..3' is not a list of CPUs; write one such as 0-3,8"),
    ],
)
def test_a_value_that_no_kubelet_takes_is_named(tmp_path: Path, text: str, warning: str) -> None:
    assert warnings(tmp_path, text) == [warning]


def test_what_some_kubelet_takes_is_not(tmp_path: Path) -> None:
    text = """\
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: T, distribute-cpus-across-cores: "0"}
memoryManagerPolicy: ""
topologyManagerPolicyOptions: {max-allowable-numa-nodes: "12"}
featureGates: {AllAlpha: true, MemoryManager: true}
evictionHard: {memory.available: 5%, nodefs.available: 1Gi}
reservedSystemCPUs: ""
"""
    assert warnings(tmp_path, text) == []
    configz = '{"kubeletconfig": {"cpuManagerPolicy": "Static"}}'
    (tmp_path / "z.json").write_text(configz)
    [found] = load_config(tmp_path / "z.json").findings
    assert (found.subject, found.message.rpartition("z.json:")[2]) == (
        "kubeletconfig.cpuManagerPolicy",
        "1:20: 'Static' is not a value; did you mean static?",
    )


def test_values_in_flags_and_files_of_vendors_have_their_place(tmp_path: Path) -> None:
    file = tmp_path / "args"
    file.write_text("--cpu-manager-policy=Static\n--max-pods=50\n")
    told = [one.message.removeprefix(f"{file}:") for one in load_config(file).findings if one.code == "MOOR-515"]
    assert told == ["1: 'Static' is not a value; did you mean static?"]
