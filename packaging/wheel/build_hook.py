"""What the wheel has besides the package: man pages and shell completions, made from the commands while it is built.

hatchling runs the hook (``tool.hatch.build.hooks.custom``) in an environment with the package's own dependencies. An
editable install gets nothing: its commands change without a build.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPLETIONS = {
    "bash": "share/bash-completion/completions/mooring",
    "zsh": "share/zsh/site-functions/_mooring",
    "fish": "share/fish/vendor_completions.d/mooring.fish",
}


class MooringBuildHook(BuildHookInterface[Any]):
    """Adds man pages and completions to the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files into a folder of their own, and name them."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "src")))
        self._folder = tempfile.TemporaryDirectory()
        for number, (place, text) in enumerate(shared_files()):
            file = Path(self._folder.name, str(number))
            file.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's signature
        """Remove the folder."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def shared_files() -> Iterator[tuple[str, str]]:
    """Yield the path below the prefix and the text of each file."""
    from mooring import __version__  # noqa: PLC0415 - the hook puts the package on the path
    from mooring.command import (  # noqa: PLC0415 - as above
        completion,
        main,
    )

    for shell, place in _COMPLETIONS.items():
        yield place, completion.script(main.cli, shell, main.PROGRAM, main.COMPLETION)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or datetime.now(UTC).timestamp()
    date = datetime.fromtimestamp(seconds, UTC).date().isoformat()
    for name, page in man_pages(main.cli, main.PROGRAM, None):
        yield f"share/man/man1/{name}.1", f'.TH "{name.upper()}" "1" "{date}" "mooring {__version__}" "Mooring"\n{page}'


def man_pages(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Yield name and text, without the title, of the page of a click command and of each of its subcommands."""
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    description = (command.help or "").strip().partition("\n")[2]
    page = context.command_path.replace(" ", "-")
    usage = f".B {_text(context.command_path)}\n{_text(' '.join(command.collect_usage_pieces(context)))}"
    sections = [("NAME", f"{_text(page)} \\- {_text(_summary(command))}"), ("SYNOPSIS", usage)]
    if description.strip():
        sections.append(("DESCRIPTION", _paragraphs(description)))
    records = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    if records:
        sections.append(("OPTIONS", "\n".join(f".TP\n.B {_text(left)}\n{_text(right)}" for left, right in records)))
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    others = {other: command.get_command(context, other) for other in names}
    if others:
        lines = [f".TP\n.BR {_text(f'{page}-{other}')} (1)\n{_text(_summary(verb))}" for other, verb in others.items()]
        sections.append(("COMMANDS", "\n".join(lines)))
    if command.epilog:
        sections.append(("NOTES", _paragraphs(command.epilog)))
    yield page, "".join(f".SH {title}\n{text}\n" for title, text in sections)
    for other_name, other in others.items():
        yield from man_pages(other, other_name, context)


def _summary(command: Any) -> str:
    return (command.help or "").strip().partition("\n")[0].removeprefix("Mooring: ")


def _paragraphs(text: str) -> str:
    r"""Return paragraphs of click's help; one that begins with the mark ``\b`` keeps its lines."""
    blocks = [block.strip("\n") for block in re.split(r"\n\s*\n", text.replace("\b\n", "\b")) if block.strip()]
    return "\n".join(
        f".PP\n.nf\n{_text(block[1:], keep_lines=True)}\n.fi" if block.startswith("\b") else f".PP\n{_text(block)}"
        for block in blocks
    )


def _text(text: str, *, keep_lines: bool = False) -> str:
    """Return text in which roff finds no requests."""
    lines = text.split("\n") if keep_lines else [" ".join(text.split())]
    escaped = [line.replace("\\", "\\e").replace("-", "\\-") for line in lines]
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped)
