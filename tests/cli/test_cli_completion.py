"""Shells complete verbs, formats and machines: asked as they ask, by the shells themselves where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from tests.cli.command import PODS, mooring

from mooring.command.completion import SHELLS, cobra_lines
from mooring.command.main import VERBS, cli
from mooring.inputs.machines.shipped import SHIPPED

BASH = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={last}
_mooring_completion mooring
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ :; }}
_describe() {{ print -l -- ${{(P)3}} }}
compadd() {{ print -l -- ${{@:6}} }}
source {script}
words=({words}) CURRENT={current}
_mooring_completion
"""
FISH = "source {script}; complete --do-complete='{words}'"


MEMORY = ("None", "Static")
VARIED = [("plain", f"topology-policy,topology-{one}") for one in ("scope", "options")]


def candidates(*words: str) -> list[tuple[str, str]]:
    *before, incomplete = words
    found = ShellComplete(cli, {}, "mooring", "").get_completions(list(before), incomplete)
    return [(item.type, item.value) for item in found]


def test_verbs_are_completed_without_importing_them() -> None:
    code = (
        "import sys; from click.shell_completion import ShellComplete; from mooring.command.main import cli;"
        "print(len(ShellComplete(cli, {}, 'mooring', '').get_completions([], '')));"
        "print([name for name in sys.modules if name.startswith('mooring.answers.')])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert told[:2] == [str(len(VERBS)), "[]"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pla",), [("plain", "plan"), ("plain", "play")]),
        (("plan", "--machine", "xeon-84"), [("plain", "xeon-8480-2s")]),
        (("plan", "--machine", "./no"), [("file", "./no")]),
        (("topology", "-o", "ma"), [("plain", "machineinfo")]),
        (("explain", "Topology"), [("plain", "TopologyAffinityError")]),
        (("explain", ""), []),
        (("explain", "MOOR-10"), [("plain", f"MOOR-10{number}") for number in range(1, 9)]),
        (("explain", *PODS, "hpc/"), [("plain", "hpc/solver")]),
        (("whatif", *PODS, "upf-"), [("plain", f"upf-{number}") for number in range(3)]),
        (("resize", "-f", "no-such-file", ""), []),
        (("upgrade", "1.38"), [("plain", "1.38")]),
        (("compare", "--kubelet-version", "1.34,1.38"), [("plain", "1.34,1.38")]),
        (("compare", "--vary", "topology-policy,t"), [*VARIED]),
        (("whatif", "--set", "memoryManagerPolicy="), [("plain", f"memoryManagerPolicy={one}") for one in MEMORY]),
        (("fleet", "compare", "--set", "topologyManagerScope=p"), [("plain", "topologyManagerScope=pod")]),
        (("completion", ""), [("plain", shell) for shell in SHELLS]),
        (("plan", "--state", ""), [("dir", "")]),
        (("plan", "-f", "po"), [("file", "po")]),
        (("show", "--node", "n"), [("file", "n")]),
        (("topology", "--n"), [("plain", "--node")]),
        (("collect", "--kubelet-r"), [("plain", "--kubelet-root")]),
    ],
)
def test_words_are_completed_by_what_they_mean(words: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    assert candidates(*words) == expected


def test_every_shipped_machine_is_a_candidate() -> None:
    assert [value for _, value in candidates("topology", "--machine", "")] == list(SHIPPED)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_names_program_and_variable(shell: str, tmp_path: Path) -> None:
    answered = mooring("completion", shell)
    assert (answered.code, answered.err) == (0, "")
    assert "_MOORING_COMPLETE" in answered.out
    mooring("completion", shell, "--to", tmp_path / "script")
    assert (tmp_path / "script").read_text(encoding="utf-8") == answered.out


def test_another_shell_is_refused_with_the_known_ones() -> None:
    answered = mooring("completion", "csh")
    assert answered.code == 2
    assert "bash" in answered.complaint


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("mooring", "expl"), "explain"),
        (("mooring", "plan", "--machine", "sma"), "small-1s8"),
        (("mooring", "whatif", "--set", "topologyManagerScope=p"), "topologyManagerScope=pod"),
    ],
    ids=["verb", "machine", "value"],
)
def test_the_shell_itself_completes(shell: str, words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    if shell == "bash" and _bash_version(program) < (4, 4):
        pytest.skip("bash is older than 4.4")
    script = tmp_path / "script"
    mooring("completion", shell, "--to", script)
    template = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell]
    # Bash takes an equals sign for a word, and replaces what is behind it.
    typed = " ".join(words).replace("=", " = ").split() if shell == "bash" else words
    expected = expected.rpartition("=")[2] if shell == "bash" else expected
    asked = template.format(script=script, words=" ".join(typed), last=len(typed) - 1, current=len(typed))
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    plain = [program, *{"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell], "-c", asked]
    told = subprocess.run(plain, capture_output=True, text=True, check=False, env={**os.environ, "PATH": search})
    completed = [line.split("\t")[0].split(":")[0] for line in told.stdout.splitlines()]
    assert completed == [expected], told


def _bash_version(program: str) -> tuple[int, ...]:
    told = subprocess.run(
        [program, "-c", "echo ${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"], capture_output=True, text=True, check=True
    )
    return tuple(int(number) for number in told.stdout.split())


def test_kubectl_is_told_whether_files_may_follow() -> None:
    def directive(*words: str) -> str:
        *before, incomplete = words
        return cobra_lines(ShellComplete(cli, {}, "mooring", "").get_completions(list(before), incomplete))[-1]

    assert (directive("pl"), directive("plan", "-f", "x"), directive("plan", "--state", "")) == (":4", ":0", ":16")
