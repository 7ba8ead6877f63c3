"""Every kind of input that a verb reads from a file, with the commands that read it: what a sweep damages."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from msgspec import to_builtins
from tests.agent.outside.nodes import busy, snapshot_of
from tests.agent.outside.test_agent_status import COUNTS
from tests.cli.command import CORPORA, EXAMPLES, mooring
from tests.cli.made_up_node import CONFIG, kubelet_pods, make_root
from tests.cli.test_cli_cluster_node import KUBECTL, node_object, pod
from tests.cli.test_cli_status_shadow import AGREED, DIFFERS, counted
from tests.cli.test_cli_vendors import ALLOCATABLE, HELD
from tests.configuration.test_configuration_embedded import FOLDER as EMBEDDED
from tests.configuration.test_configuration_embedded import GIVEN
from tests.discovery import tool_outputs
from tests.discovery.test_discovery_pasted import PASTED
from tests.inputs import speaking_plugin

from mooring.agent.status import status_document
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.scenario import Scenario, load_scenarios

MACHINE = ("--machine", "sockets=1 numa=2 cores=16 threads=2 memory=128Gi")
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2548Mi"}}],
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "container",
    "reservedSystemCPUs": "0,16",
    "kubeReserved": {"memory": "2Gi"},
    "evictionHard": {"memory.available": "500Mi"},
}
DEVICES = ("--machine", "sockets=1 numa=4 cores=32 threads=2 memory=64Gi")
PODS = ("-f", str(EXAMPLES / "pods.yaml"))
LIVE = ("--config", str(EXAMPLES / "fleet" / "live-kubelet.yaml"))
WORKLOADS = Path(__file__).parent.parent / "manifest" / "workloads"
KUBELET_FILE = "kubelet-of-all.yaml"
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}"
FORMS = {
    "plan": ("", "wide", "markdown", "json", "yaml", "html", "sarif", "junit", "metrics", "podresources"),
    "explain": ("", "json", "svg"),
    "show": ("", "svg", "html", "resources"),
    "capacity --shape cpu=1,memory=1Gi": ("", "wide", "json", "svg"),
    "whatif --set topologyManagerPolicy=restricted": ("", "json", "svg"),
    "compare --vary topology-policy": ("", "wide", "markdown", "json", "svg"),
    "compare": ("sarif", "junit"),
    "upgrade --kubelet-version 1.34": ("", "wide", "markdown", "json", "html"),
    "serve --export -": ("",),
}
"""What is asked about pods on a node, and the forms of the answer; an empty one is that for people."""
MACHINE_FORMS = {
    "topology": ("", "json", "yaml", "machineinfo", "resources"),
    f"plan {' '.join(PODS)}": ("", "json", "html"),
    "show": ("", "svg", "html"),
}
Words: TypeAlias = Sequence[str | Path]
Forms: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input: the file, its documents, and the commands that read it."""

    name: str
    """Several files may be of one kind."""
    file: Path
    documents: Sequence[Any]
    """A text stands for a file that is no document."""
    commands: Sequence[Words]

    def write(self, documents: Sequence[Any]) -> None:
        texts = [one if isinstance(one, str) else json.dumps(one, default=str) for one in documents]
        separator = "" if self.file.suffix == ".jsonl" else "---\n"
        self.file.write_text(separator.join(f"{text}\n" for text in texts), encoding="utf-8")


def documents(file: Path) -> list[Any]:
    """Return the documents of a file, or its text where it has none that JSON can say."""
    text = file.read_text(encoding="utf-8")
    try:
        found = [one for one in yaml.safe_load_all(text) if one is not None]
        json.dumps(found, default=str)
    except (yaml.YAMLError, TypeError):
        return [text]
    return found if all(isinstance(one, dict) for one in found) else [text]


def formed(forms: Forms, *words: str | Path) -> list[Words]:
    return [(*verb.split(), *words, *(("-o", form) if form else ())) for verb, found in forms.items() for form in found]


def kinds(folder: Path) -> Iterator[Kind]:
    """Yield every kind of input, with files of its own."""
    one = folder / "one.yaml"
    one.write_text(POD, encoding="utf-8")
    (folder / KUBELET_FILE).write_text(json.dumps(KUBELET), encoding="utf-8")
    for parts in (_pods, _configurations, _machines, _archive, _recordings, _clusters, _published, _agent):
        below = folder / parts.__name__
        below.mkdir()
        yield from parts(below, one)


def _node(folder: Path) -> tuple[str | Path, ...]:
    """Return the machine and the kubelet of most kinds."""
    return (*MACHINE, "--config", folder.parent / KUBELET_FILE)


def _pods(folder: Path, _one: Path) -> Iterator[Kind]:
    node = _node(folder)

    def about(name: str, found: list[Any], forms: Forms, *words: str | Path) -> Kind:
        file = folder / f"{name}.yaml"
        return Kind(name, file, found, formed(forms, "-f", file, *(words or node)))

    yield about("pods", documents(EXAMPLES / "pods.yaml")[:3], FORMS)
    running = folder / "running.yaml"
    items = [{**pod(name), "status": {"phase": "Running", "message": "m", "reason": "r"}} for name in ("x", "y")]
    asked: Forms = {f"plan {' '.join(PODS)}": ("", "json", "html"), "resize shop/x --cpu 2": ("", "wide", "json")}
    commands = formed(asked, "--active", running, *node)
    commands += formed({"doctor": ("", "json")}, "--state", folder, "--active", running, *node)
    yield Kind("running pods", running, [{"apiVersion": "v1", "kind": "List", "items": items}], commands)
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "v", "namespace": "n"},
        "spec": {"instancetype": {"name": "u1.small"}, "template": {"spec": {"domain": {"cpu": {"cores": "2"}}}}},
    }
    yield about("virtual machine", [owner], {"plan": ("", "json")})
    for source in sorted(WORKLOADS.iterdir()):
        file = folder / source.name
        asked = {"plan": ("", "json", "html"), "explain": ("",), "upgrade --kubelet-version 1.34": ("",)}
        yield Kind("workload", file, documents(source), formed(asked, "-f", file, *node))
    devices = ("--config", EXAMPLES / "devices" / "kubelet.yaml", *DEVICES)
    for source in (EXAMPLES / "claims.yaml", EXAMPLES / "devices" / "claims.yaml"):
        file = folder / f"{source.parent.name}-claims.yaml"
        asked = {"plan": ("", "json", "html"), "explain": ("", "json"), "show": ("svg",)}
        both = ("-f", EXAMPLES / "devices" / "pods.yaml", *devices)
        yield Kind("claims and slices", file, documents(source), formed(asked, "-f", file, *both))


def _configurations(folder: Path, one: Path) -> Iterator[Kind]:
    config = folder / "kubelet.yaml"
    settings = formed(FORMS, *MACHINE, "--config", config, *PODS)
    shown = formed({"topology": ("", "json")}, *MACHINE)
    yield Kind("configuration", config, [KUBELET], [*settings, *shown])
    devices = folder / "devices.yaml"
    beside = ("-f", EXAMPLES / "devices" / "pods.yaml", "--config", devices, *DEVICES)
    yield Kind("devices", devices, documents(EXAMPLES / "devices" / "kubelet.yaml"), formed(FORMS, *beside))
    for number, listed in enumerate((ALLOCATABLE, HELD)):
        file = folder / f"listed-{number}.json"
        words: Words = ("-f", one, *MACHINE, "--config", file)
        yield Kind("listed devices", file, [listed], formed({"plan": ("", "json")}, *words))
    plugins = folder / "plugins.yaml"
    words = ("-f", EXAMPLES / "plugins" / "spread-pods.yaml", "--config", plugins, *MACHINE)
    found = documents(EXAMPLES / "plugins" / "spread-kubelet.yaml")
    yield Kind("plugins", plugins, found, formed({"plan": ("", "json", "html"), "explain": ("",)}, *words))
    says, pods = folder / "says.yaml", folder / "says-pods.yaml"
    pods.write_text(speaking_plugin.PODS, encoding="utf-8")
    words = ("-f", pods, "--config", one.parent / KUBELET_FILE, "--config", says, *MACHINE)
    yield Kind("plugin's words", says, [speaking_plugin.CONFIGURED], formed(FORMS, *words))
    given = {path.name: documents(path) for path in sorted((EXAMPLES / "vendors").iterdir()) if path.is_file()}
    given |= {path.name: [path.read_text(encoding="utf-8")] for path in sorted(EMBEDDED.iterdir())}
    given |= {name: [text] for name, (text, _) in GIVEN.items()}
    for name, found in given.items():
        file = folder / f"given-{name}"
        asked: Forms = {"plan": ("", "json", "html"), "compare --vary topology-policy": ("",)}
        yield Kind("given configuration", file, found, formed(asked, "-f", one, *MACHINE, "--config", file))


def _machines(folder: Path, _one: Path) -> Iterator[Kind]:
    machine = load_machine("sockets=2 numa=2 cores=2 threads=2")
    tools: tuple[Callable[..., str], ...] = (
        tool_outputs.lscpu_json,
        tool_outputs.lscpu_parsable,
        tool_outputs.lscpu_extended,
        tool_outputs.lscpu_summary,
        tool_outputs.numactl,
        tool_outputs.capabilities,
        tool_outputs.lstopo,
    )
    texts = {tool.__name__: tool(machine) for tool in tools} | PASTED
    texts["machineinfo"] = mooring("topology", *MACHINE, "-o", "machineinfo", code=0).out
    for name, text in texts.items():
        file = folder / f"{name}.txt"
        try:
            found = json.loads(text)
        except ValueError:
            found = text
        yield Kind("machine", file, [found], formed(MACHINE_FORMS, "--machine", file))


def _archive(folder: Path, one: Path) -> Iterator[Kind]:
    node = folder / "node"
    shutil.copytree(EXAMPLES / "node", node)
    healed = f"heal --dry-run --kubelet-version 1.37 --machine {node} --state {node}/kubelet"
    asked: Forms = {
        "doctor": ("", "json"),
        "doctor --lint": ("", "json"),
        "migrate": ("", "json"),
        healed: ("", "json"),
        "upgrade --kubelet-version 1.34": ("", "json", "html"),
        "show": ("", "svg", "html"),
        f"plan -f {one}": ("", "json", "html"),
        "topology": ("",),
    }
    for name in ("mooring-node.json", "pods.json", "kubelet/config.json"):
        content = [json.loads((node / name).read_text(encoding="utf-8"))]
        about = [
            (*words[:1], "--machine", node) if words[0] == "topology" else words
            for words in formed(asked, "--node", node)
        ]
        yield Kind(name, node / name, content, about)
    texts = ("kubelet/cpu_manager_state", "kubelet/memory_manager_state", "proc/90/comm", "proc/cpuinfo", "proc/mounts")
    for name in (*texts, "sys/devices/system/node/node0/distance", "sys/devices/system/cpu/online"):
        text = (node / name).read_text(encoding="utf-8")
        chosen = ("doctor", "doctor --lint", "migrate", healed, f"plan -f {one}")
        commands = formed({key: asked[key] for key in chosen}, "--node", node)
        yield Kind(name, node / name, [json.loads(text) if name.startswith("kubelet/") else text], commands)


def _recordings(folder: Path, _one: Path) -> Iterator[Kind]:
    shutil.copy(CORPORA / "machines.jsonl", folder)
    shutil.copy(CORPORA / "real-kubelet-machines.jsonl", folder)
    for name in ("admission-devices", "admission-lifecycle-restart", "real-kubelet"):
        cases = folder / f"{name}.jsonl"
        first = next(load_scenarios(CORPORA / f"{name}.jsonl.gz"))
        assert isinstance(first, Scenario)
        traced = formed({"compare --vary topology-policy": ("", "json")}, "--trace", cases)
        yield Kind("scenarios", cases, [dict(first.raw)], [*_replayed(cases), *traced])
    for source in (EXAMPLES / "resizing.yaml", EXAMPLES / "hotplug.yaml"):
        cases = folder / source.name
        yield Kind("scenarios", cases, documents(source)[:1], _replayed(cases))


def _replayed(cases: Path) -> list[Words]:
    return [("replay", cases, *form) for form in ((), ("--check",), ("-o", "jsonl"))]


def _clusters(folder: Path, one: Path) -> Iterator[Kind]:
    live = folder / "live.yaml"
    forms = {
        f"fleet drain worker-1 --cluster {live}": ("", "markdown", "json"),
        f"fleet fit -f {one} --cluster {live}": ("", "markdown", "json", "evictions"),
        f"fleet upgrade v1.37.1 --cluster {live}": ("", "markdown", "json"),
    }
    yield Kind("cluster", live, documents(EXAMPLES / "fleet" / "live.yaml"), formed(forms, *LIVE))
    described, work, events = folder / "cluster.yaml", folder / "work.yaml", folder / "events.yaml"
    lines, types = folder / "work.jsonl", folder / "node-types.yaml"
    shipped = ("--cluster", EXAMPLES / "fleet" / "cluster.yaml")
    answers = ("", "markdown", "json", "html", "svg")
    forms = {
        "fleet simulate": ("", "wide", *answers[1:]),
        "fleet compare --strategy MostAllocated --strategy LeastAllocated": answers,
        "fleet size --group one-socket --most 6": answers,
    }
    train = documents(EXAMPLES / "fleet" / "train.yaml")
    cluster = documents(EXAMPLES / "fleet" / "cluster.yaml")
    trained = ("-f", EXAMPLES / "fleet" / "train.yaml")
    yield Kind("described cluster", described, cluster, formed(forms, "--cluster", described, *trained))
    generated = [{**documents(EXAMPLES / "fleet" / "day.yaml")[0], "count": 5}]
    for found in (train, generated):
        yield Kind("work", work, found, formed(forms, *shipped, "-f", work))
    arrivals = [{"at": 0, "workload": train[0]}, {"at": 5, "pod": pod("x", 2), "runs": 9, "owner": "o"}]
    yield Kind("work", lines, arrivals, formed(forms, *shipped, "-f", lines))
    happening = documents(EXAMPLES / "fleet" / "upgrade-day.yaml")
    yield Kind("events", events, happening, formed(forms, *shipped, *trained, "--events", events))
    checked = ("compare", "-f", EXAMPLES / "ci-check" / "manifests", "--cluster", types, "--alone")
    outputs: list[Words] = [(), *(("-o", form) for form in ("markdown", "json", "sarif", "junit"))]
    shutil.copy(EXAMPLES / "ci-check" / "kubelet.yaml", folder)
    checks: list[Words] = [(*checked, *form) for form in outputs]
    yield Kind("node types", types, documents(EXAMPLES / "ci-check" / "node-types.yaml"), checks)


def _published(folder: Path, one: Path) -> Iterator[Kind]:
    """What kubectl prints about a node that is named: a program in its place answers from files."""
    program = folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(folder)), encoding="utf-8")
    program.chmod(0o755)
    node = _node(folder)
    listed = {"apiVersion": "v1", "kind": "PodList", "items": [pod("one"), pod("two")]}
    files = {"node-edge-7-json": node_object(), "pods-json": listed}
    active = folder / "active.json"
    active.write_text(json.dumps(listed), encoding="utf-8")
    name = ("--node-name", "edge-7")
    made = mooring("publish", "--dry-run", "-o", "json", *name, *node, "--active", active, code=0).document["items"]
    for item in made:
        plural = {"NodeFacts": "nodefacts", "NodeState": "nodestates"}.get(item["kind"])
        if plural:
            files[f"{plural}.mooring.dev-{item['metadata']['name']}-json"] = item
    asked: Forms = {
        "show": ("", "svg", "html"),
        f"plan -f {one}": ("", "json"),
        "doctor": ("",),
        "topology": ("", "json"),
    }
    for file, document in files.items():
        (folder / file).write_text(json.dumps(document), encoding="utf-8")
    for file, document in files.items():
        commands = formed(asked, "--node", "edge-7")
        yield Kind("kubectl", folder / file, [document], commands)
    yield Kind(
        "publisher's pods",
        active,
        [listed],
        formed({"publish --dry-run": ("", "yaml", "json")}, *name, *node, "--active", active),
    )


def _agent(folder: Path, _one: Path) -> Iterator[Kind]:
    status = folder / "status.json"
    document = to_builtins(status_document(snapshot_of(busy()), COUNTS))
    yield Kind("status", status, [document], formed({"status": ("", "wide", "json")}, "--socket", status))
    counted(folder, AGREED, DIFFERS)
    counts = next(path for path in folder.iterdir() if path.suffix == ".json")
    tally = json.loads(counts.read_text(encoding="utf-8"))
    yield Kind("shadow", counts, [tally], formed({"status": ("", "json")}, "--shadow", folder))
    root, pods = make_root(folder / "root"), folder / "kubelet-pods.json"
    listed = kubelet_pods()
    pods.write_text(json.dumps(listed), encoding="utf-8")
    words = ("--root", root, "--config", root / CONFIG, "--pods", pods, "--no-kubectl", "--to", folder / "node.tar.gz")
    commands = [*formed({"collect": ("", "json")}, *words), ("collect", "--dry-run", *words[:-2])]
    yield Kind("collected", pods, [listed], commands)
    yield Kind("collected", root / CONFIG, documents(root / CONFIG), commands)
