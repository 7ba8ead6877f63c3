"""The examples of the Markdown pages: found, run, and compared with what the page shows.

A fence says what its block is:

* ``console``: lines that begin with ``$`` are commands, the rest is what they print, standard error included.
  ``$ echo $?`` prints the exit code of the command before it. All of it runs.
* ``python``: examples as in an interactive session; all blocks of a page share one session. All of it runs.
* ``yaml`` with a first line ``# file: NAME``: written to NAME in the page's folder before anything below it runs.
* everything else, such as ``sh``, is shown and not run.

Each page runs in a folder of its own in which ``examples`` and ``tests`` are those of the repository. Three dots in
what a page shows stand for any text, and on a line of their own for any lines.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
SHARED_FOLDERS = ("examples", "tests")
ENVIRONMENT = {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
"""What the width and the colours of an answer depend on."""

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_LINE = re.compile(r"# file: (\S+)\n")
NEEDS_A_SHELL = re.compile(r"[|<>;&*$`]")
INTO_A_FILTER = re.compile(r"(mooring [^|<>;&*$`]+)[|] (.+)")
SECONDS = 120
DEFECT = 70
"""Exit code of an error of Mooring itself: no page shall show that."""


def pages() -> list[Path]:
    """Return every Markdown page with examples, in text order."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    return sorted(page for page in found if page.exists())


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An example that does not do what its page shows."""

    page: Path
    line: int
    """Line of the page on which the block begins."""
    shown: str
    actual: str

    def __str__(self) -> str:
        return (
            f"{self.page.relative_to(ROOT)}:{self.line}: shows\n{self.shown}but it is\n{self.actual}"
            "(scripts/refresh_docs.py writes what it is into the page)"
        )


def run_page(page: Path) -> tuple[str, list[Mismatch]]:
    """Run the examples of a page; return its text with every output as it is now, and where that differs."""
    text = page.read_text(encoding="utf-8")
    mismatches: list[Mismatch] = []
    session: dict[str, Any] = {"__name__": "__main__"}
    with _work_folder():

        def now(fence: re.Match[str]) -> str:
            language, shown = fence.groups()
            actual = _rewritten(language, shown, session)
            if actual != shown:
                line = text.count("\n", 0, fence.start()) + 1
                mismatches.append(Mismatch(page, line, shown, actual))
            return f"```{language}\n{actual}```"

        return FENCE.sub(now, text), mismatches


def _rewritten(language: str, shown: str, session: dict[str, Any]) -> str:
    """Return a block with its outputs as they are now."""
    if language == "console":
        return _console(shown)
    if language == "python":
        return _python(shown, session)
    named = FILE_LINE.match(shown) if language == "yaml" else None
    if named:
        Path(named[1]).write_text(shown[named.end() :], encoding="utf-8")
    return shown


@contextlib.contextmanager
def _work_folder() -> Iterator[None]:
    """Go to a folder of its own, with the environment of the examples; come back afterwards."""
    here = Path.cwd()
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {**ENVIRONMENT, "PATH": commands}):
        for name in SHARED_FOLDERS:
            (Path(folder) / name).symlink_to(ROOT / name)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def _console(block: str) -> str:
    parts: list[str] = []
    code = 0
    for command, shown in _commands(block):
        if command.strip() == "echo $?":
            output = f"{code}\n"
        else:
            output, code = _run(command.replace("\\\n", " "))
            if code == DEFECT:
                raise RuntimeError(f"{command}: {output}")
        parts.append(f"$ {command}\n{shown if matches(shown, output) else output}")
    return "".join(parts)


def _commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block with the output that the page shows for it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, shown = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", part, re.DOTALL).groups()  # type: ignore[union-attr]
        yield command.rstrip("\n"), shown


def _run(command: str) -> tuple[str, int]:
    """Run one command; return everything that it printed, and its exit code."""
    words = shlex.split(command)
    if words[0] == "mooring" and not NEEDS_A_SHELL.search(command):
        return _run_here(words[1:])
    piped = INTO_A_FILTER.fullmatch(command)
    finished = subprocess.run(  # noqa: S602 - the commands of our own pages, pipes and all
        piped[2] if piped else command,
        shell=True,
        input=_run_here(shlex.split(piped[1])[1:])[0] if piped else "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
        timeout=SECONDS,
    )
    return _trimmed(finished.stdout), finished.returncode


def _run_here(arguments: list[str]) -> tuple[str, int]:
    """Run mooring in this process: a hundred examples start a hundred interpreters otherwise."""
    from mooring.command.main import main  # noqa: PLC0415 - pages without commands need no command line

    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["mooring", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
    return _trimmed(output.getvalue()), code


def _trimmed(output: str) -> str:
    """Return an output without the spaces at the ends of its lines, which a page cannot show."""
    lines = [line.rstrip() for line in output.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def matches(shown: str, output: str) -> bool:
    """Tell whether an output is what a page shows, with three dots for what it leaves out."""
    pattern = re.escape(shown)
    pattern = re.sub(r"(?m)^\\\.\\\.\\\.\\\n", r"(?:.*\\n)*?", pattern)
    return re.fullmatch(pattern.replace(r"\.\.\.", "[^\n]*?"), output) is not None


def _python(block: str, session: dict[str, Any]) -> str:
    parts: list[str] = []
    for piece in doctest.DocTestParser().parse(block):
        if isinstance(piece, str):
            parts.append(piece)
            continue
        prompted = piece.source.rstrip("\n").replace("\n", "\n... ")
        output = _executed(piece.source, session)
        parts.append(f">>> {prompted}\n{piece.want if _same(piece.want, output) else output}")
    return "".join(parts)


def _same(want: str, output: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(want, output, flags)


def _executed(source: str, session: dict[str, Any]) -> str:
    """Run one interactive statement; return what it printed, an exception as its last line."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(source, "<page>", "single"), session)  # noqa: S102 - the examples of our own pages
        except Exception as error:  # noqa: BLE001 - whatever an example shows
            output.write(f"Traceback (most recent call last):\n    ...\n{type(error).__name__}: {error}\n")
    return output.getvalue()
