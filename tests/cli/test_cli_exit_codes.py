"""What goes wrong is told in one line, with the exit code that scripts can rely on."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.command import NODE, PODS, SMALL, Answered, mooring, typed
from tests.cli.given import STATIC, given, pod
from tests.values import cases

from mooring.command.main import TRACEBACK, VERBS, cli
from mooring.engine.core.errors import InputError

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: app, resources: {limits: {cpu: 2, memory: 1Gi}}}]}
"""
CONFIG = """\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cpuManagerPolicy: static
reservedSystemCPUs: "0"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a pod, a configuration and an unsuitable file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(MANIFEST)
    (tmp_path / "kubelet.yaml").write_text(CONFIG)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(("says", "asked"), cases(__file__, "refused-commands.yaml", "says", "asked"))
def test_what_cannot_be_answered_is_one_line_that_says_why(folder: Path, says: str, asked: str) -> None:
    before = sorted(folder.rglob("*"))
    assert says in mooring(*typed(asked), code=2).complaint
    assert sorted(folder.rglob("*")) == before


def test_without_a_verb_that_there_is_all_are_listed() -> None:
    assert mooring(code=2).err.startswith("Usage: mooring")
    verbs = f"verbs are {', '.join(sorted(VERBS))}"
    assert mooring("bogus", code=2).complaint == f"mooring: no such verb: 'bogus'; {verbs}; see mooring --help"


def test_closed_standard_input_is_bad_input(folder: Path) -> None:
    assert folder.is_dir()
    for command in (("plan", "-f", "-", *SMALL), ("replay", "-")):
        answered = mooring(*command, stdin=None)
        assert (answered.code, answered.complaint) == (2, "mooring: standard input: is closed; open it, or name a file")


@pytest.mark.parametrize("verb", ["plan", "show"])
def test_a_no_is_an_answer_with_exit_code_1(verb: str) -> None:
    answered = mooring(verb, *PODS, *NODE, code=1)
    assert "TopologyAffinityError" in answered.out
    assert answered.err == ""


@pytest.mark.parametrize("verb", ["plan", "show"])
def test_a_yes_has_exit_code_0(folder: Path, verb: str) -> None:
    answered = mooring(verb, "-f", folder / "pod.yaml", "--config", folder / "kubelet.yaml", *SMALL)
    assert (answered.code, answered.err) == (0, "")


def test_a_kubelet_that_does_not_start_is_an_answer(folder: Path) -> None:
    (folder / "bad.yaml").write_text(f"{CONFIG}cpuManagerPolicyOptions: {{align-by-socket: 'true'}}\n")
    command = ("-f", "pod.yaml", "--config", "bad.yaml", *SMALL)
    plan = mooring("plan", *command, code=1)
    assert plan.err == ""
    text = " ".join(plan.out.split())
    assert "CPU Manager Policy Alpha-level Options not enabled, but option" in text
    assert "Set featureGates.CPUManagerPolicyAlphaOptions to true: the kubelet then starts (run here)." in text
    show = mooring("show", *command, code=1)
    assert show.err.startswith("The kubelet would not start: new static policy error: CPU Manager Policy Alpha-level")
    document = mooring("plan", *command, "-o", "json").document
    assert (document["startErrorStage"], document["pods"]) == ("cpuManager", [])


def test_what_state_files_say_is_the_kubelets_answer(folder: Path) -> None:
    root = folder / "root"
    root.mkdir()
    (root / "cpu_manager_state").write_bytes(b"\xff{junk")
    answered = mooring("plan", "-f", "pod.yaml", "--config", "kubelet.yaml", "--state", "root", *SMALL, code=1)
    assert "please drain this node and delete the CPU manager checkpoint file" in " ".join(answered.out.split())
    assert "Drain the node and delete cpu_manager_state: the kubelet then starts" in " ".join(answered.out.split())


def test_state_files_that_are_none_are_bad_input(folder: Path) -> None:
    (folder / "root" / "cpu_manager_state").mkdir(parents=True)
    answered = mooring("plan", "-f", "pod.yaml", "--config", "kubelet.yaml", "--state", "root", *SMALL, code=2)
    assert answered.complaint.startswith("mooring: root/cpu_manager_state: cannot be read: Is a directory")


def test_warnings_go_to_standard_error_and_change_nothing(folder: Path) -> None:
    answered = mooring("plan", "-f", folder / "pod.yaml", *SMALL, code=0)
    assert answered.err.startswith(
        "warning[MOOR-504]: configuration: none given: the kubelet's defaults have CPU manager policy"
    )
    assert mooring("plan", "-f", folder / "pod.yaml", *SMALL, "-o", "json").err == ""


def broken(*_: object, **__: object) -> None:
    raise KeyError("the moon")


def test_an_error_of_our_own_asks_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.answers.topology.read_machine", broken)
    answered = mooring("topology", *SMALL)
    assert (answered.code, answered.out) == (70, "")
    assert re.fullmatch(
        r"mooring: internal error in \S+:\d+: KeyError: 'the moon'; this is a defect of Mooring: please report it with "
        r"the command and its input \(MOORING_TRACEBACK=1 shows more\)",
        answered.complaint,
    )
    monkeypatch.setenv(TRACEBACK, "1")
    assert "Traceback (most recent call last)" in mooring("topology", *SMALL, code=70).err


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_is_no_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.answers.topology.read_machine", interrupted)
    answered = mooring("topology", *SMALL)
    assert (answered.code, answered.out, answered.err) == (130, "", "\n")


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_and_version_are_answers(verb: str) -> None:
    answered = mooring(*filter(None, [verb, "--help"]), code=0)
    assert answered.out.startswith(f"Usage: mooring {verb}".rstrip())
    assert answered.err == ""
    version = mooring("--version")
    assert (version.code, version.out) == (0, "mooring 0.1.0 (decisions of kubelet v1.37.2)\n")


def test_completion_offers_verbs_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MOORING_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("COMP_WORDS", "mooring to")
    assert mooring().out.split() == ["plain,topology"]
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", "mooring plan --mach")
    assert mooring().out.split() == ["plain,--machine"]


# A crash of the kubelet on one pod does not end a plan: the pod is left out, and the others are asked.


PINNED: dict[str, Any] = {
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"memory": "924Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
MACHINE = "cores=4 threads=2 memory=16Gi"


def plan(folder: Path, *options: str, machine: str = MACHINE) -> Answered:
    """Plan three pods, of which the second requests huge pages."""
    pods = pod("first", 1), pod("huge", 1, limits={"hugepages-1Gi": "1Gi"}), pod("last", 1)
    return mooring("plan", *given(folder, *pods, machine=machine, kubelet=STATIC | PINNED), "-o", "json", *options)


def verdicts(answered: Answered) -> dict[str, str]:
    """Return what became of each pod that was asked about."""
    return {
        one["name"]: "crash" if "crash" in one else "admitted" if one["admitted"] else "rejected"
        for one in answered.document["pods"]
    }


def test_the_pods_after_a_crash_are_asked(tmp_path: Path) -> None:
    answered = plan(tmp_path)
    assert verdicts(answered) == {"first": "admitted", "huge": "crash", "last": "admitted"}
    assert answered.code == 1
    assert "unasked" not in answered.document


def test_the_huge_pages_that_the_machine_text_lacks_are_named_and_can_be_added(tmp_path: Path) -> None:
    (found,) = [one for one in plan(tmp_path).document["findings"] if one["code"] == "MOOR-152"]
    assert found["subject"] == "default/huge"
    assert "the machine as it was given lists no hugepages-1Gi" in found["message"]
    assert "add hugepages-1Gi=PAGES (0 for none)" in found["message"]
    listed = plan(tmp_path, machine=f"{MACHINE} hugepages-1Gi=0")
    assert verdicts(listed) == {"first": "admitted", "huge": "rejected", "last": "admitted"}
    assert verdicts(plan(tmp_path, machine=f"{MACHINE} hugepages-1Gi=1"))["huge"] == "admitted"


def test_a_plan_can_stop_at_a_crash(tmp_path: Path) -> None:
    answered = plan(tmp_path, "--stop-at-crash")
    assert verdicts(answered) == {"first": "admitted", "huge": "crash"}
    assert [one["name"] for one in answered.document["unasked"]] == ["last"]


# Large questions are answered within an amount of memory and of CPU time that grows with the pods and no faster.


POLICIES = {
    "maxPods": 200_000,
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "best-effort",
}
PINNING = {
    "memoryManagerPolicy": "Static",
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}
CLUSTER = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "large"},
    "groups": [
        {
            "name": "one",
            "count": 100,
            "machine": NODE[1],
            "kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
        }
    ],
}
SMALL_LIMITS = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "2Mi"}}
"""Of a pod that lets the next one in."""
PINNED_LIMITS = {"limits": {"cpu": "1m", "memory": "1Mi"}}
"""Of a pod that both state files list, as all after it do: what a plan writes grows with the square of these."""
EXCLUSIVE = {"limits": {"cpu": "2", "memory": "1Gi"}}


def _pods(count: int, name: str, resources: Mapping[str, object]) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number:06d}", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "web:1", "resources": resources}]},
        }
        for number in range(count)
    ]


def _running(count: int) -> list[dict[str, Any]]:
    """Return nodes with twenty pods each, as kubectl prints them."""
    amounts = {"cpu": "256", "memory": "500Gi", "pods": "100"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{number}", "labels": {"node.kubernetes.io/instance-type": "large"}},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        for number in range(count // 20)
    ]
    pods = _pods(len(nodes) * 20, "web", SMALL_LIMITS)
    for number, one in enumerate(pods):
        one["metadata"]["uid"] = str(number)
        one["spec"]["nodeName"] = f"node-{number // 20}"
        one["status"] = {"phase": "Running"}
    return [*nodes, *pods]


def _written(folder: Path, count: int) -> dict[str, str]:
    """Write what the verbs are asked about, and return the names of the files."""
    steps: list[dict[str, Any]] = [{"admit": pod} for pod in _pods(count, "web", SMALL_LIMITS)]
    for number, step in enumerate(steps):
        step["admit"]["metadata"]["uid"] = str(number)
    kubelet = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **POLICIES}
    documents: dict[str, dict[str, Any]] = {
        "PODS": {"apiVersion": "v1", "kind": "List", "items": _pods(count, "web", SMALL_LIMITS)},
        "REFUSED": {"apiVersion": "v1", "kind": "List", "items": _pods(count, "web", EXCLUSIVE)},
        "ONE": {"apiVersion": "v1", "kind": "List", "items": _pods(1, "asked", SMALL_LIMITS)},
        "PINNED": {"apiVersion": "v1", "kind": "List", "items": _pods(count, "web", PINNED_LIMITS)},
        "PINNING": {**kubelet, **PINNING},
        "CONFIG": kubelet,
        "CLUSTER": CLUSTER,
        "SCENARIO": {"id": "large", "machine": NODE[1], "kubelet": POLICIES, "steps": steps},
        "RUNNING": {"apiVersion": "v1", "kind": "List", "items": _running(count)},
    }
    cpu = folder / "sys/devices/system/cpu/cpu0/topology/core_id"
    cpu.parent.mkdir(parents=True)
    for file in (cpu, cpu.parents[2] / "online"):
        file.write_text("0\n", encoding="ascii")
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return {name: str(folder / f"{name}.json") for name in documents} | {"STATE": str(folder)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "memory", "seconds", "asked"),
    cases(__file__, "large-questions.yaml", "pods", "megabytes", "seconds", "asked"),
)
def test_a_verb_keeps_within_memory_and_time(asked: str, count: int, memory: int, seconds: int, tmp_path: Path) -> None:
    found = _written(tmp_path, count)
    config = () if "--config" in asked else ("--config", found["CONFIG"])
    node = () if asked.startswith(("replay", "fleet", "collect")) else (*NODE[:2], *config)
    found["large:MACHINE"] = f"node.kubernetes.io/instance-type=large:{NODE[1]}"
    arguments = [*(found.get(word, word) for word in asked.split()), *node]
    if "--state" in asked:
        # What runs already, and has CPUs.
        mooring("plan", "-f", found["REFUSED"], *node, "--save-state", str(tmp_path), "--to", "/dev/null")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory * 2**20, memory * 2**20))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    command = [sys.executable, "-m", "mooring", *arguments]
    ended = subprocess.run(command, preexec_fn=limit, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    assert ended.returncode in (0, 1), ended.stderr.decode()[-400:]
    assert b"Error" not in ended.stderr


# An unset variable of a script gives an empty value: no option of any verb takes it as not given.


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with the words that name it; questions of a verb, too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*before, name))
        else:
            yield (*before, name), found


def parameters() -> Iterator[tuple[click.Command, click.Parameter]]:
    for _, command in commands(cli):
        for parameter in command.params:
            if not (isinstance(parameter, click.Option) and (parameter.is_flag or parameter.is_eager)):
                yield command, parameter


ALL = [pytest.param(*pair, id=f"{pair[0].name} {pair[1].opts[0]}") for pair in parameters()]


def test_every_verb_is_asked() -> None:
    assert {words[0] for words, _ in commands(cli)} == set(VERBS)


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(("command", "asked"), ALL)
def test_an_empty_value_is_refused_with_its_option(command: click.Command, asked: click.Parameter, value: str) -> None:
    needed = [one for one in command.params if one.required and one is not asked]
    values = {one: ("text" if one.type is click.STRING else "bash") for one in needed} | {asked: value}
    words = [word for one, text in values.items() for word in (*one.opts[:1], text) if isinstance(one, click.Option)]
    words += ["--", *(text for one, text in values.items() if isinstance(one, click.Argument))]
    with pytest.raises((InputError, click.BadParameter)) as refused:
        command.make_context(command.name, words)
    if isinstance(refused.value, InputError):
        named = asked.opts[0] if isinstance(asked, click.Option) else "the argument"
        leave_out = "" if asked.required else ", or leave it out"
        assert str(refused.value) == f"{named}: is empty; give it a value{leave_out}"
    else:
        assert isinstance(refused.value, click.BadParameter)
        assert refused.value.param is asked


# ``--strict`` refuses the unknown fields that are a warning without it.


POD_STRICT = "kind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: app\n    resource: {}\n"


@pytest.mark.parametrize(
    "verb", [["plan"], ["show"], ["explain", "web"], ["capacity", "web"], ["whatif"], ["compare", "--all-options"]]
)
def test_strict_refuses_what_is_a_warning_without_it(tmp_path: Path, verb: list[str]) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD_STRICT, encoding="utf-8")
    lenient = mooring(*verb, "-f", manifest, *NODE)
    assert lenient.code != 2
    assert f"{manifest}:6:5: Container has no field resource; did you mean resources?" in lenient.err
    strict = mooring(*verb, "-f", manifest, *NODE, "--strict", code=2)
    assert f"{manifest}:6:5: Container has no field resource" in strict.complaint


def test_a_refusal_and_an_unknown_field_are_lines_of_their_own(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD_STRICT + "    resources: {limits: {hugepage-2Mi: 2Mi}}\n", encoding="utf-8")
    answer = mooring("plan", "-f", manifest, *NODE, code=2)
    assert answer.complaint.endswith("is not a container resource; did you mean hugepages-2Mi?")
    assert f"warning[MOOR-512]: spec.containers[0].resource: {manifest}:6:5: Container has no field" in answer.err


def test_a_refused_configuration_names_its_unknown_fields_too(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text("kind: KubeletConfiguration\ncpuManagerPolcy: static\nreservedMemory: 3\n", encoding="utf-8")
    answer = mooring("plan", *PODS, *NODE[:2], "--config", config, code=2)
    assert answer.complaint.endswith("reservedMemory: must be a list, not a number")
    assert "did you mean cpuManagerPolicy?" in answer.err


def test_strict_takes_what_has_no_unknown_field() -> None:
    assert mooring("plan", *PODS, *NODE, "--strict").code == mooring("plan", *PODS, *NODE).code
    assert mooring("show", *SMALL, "--strict").code == 0
