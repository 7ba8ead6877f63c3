"""Help shows examples that the command line understands, for every verb, and lists every verb."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from tests.cli.command import mooring, typed
from tests.values import cases

from mooring.command.main import VERBS, cli, kubectl_complete_main, run
from mooring.inputs.machines.loader import SHIPPED

SHELLS = ("bash", "zsh", "fish")
SHELL = re.compile(r"\s(?:\||>|<)\s.*|^[^|]*\|\s|^source <\(|\)$")


def command_of(verb: str) -> click.Command:
    command = cli.get_command(click.Context(cli), verb)
    assert isinstance(command, click.Command)
    return command


def context_of(command: click.Command, verb: str) -> click.Context:
    """Return a context below that of ``mooring``: click keeps the help option of the first context of a command."""
    return command.make_context(verb, [], parent=click.Context(cli, **cli.context_settings), resilient_parsing=True)


def examples_in(text: str, name: str) -> list[list[str]]:
    """Return the words after ``mooring VERB`` of each example, without what belongs to the shell."""
    lines = (SHELL.sub("", line.strip()) for line in text.splitlines())
    return [shlex.split(line)[2:] for line in lines if line.startswith(f"mooring {name}")]


def described(verb: str) -> str:
    command = command_of(verb)
    return f"{command.help or ''}\n{command.epilog or ''}"


def answering(command: click.Command, words: Sequence[str]) -> tuple[click.Command, Sequence[str]]:
    """Return what answers a command line, and the words that are left: a verb, or one of its questions."""
    if not isinstance(command, click.Group):
        return command, words
    found = command.get_command(click.Context(command), words[0])
    assert found is not None, words
    return found, words[1:]


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_examples_that_are_understood(verb: str) -> None:
    examples = examples_in(described(verb), verb)
    assert len(examples) >= 2, "an example says more than a list of options"
    for words in examples:
        command, asked = answering(command_of(verb), words)
        with context_of(command, verb) as context:
            given, rest, _ = command.make_parser(context).parse_args(list(asked))
        assert not rest, words
        assert given or not words


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_is_an_answer_of_any_width(verb: str, columns: int) -> None:
    answered = mooring(verb, "--help", columns=columns)
    assert (answered.code, answered.err) == (0, "")
    assert answered.out.startswith(f"Usage: mooring {verb} ")
    assert "Examples:" in answered.out


def test_the_list_of_verbs_is_that_of_the_modules() -> None:
    answered = mooring("--help")
    for verb, says in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(says)}$", answered.out, re.MULTILINE), verb
        assert command_of(verb).name == verb


def test_the_examples_of_the_program_are_understood_too() -> None:
    for verb in VERBS:
        for words in examples_in(cli.epilog or "", verb):
            command, rest = answering(command_of(verb), words)
            with context_of(command, verb) as context:
                command.make_parser(context).parse_args(list(rest))


PROGRAMS = {"agent", "demo", "deploy", "dra", "extender", "machines", "play", "record", "serve", "shadow"}
"""Verbs that work, and answer nothing about files."""


@pytest.mark.parametrize(
    "verb",
    sorted(set(VERBS) - PROGRAMS - {"collect", "completion", "fleet", "replay", "status", "topology", "version"}),
)
def test_every_verb_about_a_node_takes_a_node_archive_and_the_shared_options(verb: str) -> None:
    names = {name for parameter in command_of(verb).params for name in parameter.opts}
    assert {"--node", "--machine", "--config", "--state", "--active", "-o", "--to"} <= names


@pytest.mark.parametrize("verb", sorted(set(VERBS) - PROGRAMS - {"completion", "fleet", "replay", "show"}))
def test_every_verb_that_answers_has_a_text_and_a_document(verb: str) -> None:
    (output,) = (parameter for parameter in command_of(verb).params if "-o" in parameter.opts)
    assert isinstance(output.type, click.Choice)
    assert {"text", "json"} <= set(output.type.choices)


# Shells complete verbs, formats and machines: asked as they ask, by the shells themselves where they are installed.


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


@pytest.mark.parametrize(("kind", "values", "line"), cases(__file__, "completions.yaml", "kind", "values", "typed"))
def test_words_are_completed_by_what_they_mean(kind: str, values: list[str], line: str) -> None:
    assert candidates(*typed(line)) == [(kind, value) for value in values]


def test_every_shipped_machine_is_a_candidate() -> None:
    assert [value for _, value in candidates("topology", "--machine", "")] == list(SHIPPED)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_names_program_and_variable(shell: str, tmp_path: Path) -> None:
    answered = mooring("completion", shell)
    assert (answered.code, answered.err) == (0, "")
    assert "_MOORING_COMPLETE" in answered.out
    mooring("completion", shell, "--to", tmp_path / "script")
    assert (tmp_path / "script").read_text(encoding="utf-8") == answered.out


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


@pytest.mark.parametrize(
    ("words", "directive"), [(("pl",), ":4"), (("plan", "-f", "x"), ":0"), (("plan", "--state", ""), ":16")]
)
def test_kubectl_is_told_whether_files_may_follow(
    words: tuple[str, ...], directive: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-mooring", *words])
    kubectl_complete_main()
    assert capsys.readouterr().out.splitlines()[-1] == directive


# ``mooring demo``: everything that it needs is in the package, and nothing of the reader's is overwritten.


def test_the_demo_plans_explains_and_draws_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    said = capsys.readouterr().out
    node = "-f mooring-demo/pods.yaml --machine epyc-7763-2s-nps4 --config mooring-demo/kubelet.yaml"
    assert [line for line in said.splitlines() if line.startswith("$ mooring ")] == [
        f"$ mooring plan {node}",
        f"$ mooring explain ai/inference {node}",
        f"$ mooring show {node} -o svg --to mooring-demo/node.svg",
    ]
    assert "8 pods admitted, 3 rejected." in said
    assert "error[MOOR-105]: ai/inference is rejected: TopologyAffinityError" in said
    assert (tmp_path / "mooring-demo" / "node.svg").read_text(encoding="utf-8").startswith("<svg")


def test_files_that_were_changed_are_kept_and_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pods.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: inference, namespace: ai}\nspec: {containers: [{name: only}]}\n",
        encoding="utf-8",
    )
    assert run(["demo", "--to", str(tmp_path)]) == 0
    assert "1 pod admitted" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run(["demo", "--to", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"mooring: {tmp_path / 'file'}: --to: File exists\n"
