"""Help shows examples that the command line understands, for every verb, and lists every verb."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from tests.cli.command import EXECUTED, mooring

from mooring.command.main import VERBS, cli

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


_LOADED = f"""
import sys
from mooring.command.main import run
code = run(sys.argv[1:])
{EXECUTED}
heavy = {{"asyncio", "grpc", "importlib.metadata", "jsonschema", "msgspec", "rich", "ssl", "h11", "yaml"}}
rooms = {{"mooring." + room for room in ("agent", "dra", "node", "publisher", "scheduling", "service.http")}}
sys.stderr.write(" ".join(sorted((heavy | rooms) & executed)))
sys.exit(code)
"""
NODE = ("--machine", "sockets=2 cores=8 memory=32Gi")


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (("--version",), ""),
        (("plan", "--help"), ""),
        (("topology", *NODE, "-o", "json"), "msgspec"),
        (
            ("plan", "-f", "examples/pods.yaml", *NODE, "--config", "examples/kubelet.yaml"),
            "mooring.engine.node msgspec rich yaml",
        ),
    ],
    ids=["version", "help", "topology", "plan"],
)
def test_a_command_imports_only_what_it_needs(words: tuple[str, ...], loaded: str) -> None:
    root = Path(__file__).resolve().parents[2]
    asked = [sys.executable, "-c", _LOADED, *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60, cwd=root)
    assert set(done.stderr.split()) <= set(loaded.split())
