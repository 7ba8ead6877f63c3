"""A node archive is read whole or refused in one line, whatever made it."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.cli.command import mooring
from tests.values import cases

from mooring.documents.machine import ArchivePart, NodeArchiveDocument, UnreadFile
from mooring.engine.core.errors import InputError
from mooring.engine.releases.config_fields import CHECKED_FIELDS
from mooring.inputs.archive.reader import NodeArchive, about_of, open_node
from mooring.inputs.configuration.kubelet_config import KNOWN, READ, kubelet_config
from mooring.inputs.configuration.kubelet_flags import kubelet_flags, merged_configuration
from mooring.inputs.machines.archive import archive_bytes
from mooring.inputs.pods.defaults import DELAY_GATE, PodGates
from mooring.inputs.pods.pod_files import active_pods
from mooring.inputs.pods.pods import pod_from_object

SYSTEM = "sys/devices/system"
FILES = {
    f"{SYSTEM}/cpu/online": "0-1\n",
    "proc/cpuinfo": "flags : lm\ncpu MHz : 1000.0\n",
    "proc/meminfo": "MemTotal: 4096 kB\nSwapTotal: 0 kB\n",
} | {
    f"{SYSTEM}/cpu/cpu{cpu}/topology/{name}": f"{value}\n"
    for cpu in (0, 1)
    for name, value in (("core_id", cpu), ("physical_package_id", 0), ("core_cpus", cpu + 1), ("package_cpus", 3))
}
POD = {"kind": "Pod", "metadata": {"name": "a", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}


OF_KUBELET = "var/lib/kubelet/config.yaml"
NO_FILES: Mapping[str, str] = {}


def collected(
    folder: Path, *options: str | Path, flags: str | None = None, files: Mapping[str, str] = NO_FILES, code: int = 0
) -> Any:
    """Collect a computer with these files, on which a kubelet may run with flags.

    Return what the archive says of itself; with the exit code 2 the complaint.
    """
    running = {} if flags is None else {"proc/11/comm": "kubelet\n", "proc/11/cmdline": flags.replace(" ", "\0") + "\0"}
    for path, text in {**FILES, **running, **files}.items():
        (folder / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / path).write_text(text, encoding="utf-8")
    to = ("--to", folder / "node.tar.gz", "-o", "json")
    answered = mooring("collect", "--root", folder / "root", "--no-kubectl", *options, *to, code=code)
    return answered.complaint if code else answered.document


def packed(folder: Path) -> dict[str, bytes]:
    """Return the files of the archive that was collected."""
    with tarfile.open(folder / "node.tar.gz") as archive:
        found = {one.name.removeprefix("mooring-node/"): archive.extractfile(one) for one in archive}
        return {name: file.read() for name, file in found.items() if file is not None}


def opened(folder: Path, files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> NodeArchive:
    file = folder / "node.tar.gz"
    file.write_bytes(archive_bytes("mooring-node", {**files}, {**(links or {})}))
    return open_node(str(file))


def configuration_of(folder: Path, files: Mapping[str, str], flags: str | None = None) -> Any:
    """Return the configuration that is packed; where none is, why."""
    about = collected(folder, flags=flags, files=files)
    (part,) = (one for one in about["parts"] if one["name"] == "configuration")
    return json.loads(packed(folder)["kubelet/config.json"]) if part["files"] else part["missing"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of an archive that has a configuration and a pod."""
    folder = tmp_path_factory.mktemp("whole")
    given = {"kind": "KubeletConfiguration", "cpuManagerPolicy": "static"}
    for name, document in (("k.json", given), ("pods.json", {"kind": "List", "items": [POD]})):
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    collected(folder, "--config", folder / "k.json", "--pods", folder / "pods.json")
    return packed(folder)


def test_what_an_archive_lacks_is_a_warning_unless_it_is_given_besides(tmp_path: Path) -> None:
    collected(tmp_path)
    node = open_node(str(tmp_path / "node.tar.gz"))
    told = node.findings()
    assert [finding.message.partition(":")[0].partition(",")[0] for finding in told] == [
        "the archive has no configuration of the kubelet",
        "the archive lacks state files",
        "the archive has no pods",
    ]
    rest = node.findings(["configuration", "pods"])
    assert [finding.message for finding in rest] == [told[1].message]


def test_drop_ins_of_a_kubelet_are_merged_in_the_order_of_their_names(tmp_path: Path) -> None:
    files = {"d/20.conf": "maxPods: 3\nfeatureGates: {B: true}", "d/10.conf": "maxPods: 2", "d/x.yaml": "maxPods: 9"}
    more = {"c/10": "maxPods: 1", "k": "featureGates: {A: true}"}
    document = configuration_of(tmp_path, files | more, "kubelet --config=/k --config-dir=/d")
    assert (document["maxPods"], document["featureGates"]) == (3, {"A": True, "B": True})


@pytest.mark.parametrize(
    ("files", "flags", "missing"),
    [
        pytest.param({}, None, "/var/lib/kubelet/config.yaml is not there", id="absent"),
        pytest.param({OF_KUBELET: "a: ["}, None, "/var/lib/kubelet/config.yaml: ", id="damaged"),
        pytest.param({OF_KUBELET: "[]"}, None, "holds no mapping", id="list"),
        pytest.param({}, "kubelet --config=/gone.yaml --max-pods=1", "/gone.yaml is not there", id="flags alone"),
    ],
)
def test_a_configuration_that_cannot_be_had_is_missing_with_the_reason(
    files: dict[str, str], flags: str | None, missing: str, tmp_path: Path
) -> None:
    assert missing in configuration_of(tmp_path, files, flags)


def test_a_kubelet_without_a_file_has_its_defaults_and_flags(tmp_path: Path) -> None:
    assert "maxPods" not in configuration_of(tmp_path, {OF_KUBELET: "maxPods: 1"}, "kubelet")


@pytest.mark.parametrize(("text", "problem"), cases(__file__, "no-archives.yaml", "text", "says"))
def test_another_archive_is_refused_in_one_line(tmp_path: Path, text: str | None, problem: str) -> None:
    about = {} if text is None else {"mooring-node.json": text.encode()}
    with pytest.raises(InputError) as refused:
        opened(tmp_path, {"sys/a": b"", **about})
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("target", ["/etc/hostname", "../../../../etc/hostname", "../mooring-node/pods.json"])
def test_links_out_of_an_archive_lead_nowhere(tmp_path: Path, whole: dict[str, bytes], target: str) -> None:
    links = dict.fromkeys(("pods.json", "kubelet/cpu_manager_state", "mooring/devices.json"), target)
    node = opened(tmp_path, {name: data for name, data in whole.items() if name not in links}, links)
    assert (node.pod_documents(), node.state().cpu) == ((), None)


def test_an_archive_without_a_machine_says_so(tmp_path: Path) -> None:
    about = json.dumps(to_builtins(NodeArchiveDocument())).encode()
    node = opened(tmp_path, {"proc/meminfo": b"", "mooring-node.json": about})
    with pytest.raises(InputError, match="holds no machine"):
        node.machine()


def test_what_an_archive_says_of_itself_is_read_again() -> None:
    about = NodeArchiveDocument(
        node="n",
        kubelet="v1.37.1",
        anonymous=True,
        parts=[ArchivePart("pods", "kubectl", 1, 2, "x")],
        unread=[UnreadFile("a", "b")],
        mooring="0.1.0",
    )
    read = about_of(to_builtins(about), source="x")
    assert (read.node, read.kubelet, read.anonymous, read.mooring) == ("n", "v1.37.1", True, "0.1.0")
    assert [(part.name, part.origin, part.missing) for part in read.parts] == [("pods", "kubectl", "x")]


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sampled_from(["mooring-node.json", "kubelet/config.json", "pods.json", "kubelet/cpu_manager_state"]),
    st.one_of(st.binary(max_size=60), st.text(max_size=40).map(str.encode)),
)
def test_whatever_stands_in_an_archive_it_is_read_or_refused(
    tmp_path: Path, whole: dict[str, bytes], path: str, data: bytes
) -> None:
    files = {**whole, path: data}
    try:
        node = opened(tmp_path, files)
        node.state()
        node.machine()
        active_pods(node.pod_documents(), node.about.node)
        node.configuration()
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - it need not be raised


# Reduced documents hold what decides, and decide the same; flags are read as the kubelet reads them.


AMOUNTS = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
POD_REDUCTION: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": {"x": "y"}, "labels": {"a": "b"}},
    "spec": {
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": AMOUNTS, "image": "x"}],
        "containers": [{"name": "c", "resources": AMOUNTS, "env": []}, {"name": "d"}],
        "resources": {"requests": {"cpu": "4"}},
        "overhead": {"cpu": "100m"},
        "priorityClassName": "system-node-critical",
        "scaleDownGracePeriodSeconds": 3,
        "volumes": [],
    },
    "status": {"phase": "Running", "qosClass": "Burstable", "podIP": "1.2.3.4"},
}


def packed_pods(folder: Path, *documents: object, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    (folder / "pods.json").write_text(json.dumps({"kind": "List", "items": documents}), encoding="utf-8")
    collected(folder, "--pods", folder / "pods.json", *options)
    listed = json.loads(packed(folder)["pods.json"])
    assert listed["kind"] == "PodList"
    items: list[dict[str, Any]] = listed["items"]
    return items


def annotated(folder: Path, annotations: dict[str, str]) -> dict[str, Any]:
    """Return what stays of the pod with these annotations."""
    metadata = {**POD_REDUCTION["metadata"], "annotations": annotations}
    (reduced,) = packed_pods(folder, {**POD_REDUCTION, "metadata": metadata})
    return reduced


def test_a_reduced_pod_is_the_same_pod(tmp_path: Path) -> None:
    (reduced,) = packed_pods(tmp_path, POD_REDUCTION)
    whole = {**POD_REDUCTION, "metadata": {**POD_REDUCTION["metadata"], "annotations": {}}}
    gates = PodGates.of({DELAY_GATE: True}, {"scale-down-delay"})
    assert pod_from_object(reduced, source="x", gates=gates) == pod_from_object(whole, source="x", gates=gates)
    assert set(reduced["spec"]["containers"][0]) == {"name", "resources"}
    assert set(reduced["status"]) == {"phase", "qosClass"}


def test_a_mirror_pod_keeps_the_uid_that_its_kubelet_knows(tmp_path: Path) -> None:
    reduced = annotated(tmp_path, {"kubernetes.io/config.mirror": "0123", "other": "x"})
    assert pod_from_object(reduced, source="x").uid == "0123"
    assert "other" not in reduced["metadata"]["annotations"]


def test_annotations_that_decide_stay_and_others_go(tmp_path: Path) -> None:
    deciding = {
        "mooring/mixed-cpus": "c",
        "mooring/irq-affinity": "follow",
        "mooring/core-kind": "performance",
        "mooring/hide-siblings": "true",
        "mooring/isolated-cpus": "true",
        "mooring/spread-group": "web",
        "mooring/scale-down-grace-period-seconds": "10",
    }
    stays = annotated(tmp_path, {**deciding, "mooring/token": "s3cret", "x": "y"})
    assert stays["metadata"]["annotations"] == deciding


def test_the_groups_of_pods_that_are_spread_get_made_up_names(tmp_path: Path) -> None:
    def pod(name: str, group: str) -> dict[str, Any]:
        annotations = {"mooring/spread-group": group, "mooring/core-kind": "any"} if group else {}
        return {**POD, "metadata": {"name": name, "annotations": annotations}}

    asked = pod("a", "shop"), pod("b", "bank"), pod("c", "shop"), pod("d", "")
    made = packed_pods(tmp_path, *asked, options=("--anonymous",))
    found = [one["metadata"].get("annotations", {}) for one in made]
    assert len({one.get("mooring/spread-group") for one in found[:2]}) == 2
    assert found[0] == found[2]
    assert found[0].keys() == {"mooring/spread-group", "mooring/core-kind"}
    assert found[3] == {}
    assert not {"shop", "bank"} & {one.get("mooring/spread-group") for one in found}


def test_something_else_than_a_container_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"kind": "Pod", "spec": {"containers": ["x"]}}', encoding="utf-8")
    refused = collected(tmp_path, "--pods", tmp_path / "odd.json", code=2)
    assert "must be a mapping" in refused


def test_equal_names_stay_equal_when_they_are_made_up(tmp_path: Path) -> None:
    names = [("web", "shop"), ("web", "bank"), ("db", "shop")]
    metadata = ({"name": name, "namespace": space, "generateName": f"{name}-"} for name, space in names)
    made = packed_pods(tmp_path, *({**POD, "metadata": one} for one in metadata), options=("--anonymous",))
    assert [(pod["metadata"]["name"], pod["metadata"]["namespace"]) for pod in made] == [
        ("pod-2", "namespace-1"),
        ("pod-1", "namespace-2"),
        ("pod-2", "namespace-2"),
    ]
    assert all("generateName" not in pod["metadata"] for pod in made)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(sorted(KNOWN - {"kind", "apiVersion"})), min_size=1))
def test_of_a_configuration_exactly_the_fields_that_decide_are_kept(tmp_path: Path, names: set[str]) -> None:
    content: dict[str, Any] = dict.fromkeys(names, "secret")
    reduced = configuration_of(tmp_path, {OF_KUBELET: json.dumps(content)})
    decide = READ.union(one.name.partition(".")[0] for one in CHECKED_FIELDS) - {"preloadedImagesVerificationAllowlist"}
    assert set(reduced) == {"apiVersion", "kind", *(names & decide)}


def test_a_reduced_configuration_is_the_same_configuration_and_reports_the_same(tmp_path: Path) -> None:
    content = {
        "cpuManagerPolicy": "static",
        "maxPods": 9,
        "cpuManagerPolcy": "x",
        "address": "::",
        "featureGates": {"A": True},
    }
    told, again = list[Any](), list[Any]()
    whole = kubelet_config(content, source="x", report=told.append)
    reduced = configuration_of(tmp_path, {OF_KUBELET: json.dumps(content)})
    assert kubelet_config(reduced, source="x", report=again.append) == whole
    assert told == again
    assert len(told) == 1


@pytest.mark.parametrize(("fields", "arguments"), cases(__file__, "flags.yaml", "fields", "arguments"))
def test_flags_that_decide_become_fields(arguments: list[str], fields: dict[str, Any]) -> None:
    assert kubelet_flags(arguments).fields == fields
    kubelet_config(dict(fields) or {"maxPods": 1}, source="x")


def test_flags_tell_where_the_kubelet_looks() -> None:
    flags = kubelet_flags(["--config=/c", "--config-dir=/d", "--root-dir", "/r", "--hostname-override=n"])
    assert (flags.config, flags.config_dir, flags.root_dir, flags.node) == ("/c", "/d", "/r", "n")


@given(st.lists(st.text(max_size=20), max_size=8))
def test_no_command_line_is_too_strange(arguments: list[str]) -> None:
    kubelet_flags(arguments)


def test_a_drop_in_merges_maps_and_replaces_lists() -> None:
    base = {"featureGates": {"A": True}, "reservedMemory": [1], "maxPods": 1, "port": 2}
    patch = {"featureGates": {"B": True}, "reservedMemory": [2], "port": None}
    merged = {"featureGates": {"A": True, "B": True}, "reservedMemory": [2], "maxPods": 1}
    assert merged_configuration(base, patch) == merged


def bare(name: str, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": status or {}}


def named(pods: Sequence[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["name"] for one in pods]


def test_pods_that_are_bound_to_another_node_are_left_out(tmp_path: Path) -> None:
    nodes = {"here": "n1", "elsewhere": "n2", "unbound": ""}
    items = [bare(name, nodeName=node, containers=[{"name": "c"}]) for name, node in nodes.items()]
    pods = {"kind": "List", "items": items}
    assert named(packed_pods(tmp_path, pods, options=("--node-name", "n1"))) == ["here", "unbound"]
    assert len(packed_pods(tmp_path, pods)) == 3
