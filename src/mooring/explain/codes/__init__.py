"""The pages about the codes: Markdown files of the package, one for each code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files

from mooring.engine.core.errors import InputError
from mooring.engine.releases.rules import RULES

_CODE = re.compile(r"MOOR-[0-9]{3}")
_SOURCE = "\n## Source\n"
_BEGINNING = re.compile(r"MOOR-[0-9]{0,2}")


@dataclass(frozen=True, slots=True)
class CodePage:
    """What there is to know about one code."""

    code: str
    title: str
    """The heading without the code."""
    text: str
    """The whole page in Markdown; its first line is ``# CODE: title``."""


def is_code(text: str) -> bool:
    """Tell whether a text has the form of a code, in either case.

    >>> is_code("MOOR-101"), is_code("moor-101"), is_code("web-0")
    (True, True, False)
    """
    return _CODE.fullmatch(text.upper()) is not None


def all_codes() -> list[str]:
    """Return every code, ascending."""
    names = (entry.name for entry in (files("mooring.explain.codes") / "pages").iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def page(code: str) -> CodePage:
    """Return the page about a code.

    Raises:
        InputError: there is no such code.
    """
    wanted, known = code.upper(), all_codes()
    if wanted not in known:
        near = get_close_matches(wanted, known, n=1, cutoff=0.8)
        raise InputError("no such code", source=code, remedy=f"did you mean {near[0]}?" if near else "")
    text = (files("mooring.explain.codes") / "pages" / f"{wanted}.md").read_text(encoding="utf-8")
    heading = text.partition("\n")[0]
    return CodePage(wanted, heading.removeprefix(f"# {wanted}: "), _with_rules(wanted, text))


def _with_rules(code: str, text: str) -> str:
    """Return a page with the rules that only some releases follow, before its sources."""
    rules = [rule for rule in RULES if code in rule.codes]
    if not rules:
        return text
    lines = [f"* `{rule.name}` ({rule.span}): {rule.says}. Since {rule.after}: {rule.instead}.\n" for rule in rules]
    before, source, after = text.rpartition(_SOURCE)
    return f"{before}\n## Rules of older releases\n\n{''.join(lines)}{source}{after}"


def codes_beginning(text: str) -> list[CodePage]:
    """Return the pages of the codes that begin with a text; none if the text has not the form of such a beginning.

    Capitals only: a pod can have the name ``moor-1``.

    Raises:
        InputError: no code begins with it.

    >>> [found.code for found in codes_beginning("MOOR-72")]
    ['MOOR-721', 'MOOR-722', 'MOOR-723', 'MOOR-724']
    >>> codes_beginning("moor-1")
    []
    """
    if _BEGINNING.fullmatch(text) is None:
        return []
    codes = [page(code) for code in all_codes() if code.startswith(text)]
    if not codes:
        raise InputError("no code begins with this", source=text, remedy="MOOR- lists all codes")
    return codes
