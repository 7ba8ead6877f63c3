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
from tests.cli.command import NODE, PODS, SMALL, Answered, mooring

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


USAGE = [
    ("", "Usage: mooring"),
    ("bogus", f"mooring: no such verb: 'bogus'; verbs are {', '.join(sorted(VERBS))}; see mooring --help"),
    ("topo", "mooring: no such verb: 'topo'; did you mean 'topology'?; see mooring --help"),
    (
        "plan",
        "mooring plan: missing option '-f' / '--filename'; manifests are given with -f FILE; see mooring plan --help",
    ),
    ("plan pod.yaml -f pod.yaml", "mooring plan: got unexpected extra argument (pod.yaml); manifests are given with"),
    ("topology small-1s8", "mooring topology: got unexpected extra argument (small-1s8); a machine is given with"),
    ("plan -f", "mooring plan: option '-f' requires an argument; see mooring plan --help"),
    ("plan -f pod.yaml --qqq", "mooring plan: no such option '--qqq'; see mooring plan --help"),
    (
        "plan -f pod.yaml -o xml",
        "mooring plan: invalid value for '-o' / '--output': 'xml' is not one of 'text', 'wide'",
    ),
    ("show --width 3", "mooring show: invalid value for '--width': 3 is not in the range 20<=x<=1000; see mooring sho"),
    ("replay", "mooring replay: missing argument 'FILE...'; see mooring replay --help"),
    # With a destination that cannot work, so that nothing is served where this is not refused.
    (
        "serve --export empty --period nan",
        "mooring serve: invalid value for '--period': nan is not a number of seconds",
    ),
    (
        "fleet size --cluster a -f b --group c --within nan",
        "mooring fleet size: invalid value for '--within': nan is not a number",
    ),
    ("serve --export empty --period inf", "mooring serve: invalid value for '--period': inf is not in the range 0.2<="),
]


@pytest.mark.parametrize(("command", "line"), USAGE)
def test_mistakes_of_usage_are_one_line_that_says_where_to_look(folder: Path, command: str, line: str) -> None:
    assert folder.is_dir()
    answered = mooring(*command.split(), code=2)
    assert answered.err.startswith(line)
    assert answered.err.count("\n") == (1 if command else answered.err.count("\n"))


BAD_INPUT = [
    ("plan -f nope.yaml", "nope.yaml: cannot be read: no such file or directory"),
    ("plan -f empty", "empty: the folder holds no manifests"),
    ("plan -f binary", "binary:"),
    ("plan -f -", "standard input: nothing in it"),
    ("plan -f - -f -", "standard input: -f: can be read only once; give all but one of them a file"),
    ("plan -f - --active -", "standard input: -f and --active: can be read only once"),
    ("plan -f pod.yaml --config - --active -", "standard input: --active and --config: can be read only once"),
    ("plan -f pod.yaml -f pod.yaml", "pod.yaml: the pod default/web has the uid default_web, as has a pod in pod.yaml"),
    ("plan -f pod.yaml --active pod.yaml", "-f: the pod default/web (uid default_web) is also given with --active"),
    (
        "plan -f kubelet.yaml",
        "kubelet.yaml: there is no pod in the manifests, only 1 KubeletConfiguration; give pods or workloads with -f",
    ),
    ("plan -f pod.yaml --config pod.yaml", "pod.yaml: 'Pod' is not a configuration"),
    (
        "plan -f pod.yaml --config empty",
        "empty: the folder holds no configuration; put .yaml, .yml, .json files there, or",
    ),
    ("plan -f pod.yaml --machine nope", "nope: unknown machine"),
    ("plan -f pod.yaml --machine binary", "binary: is not a machine in any known format"),
    ("plan -f pod.yaml --machine cores=0", "machine: cores: "),
    (
        "plan -f pod.yaml --state nope",
        "nope: --state: no such directory; name a kubelet root directory or a copy of one",
    ),
    ("plan -f pod.yaml --state binary", "binary: --state: is no state file of a kubelet; give cpu_manager_state"),
    ("plan -f pod.yaml --save-state binary", "binary: --save-state: is not a directory"),
    ("plan -f pod.yaml --save-state binary/below", "binary/below: "),
    ("plan -f pod.yaml --state empty --save-state empty", "empty: --save-state: is also the directory of --state"),
    ("plan -f pod.yaml --to empty", "empty: --to: is a directory; name a file in it"),
    ("plan -f pod.yaml --to nope/plan.txt", "nope/plan.txt: --to: no such directory: "),
    ("show --to binary/x", "binary/x: --to: "),
    ("serve --export nope/x", "nope/x: --export: no such directory: "),
    ("serve --export empty", "empty: --export: is a directory; name a file in it"),
    (
        "topology --machine empty",
        "empty: holds no machine: sys/devices/system/cpu is missing; name a folder or archive",
    ),
    ("topology --machine pod.yaml", "pod.yaml: this is a pod, not a machine; mooring plan takes it with -f"),
    ("topology --machine kubelet.yaml", "kubelet.yaml: this is a kubelet's configuration, not a machine; mooring plan"),
    ("replay pod.yaml --machines pod.yaml", "pod.yaml: this is a pod, not a machine; mooring plan takes it with -f"),
    ("resize --cpu 2", "POD: there is no pod to resize; give pods with -f or --active"),
    ("topology --machine binary -o machineinfo", "binary: is not a machine in any known format"),
    ("replay nope.jsonl", "nope.jsonl: cannot be read: no such file or directory"),
    ("replay empty", "empty: has no recordings"),
    ("replay binary", "binary:1:1: "),
    ("replay pod.yaml --machines nope", "nope: cannot be read: no such file or directory; check the path and its perm"),
    ("replay pod.yaml", "pod.yaml: pod: machine: is missing; name a machine of a file that is given with --machines"),
]


@pytest.mark.parametrize(("command", "line"), BAD_INPUT)
def test_bad_input_is_one_line_with_the_place_and_what_is_wrong(folder: Path, command: str, line: str) -> None:
    before = sorted(folder.rglob("*"))
    words = command.split()
    answered = mooring(*words, *(() if "--machine" in words or words[0] == "replay" else SMALL), code=2)
    assert answered.out == ""
    assert answered.complaint.startswith(f"mooring: {line}")
    assert sorted(folder.rglob("*")) == before


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


CONFIG_CRASH = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
memoryManagerPolicy: Static
kubeReserved: {memory: 924Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
"""
POD = """\
kind: Pod
metadata: {name: NAME}
spec: {containers: [{name: app, resources: {limits: {cpu: 1, memory: 1Gi EXTRA}}}]}
"""
MACHINE = "cores=4 threads=2 memory=16Gi"


def plan(folder: Path, *options: str, machine: str = MACHINE) -> Answered:
    """Plan three pods, of which the second requests huge pages."""
    pods = [("first", ""), ("huge", ", hugepages-1Gi: 1Gi"), ("last", "")]
    text = "---\n".join(POD.replace("NAME", name).replace(" EXTRA", extra) for name, extra in pods)
    (folder / "pods.yaml").write_text(text, encoding="utf-8")
    (folder / "kubelet.yaml").write_text(CONFIG_CRASH, encoding="utf-8")
    given = ("-f", folder / "pods.yaml", "--config", folder / "kubelet.yaml", "--machine", machine)
    return mooring("plan", *given, "-o", "json", *options)


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


GB = 2**30
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
    for number, pod in enumerate(pods):
        pod["metadata"]["uid"] = str(number)
        pod["spec"]["nodeName"] = f"node-{number // 20}"
        pod["status"] = {"phase": "Running"}
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
    ("words", "count", "memory", "seconds"),
    [
        ("plan -f PODS", 100_000, GB, 600),
        ("plan -o json -f PODS", 100_000, GB, 600),
        ("show -o resources -f PODS", 2_000, GB, 120),
        ("plan -f REFUSED", 5_000, GB // 2, 300),
        ("plan -o json -f REFUSED", 5_000, GB // 2, 300),
        ("plan -o json -f PINNED --config PINNING", 3_000, GB // 2, 120),
        ("plan -o html -f PODS", 8_000, GB, 60),
        ("whatif -o json --set topologyManagerPolicy=restricted -f PINNED --config PINNING", 1_500, GB // 2, 60),
        ("explain -f PODS web-000000", 10_000, GB, 120),
        ("capacity --active PODS -f ONE", 2_000, GB, 120),
        ("compare --all-options -f PODS", 1_000, GB // 2, 120),
        ("upgrade --kubelet-version 1.34 -f PODS", 2_000, GB, 120),
        ("doctor --state STATE --active REFUSED", 1_000, GB, 120),
        ("replay -o jsonl SCENARIO", 4_000, GB, 120),
        ("fleet simulate --cluster CLUSTER -f PODS", 1_000, GB, 120),
        ("plan -o sarif -f REFUSED", 5_000, GB // 2, 60),
        ("plan -o junit -f REFUSED", 5_000, GB // 2, 60),
        ("whatif --set topologyManagerPolicy=restricted -f PODS", 10_000, GB // 2, 60),
        ("migrate --state STATE --active PODS", 10_000, GB // 2, 60),
        ("heal --kubelet-version 1.37 --state STATE --active REFUSED", 10_000, GB // 2, 60),
        ("topology -o resources", 1, GB // 4, 10),
        ("resize --cpu 1 web-000000 -f PODS", 10_000, GB // 2, 60),
        ("publish --dry-run --active PODS", 10_000, GB // 2, 60),
        ("collect --no-kubectl --to /dev/null --root STATE --kubelet-root / --pods PODS", 10_000, GB // 2, 60),
        ("fleet size --cluster CLUSTER -f PODS --group one", 2_000, GB // 2, 60),
        ("fleet compare --cluster CLUSTER -f PODS --set topologyManagerPolicy=restricted,none", 2_000, GB // 2, 60),
        ("fleet drain --cluster RUNNING --machine large:MACHINE node-1 node-2 node-3", 20_000, GB // 2, 60),
        ("fleet fit --cluster RUNNING --machine large:MACHINE -f ONE", 20_000, GB // 2, 60),
        ("fleet upgrade --cluster RUNNING --machine large:MACHINE 1.36", 20_000, GB // 2, 60),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_verb_keeps_within_memory_and_time(words: str, count: int, memory: int, seconds: int, tmp_path: Path) -> None:
    found = _written(tmp_path, count)
    config = () if "--config" in words else ("--config", found["CONFIG"])
    node = () if words.startswith(("replay", "fleet", "collect")) else (*NODE[:2], *config)
    found["large:MACHINE"] = f"node.kubernetes.io/instance-type=large:{NODE[1]}"
    arguments = [*(found.get(word, word) for word in words.split()), *node]
    if "--state" in words:
        # What runs already, and has CPUs.
        mooring("plan", "-f", found["REFUSED"], *node, "--save-state", str(tmp_path), "--to", "/dev/null")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
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


@pytest.mark.parametrize(
    "words",
    [
        ("plan", *PODS, "--machine", ""),
        ("plan", *PODS, *NODE, "-f", ""),
        ("plan", *PODS, "--machine=", "--strict"),
        ("plan", *PODS, *SMALL, "--save-state", " "),
    ],
)
def test_a_refusal_is_one_line(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answered = mooring(*words, code=2)
    assert answered.err.endswith(": is empty; give it a value\n" if "-f" in words[3:] else ", or leave it out\n")
    assert answered.err.count("\n") == 1


@pytest.mark.parametrize("versions", [("1.33,",), ("1.33,,1.34",), (",",), ("1.33", "1.34,")])
def test_an_empty_release_is_not_the_newest(versions: tuple[str, ...]) -> None:
    given = [word for version in versions for word in ("--kubelet-version", version)]
    answered = mooring("compare", *PODS, *NODE, *given, code=2)
    assert answered.complaint == (
        f"mooring: --kubelet-version: '{','.join(versions)}' names an empty release; name releases such as 1.34,1.37"
    )


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
