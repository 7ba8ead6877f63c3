"""The pages about the codes, Markdown files of the package, and a table of reasons and messages that they split."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib.resources import files

from mooring.engine.core.decision import OUT_OF, is_decided_reason
from mooring.engine.core.errors import InputError
from mooring.engine.releases.rules import RULES
from mooring.lazy import dataclass

_CODE = re.compile(r"MOOR-[0-9]{3}")
_SOURCE = "\n## Source\n"
_MESSAGE = re.compile(r"^\* `(.+?)`: .*\n", re.MULTILINE)
_VERB = re.compile(r"%[dsv]")
"""Where Go puts a value into a message."""
_WORD = re.compile(r"[\w./-]+")
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
    names = (entry.name for entry in (files("mooring.explanations.codes") / "pages").iterdir())
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
    text = (files("mooring.explanations.codes") / "pages" / f"{wanted}.md").read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix(f"# {wanted}: ")
    rules = [rule for rule in RULES if wanted in rule.codes]
    if rules:
        # What only some releases follow stands before the sources.
        lines = [f"* `{rule.name}` ({rule.span}): {rule.says}. Since {rule.after}: {rule.instead}.\n" for rule in rules]
        before, source, after = text.rpartition(_SOURCE)
        text = f"{before}\n## Rules of older releases\n\n{''.join(lines)}{source}{after}"
    return CodePage(wanted, title, text)


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


def reasons() -> dict[str, str]:
    """Return the part of the table about each reason, by the name of the reason."""
    table = (files("mooring.explanations.codes") / "reasons.md").read_text(encoding="utf-8")
    parts = (part.partition("\n\n") for part in table.split("\n## ")[1:])
    return {name: text for names, _, text in parts for name in names.split(", ")}


def reason_page(text: str) -> CodePage | None:
    """Return what a reason means, or a sentence that has one, a code or a message of the table in it; None for a name.

    Messages are the formats of the kubelet, the scheduler and the API server.

    Raises:
        InputError: a sentence has none of them.
    """
    table, sentence = reasons(), " ".join(text.split())
    if " " in sentence and (found := _CODE.search(sentence)):
        return page(found[0])
    words = [f"{OUT_OF}*" if is_decided_reason(word) and OUT_OF in word else word for word in _WORD.findall(sentence)]
    name = next((word for word in words if word in table), "")
    said = [
        (reason, message)
        for reason in ([name] if name else table)
        for message in _MESSAGE.finditer(table[reason])
        if re.search(".*".join(map(re.escape, _VERB.split(message[1]))), sentence)
    ]
    name = name or (said[0][0] if said else "")
    if not name:
        if " " not in sentence:
            return None
        remedy = f"paste the message of an event as it is, or name a reason: {', '.join(list(table)[:5])}"
        raise InputError("no known reason is in this sentence", source=text[:80], remedy=remedy)
    about = "".join(message[0] for reason, message in said if reason == name)
    codes = dict.fromkeys(_CODE.findall(about) or _CODE.findall(table[name].rpartition("\nCodes: ")[2]))
    meaning = _MESSAGE.sub("", table[name]).rpartition("\nCodes: ")[0] or _MESSAGE.sub("", table[name])
    listed = "".join(f"* {code}: {page(code).title}\n" for code in codes)
    messages = about or "".join(message[0] for message in _MESSAGE.finditer(table[name]))
    titled = (("What it means", meaning), ("Messages", messages), ("Codes: mooring explain CODE", listed))
    parts = (f"\n## {title}\n\n{content.strip()}\n" for title, content in titled if content.strip())
    return CodePage(name, name, f"# {name}\n{''.join(parts)}")
