"""Texts for people and commands to paste pass one function each, which no view can go round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.test_house_names import SOURCE, modules, tree

DOORS = {
    "click.echo": "cli/output.py",
    "click.secho": "",
    "print": "",
    "sys.stdout.write": "cli/output.py",
    "sys.stderr.write": "",
    "StyledText": "cli/terminal.py",
    "terminal_segments": "views/console.py answers/show.py",
}
"""What reaches a terminal, or says that a text may -> the modules that may call it."""
LAST_NAMES = {door.rpartition(".")[2] for door in DOORS}
_PROGRAMS = "kubectl|systemctl|crictl|mooring|rm|cp|mv|mkdir|chmod|mount|tee|cat"
_COMMAND = re.compile(rf"(?:^|[\s`'\"(:])(?:{_PROGRAMS}) (?:[-\w/.=]+ )*$")
"""A text that goes on with a word of a command."""

_OWN = {"next(iter(codes))", "codes[0]", "document.code", "document.mooring"}
"""Codes of this program, and its version."""


def calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func
            if (
                isinstance(name, ast.Name | ast.Attribute)
                and (name.id if isinstance(name, ast.Name) else name.attr) in LAST_NAMES
            ):
                yield ast.unparse(name), node.lineno


def unquoted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the commands of f-strings that have a word which is no constant and not quoted."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
                continue
            value = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
            if (
                _COMMAND.search(text)
                and not value.isupper()
                and value not in _OWN
                and not value.startswith(("shlex.join(", "shlex.quote("))
            ):
                yield node.lineno, f"{text[-60:]}{{{value}}}"
            text += "WORD"


def test_what_people_read_passes_the_doors_of_output() -> None:
    found = []
    for module in modules():
        name = module.relative_to(SOURCE).as_posix()
        for call, line in calls(tree(module)):
            if call in DOORS and name not in DOORS[call].split():
                found.append(f"{name}:{line}: {call}")
    assert found == []


def test_a_printed_command_has_quoted_words() -> None:
    found = [
        f"{module.relative_to(SOURCE)}:{line}: {command}"
        for module in modules()
        for line, command in unquoted(tree(module))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ('f"kubectl cordon {node}"', True),
        ('f"see it: kubectl get vmi {name} -o yaml"', True),
        ('f"rm -f {root}/{FILE}"', True),
        ('f"mooring agent --config {AGENT_FILE} --leave"', False),
        ('f"rm -f {shlex.quote(path)}"', False),
        ('f"a firm {name}"', False),
        ('f"kubectl is there: {name}"', False),
    ],
)
def test_the_check_finds_what_it_is_for(source: str, is_found: bool) -> None:
    assert bool([*unquoted(ast.parse(source))]) == is_found
    assert Path(SOURCE / "cli" / "output.py").is_file()
