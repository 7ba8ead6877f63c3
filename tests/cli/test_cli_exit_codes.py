"""What goes wrong is told in one line, with the exit code that scripts can rely on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, SMALL, mooring

from mooring.command import main

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
    ("bogus", f"mooring: no such verb: 'bogus'; verbs are {', '.join(sorted(main.VERBS))}; see mooring --help"),
    ("topo", "mooring: no such verb: 'topo'; did you mean 'topology'?; see mooring --help"),
    (
        "plan",
        "mooring plan: missing option '-f' / '--filename'; manifests are given with -f FILE; see mooring plan --help",
    ),
    (
        "plan pod.yaml -f pod.yaml",
        "mooring plan: got unexpected extra argument (pod.yaml); manifests are given with",
    ),
    (
        "topology small-1s8",
        "mooring topology: got unexpected extra argument (small-1s8); a machine is given with",
    ),
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
    answered = mooring(*command.split())
    assert (answered.code, answered.out) == (2, "")
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
    answered = mooring(*words, *(() if "--machine" in words or words[0] == "replay" else SMALL))
    assert answered.code == 2
    assert answered.out == ""
    assert answered.complaint.startswith(f"mooring: {line}")
    assert sorted(folder.rglob("*")) == before


def test_closed_standard_input_is_bad_input(folder: Path) -> None:
    assert folder.is_dir()
    for command in (("plan", "-f", "-", *SMALL), ("replay", "-")):
        answered = mooring(*command, stdin=None)
        assert (answered.code, answered.complaint) == (
            2,
            "mooring: standard input: is closed; open it, or name a file",
        )


@pytest.mark.parametrize("verb", ["plan", "show"])
def test_a_no_is_an_answer_with_exit_code_1(verb: str) -> None:
    answered = mooring(verb, *PODS, *NODE)
    assert answered.code == 1
    assert "TopologyAffinityError" in answered.out
    assert answered.err == ""


@pytest.mark.parametrize("verb", ["plan", "show"])
def test_a_yes_has_exit_code_0(folder: Path, verb: str) -> None:
    answered = mooring(verb, "-f", folder / "pod.yaml", "--config", folder / "kubelet.yaml", *SMALL)
    assert (answered.code, answered.err) == (0, "")


def test_a_kubelet_that_does_not_start_is_an_answer(folder: Path) -> None:
    (folder / "bad.yaml").write_text(f"{CONFIG}cpuManagerPolicyOptions: {{align-by-socket: 'true'}}\n")
    command = ("-f", "pod.yaml", "--config", "bad.yaml", *SMALL)
    plan = mooring("plan", *command)
    assert plan.code == 1
    assert plan.err == ""
    text = " ".join(plan.out.split())
    assert "CPU Manager Policy Alpha-level Options not enabled, but option" in text
    assert "Set featureGates.CPUManagerPolicyAlphaOptions to true: the kubelet then starts (run here)." in text
    show = mooring("show", *command)
    assert show.code == 1
    assert show.err.startswith("The kubelet would not start: new static policy error: CPU Manager Policy Alpha-level")
    document = mooring("plan", *command, "-o", "json").document
    assert (document["startErrorStage"], document["pods"]) == ("cpuManager", [])


def test_what_state_files_say_is_the_kubelets_answer(folder: Path) -> None:
    root = folder / "root"
    root.mkdir()
    (root / "cpu_manager_state").write_bytes(b"\xff{junk")
    answered = mooring("plan", "-f", "pod.yaml", "--config", "kubelet.yaml", "--state", "root", *SMALL)
    assert answered.code == 1
    assert "please drain this node and delete the CPU manager checkpoint file" in " ".join(answered.out.split())
    assert "Drain the node and delete cpu_manager_state: the kubelet then starts" in " ".join(answered.out.split())


def test_state_files_that_are_none_are_bad_input(folder: Path) -> None:
    (folder / "root" / "cpu_manager_state").mkdir(parents=True)
    answered = mooring("plan", "-f", "pod.yaml", "--config", "kubelet.yaml", "--state", "root", *SMALL)
    assert answered.code == 2
    assert answered.complaint.startswith("mooring: root/cpu_manager_state: cannot be read: Is a directory")


def test_warnings_go_to_standard_error_and_change_nothing(folder: Path) -> None:
    answered = mooring("plan", "-f", folder / "pod.yaml", *SMALL)
    assert answered.code == 0
    assert answered.err.startswith(
        "warning[MOOR-504]: configuration: none given: the kubelet's defaults have CPU manager policy"
    )
    assert mooring("plan", "-f", folder / "pod.yaml", *SMALL, "-o", "json").err == ""


def broken(*_: object, **__: object) -> None:
    raise KeyError("the moon")


def test_an_error_of_our_own_asks_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.answers.topology.command.read_machine", broken)
    answered = mooring("topology", *SMALL)
    assert (answered.code, answered.out) == (70, "")
    assert re.fullmatch(
        r"mooring: internal error in \S+:\d+: KeyError: 'the moon'; this is a defect of Mooring: please report it with "
        r"the command and its input \(MOORING_TRACEBACK=1 shows more\)",
        answered.complaint,
    )
    monkeypatch.setenv(main.TRACEBACK, "1")
    traced = mooring("topology", *SMALL)
    assert traced.code == 70
    assert "Traceback (most recent call last)" in traced.err


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_is_no_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.answers.topology.command.read_machine", interrupted)
    answered = mooring("topology", *SMALL)
    assert (answered.code, answered.out, answered.err) == (130, "", "\n")


@pytest.mark.parametrize("verb", ["", *main.VERBS])
def test_help_and_version_are_answers(verb: str) -> None:
    answered = mooring(*filter(None, [verb, "--help"]))
    assert answered.code == 0
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


def test_the_examples_are_where_the_help_looks_for_them() -> None:
    assert (EXAMPLES / "pods.yaml").is_file()
