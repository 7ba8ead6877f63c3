"""An unset variable of a script gives an empty value: no option of any verb takes it as not given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.command import NODE, PODS, SMALL, mooring

from mooring.command.main import VERBS, cli
from mooring.engine.core.errors import InputError


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
def test_an_empty_value_is_refused_with_the_name_of_its_option(
    command: click.Command, asked: click.Parameter, value: str
) -> None:
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
    answered = mooring(*words)
    assert (answered.code, answered.out) == (2, "")
    assert answered.err.endswith(": is empty; give it a value\n" if "-f" in words[3:] else ", or leave it out\n")
    assert answered.err.count("\n") == 1


@pytest.mark.parametrize("versions", [("1.33,",), ("1.33,,1.34",), (",",), ("1.33", "1.34,")])
def test_an_empty_release_is_not_the_newest(versions: tuple[str, ...]) -> None:
    given = [word for version in versions for word in ("--kubelet-version", version)]
    answered = mooring("compare", *PODS, *NODE, *given)
    assert (answered.code, answered.out) == (2, "")
    assert answered.complaint == (
        f"mooring: --kubelet-version: '{','.join(versions)}' names an empty release; name releases such as 1.34,1.37"
    )
