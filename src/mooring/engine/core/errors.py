"""The root of all errors and the one for bad input.

An ordinary "no" of the kubelet (a rejected pod, a refused start) is never an exception: it is a value
(:mod:`mooring.engine.core.decision`). Exceptions are for input that cannot be understood.
"""

from __future__ import annotations


def clean(text: str) -> str:
    r"""Return ``text`` on one line and without what is not printed: control characters, escapes, lone surrogates.

    >>> clean("a\x1b[31m\nb")
    'a�[31m b'
    """
    lines = (line.strip() for line in text.splitlines())
    return printable(" ".join(line for line in lines if line).replace("\t", " "))


def printable(text: str) -> str:
    r"""Return ``text`` with its lines and tabs, and without what else is not printed.

    >>> printable("a\x1b[31m\n  b")
    'a�[31m\n  b'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


class MooringError(Exception):
    """Root of every error that Mooring raises on purpose; its text is one line that any terminal can show."""

    def __str__(self) -> str:
        return clean(super().__str__())


class KubeletCrashError(MooringError):
    """A situation in which the kubelet itself crashes; Mooring says so instead of inventing an answer."""


class UnsupportedError(MooringError):
    """Something that the kubelet does and this version of Mooring does not."""


class InputError(MooringError):
    """Input that cannot be used, told in one line: where, which field, what is wrong, what to do.

    >>> print(InputError("'abc' is not a quantity", source="pods.yaml", field="spec", remedy="write 2 or 500m"))
    pods.yaml: spec: 'abc' is not a quantity; write 2 or 500m
    """

    def __init__(self, problem: str, *, source: str = "", field: str = "", remedy: str = "") -> None:
        self.problem = problem
        self.source = source
        self.field = field
        self.remedy = remedy
        super().__init__(problem)

    def __str__(self) -> str:
        where = "".join(f"{shortened(part)}: " for part in (self.source, self.field) if part)
        text = f"{where}{shortened(self.problem)}" + (f"; {shortened(self.remedy)}" if self.remedy else "")
        return clean(text)

    def at(self, source: str) -> InputError:
        """Return the same error with its file named, unless it is named already."""
        return InputError(self.problem, source=self.source or source, field=self.field, remedy=self.remedy)


_LONGEST_PART = 1000


def shortened(text: str) -> str:
    """Return what a line can hold of a text from outside, which may have megabytes."""
    return text if len(text) <= _LONGEST_PART else f"{text[: _LONGEST_PART // 2]}...{text[-_LONGEST_PART // 2 :]}"
