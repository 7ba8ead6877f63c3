"""Configurations as vendors' public documentation shows them, rewritten small: what the kubelet then has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.values import cases, refusal

from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.configuration.node_configuration import NodeConfiguration, configuration_of, named_versions
from mooring.inputs.configuration.sources import ConfigurationSource, load_sources, sources_of
from mooring.inputs.decoding.fields import Document, Value

FOLDER = Path(__file__).parent / "shown"
MACHINE = MachineInfo(8, 1, 16 * 1024**3, ())

CASES: dict[str, Any] = yaml.safe_load((FOLDER.parent / "cases.yaml").read_text(encoding="utf-8"))
SHOWN: dict[str, dict[str, Any]] = CASES["shown"]


def loaded(*paths: Path) -> NodeConfiguration:
    return configuration_of((source for path in paths for source in load_sources(path)), machine=MACHINE)


def written(folder: Path, text: str, name: str = "given") -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.parametrize(("name", "expected"), SHOWN.items(), ids=SHOWN)
def test_what_documentation_shows_is_read(name: str, expected: dict[str, Any]) -> None:
    found = loaded(FOLDER / name)
    values = {one.name: one.value for one in found.effective()}
    assert {name: values.get(name) for name in expected} == expected
    assert [one for one in found.findings if one.code == "MOOR-501"] == []


ODD: tuple[Value, ...] = (None, [], {}, "x", "", 1, -1, 1.5, True, [1], [{}], {"a": {"b": 1}}, 10**20)
DOCUMENTS = [one for name in SHOWN for one in load_sources(FOLDER / name)]


def changed(content: Value, data: st.DataObject) -> Value:
    """Return content with something odd at one place in it."""
    if isinstance(content, dict) and content and data.draw(st.integers(0, 3)):
        key = data.draw(st.sampled_from(sorted(content)))
        return {**content, key: changed(content[key], data)}
    if isinstance(content, list) and content and data.draw(st.integers(0, 3)):
        return [changed(content[0], data), *content[1:]]
    return data.draw(st.sampled_from(ODD))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.data())
def test_odd_content_is_read_or_refused_in_one_line(shown: ConfigurationSource, data: st.DataObject) -> None:
    document = shown.document
    odd = Document(changed(document.content, data), "odd", 1, 1)
    refused = ""
    try:
        list(named_versions(sources_of([odd])))
        configuration_of([odd], machine=MACHINE).effective()
    except InputError as error:
        refused = str(error)
    assert "\n" not in refused


@pytest.mark.parametrize("case", CASES["misspelt"], ids=lambda case: str(case["hint"]))
def test_a_misspelt_field_of_each_wrapper_is_reported_with_its_line(tmp_path: Path, case: dict[str, Any]) -> None:
    found = loaded(written(tmp_path, case["text"]))
    [message] = [one.message for one in found.findings if one.code == "MOOR-501"]
    assert f"given:{case['line']}:" in message
    assert f"did you mean {case['hint']}?" in message


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: str(case["error"]))
def test_what_cannot_be_used_is_one_line(tmp_path: Path, case: dict[str, Any]) -> None:
    said = refusal(loaded, written(tmp_path, case["text"]))
    assert case["error"] in said
    assert "\n" not in said


MERGED = yaml.safe_load((FOLDER.parent / "merged.yaml").read_text(encoding="utf-8"))
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def drop_ins(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / "d" / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(KUBELET + text)
    return folder / "d"


@pytest.mark.parametrize("case", MERGED, ids=lambda case: str(case["name"]))
def test_files_flags_and_drop_ins_are_merged_as_by_the_kubelet(tmp_path: Path, case: dict[str, Any]) -> None:
    for name, content in case["given"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path, content if isinstance(content, str) else KUBELET + yaml.safe_dump(content), name)
    paths = [tmp_path / name for name in dict.fromkeys(name.partition("/")[0] for name in case["given"])]
    # The order of files counts among files of k3s only.
    for order in (paths, paths[::-1] if "a.yaml" not in case["given"] else paths):
        found = loaded(*order)
        merged = case.get("merged", {})
        assert {field: found.merged.get(field) for field in merged} == merged
        assert found.kubelet.eviction_hard == case.get("thresholds", found.kubelet.eviction_hard)


def test_a_drop_in_without_its_kind_is_refused_as_by_the_kubelet(tmp_path: Path) -> None:
    folder = drop_ins(tmp_path, **{"10_conf": ""})
    (folder / "10.conf").write_text("maxPods: 1\n")
    assert "the kubelet refuses a drop-in without apiVersion" in refusal(loaded, folder)


def test_each_field_names_the_place_that_set_it(tmp_path: Path) -> None:
    file = written(tmp_path, f"{KUBELET}maxPods: 1\nkubeReserved:\n  cpu: '1'\n  memory: 1Gi\n", "k.yaml")
    folder = drop_ins(tmp_path, **{"10_conf": "kubeReserved:\n  cpu: '1'\n"})
    flags = written(tmp_path, "--v=2\n--max-pods=7\n", "flags")
    found = {one.name: str(one.place).removeprefix(f"{tmp_path}/") for one in loaded(file, folder, flags).effective()}
    assert found == {"kubeReserved.cpu": "d/10.conf:4:3", "kubeReserved.memory": "k.yaml:6:3", "maxPods": "flags:2"}


def test_two_files_of_the_kubelet_are_refused(tmp_path: Path) -> None:
    talos = written(tmp_path, "version: v1alpha1\nmachine: {kubelet: {extraConfig: {maxPods: 1}}}\n", "talos.yaml")
    own = written(tmp_path, f"{KUBELET}maxPods: 1\n", "k.yaml")
    with pytest.raises(InputError, match=r"a second configuration of the kubelet; the first is in .*talos\.yaml"):
        loaded(talos, own)


def test_files_that_flags_name_and_that_are_not_given_are_named(tmp_path: Path) -> None:
    flags = written(tmp_path, "kubelet --config=/k.yaml --config-dir=/k.d\n", "flags")
    own = written(tmp_path, f"{KUBELET}maxPods: 1\n", "k.yaml")
    assert [one.message.split(":")[0] for one in loaded(flags, own).findings] == ["the kubelet also reads /k.d"]


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "named-versions.yaml", "text", "names"))
def test_a_vendors_file_names_the_kubelets_version_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    found = named_versions(load_sources(written(tmp_path, text)))
    assert [f"{one.version} {str(one.place.source).removeprefix(f'{tmp_path}/')}" for one in found] == [
        expected
    ] * bool(expected)


def test_a_version_that_is_no_string_is_refused_with_its_line(tmp_path: Path) -> None:
    cluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: 1.36\n"
    with pytest.raises(InputError, match=r"given:3:1: kubernetesVersion: must be a string, not a number"):
        list(named_versions(load_sources(written(tmp_path, cluster))))


NODE_CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: %s}}\n"
MEMORY = "kubeReserved: {memory: 1Gi}\n"


def test_what_a_vendor_does_not_tell_is_reported_once_and_not_where_something_sets_it(tmp_path: Path) -> None:
    other = "{maxPods: 9}"

    def told(text: str, *more: Path) -> list[str]:
        found = loaded(written(tmp_path, text), *more).findings
        return [one.message.removeprefix(f"{tmp_path}/") for one in found if one.code == "MOOR-514"]

    assert [one[:10] for one in told(NODE_CONFIG % other + "---\n" + NODE_CONFIG % other)] == ["given: EKS"]
    for texts in ((other, f"{{{MEMORY.strip()}}}"), (f"{{{MEMORY.strip()}}}", other)):
        assert told("---\n".join(NODE_CONFIG % text for text in texts)) == []
    # A flag replaces the vendor's whole reservation; a drop-in adds to it.
    flags = written(tmp_path, "--kube-reserved=cpu=1\n", "flags")
    assert told(NODE_CONFIG % other, flags) == []
    cpu, memory = drop_ins(tmp_path / "a", x_conf="kubeReserved: {cpu: '1'}\n"), drop_ins(tmp_path / "b", x_conf=MEMORY)
    for text in (NODE_CONFIG % other, '{"cpuCfsQuota": true}'):
        assert (len(told(text, cpu)), told(text, memory)) == (1, [])


def test_a_profile_beside_a_kubelet_config_is_refused_with_what_openshift_does() -> None:
    files = [FOLDER / "performance-v1.yaml", FOLDER / "openshift-kubeletconfig.yaml"]
    for order in (files, files[::-1], files[1:] * 2):
        with pytest.raises(InputError, match="a second KubeletConfig or PerformanceProfile") as raised:
            loaded(*order)
        assert "created last decides alone" in raised.value.remedy
