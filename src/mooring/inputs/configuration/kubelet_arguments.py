"""Texts that hold the kubelet's flags: a command line, files of arguments and of environment, units, start scripts.

One flag a line (``/var/snap/microk8s/current/args/kubelet``), ``KUBELET_EXTRA_ARGS=...`` (``/etc/default/kubelet``,
``kubeadm-flags.env``), ``ExecStart=`` of a systemd unit, what ``ps`` prints, and ``/proc/PID/cmdline``, whose arguments
end with a NUL. Sources: https://canonical.com/microk8s/docs/configuring-services,
https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/kubelet-integration/, proc(5).

A start script of EKS on Amazon Linux 2 passes them as ``--kubelet-extra-args`` of ``bootstrap.sh``. Source:
https://github.com/awslabs/amazon-eks-ami, templates/al2/runtime/bootstrap.sh
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mooring.engine.core.errors import InputError

_COMMAND: Final = re.compile(r"(?:ExecStart=)?(?:\S*/)?kubelet\s+(?=-)")
_ENVIRONMENT: Final = re.compile(r"(?:export\s+)?(?:Environment=)?[\"']?KUBELET_\w*ARGS=(?=.)")
_FLAG: Final = re.compile(r"--?[A-Za-z]")
_BESIDE: Final = re.compile(r"#|\[\w+\]|[A-Z][A-Za-z]*=|[A-Z_]+=")
"""What may stand in such a file before the flags: comments, sections and other settings of a unit."""
BOOTSTRAP: Final = re.compile(r"(?:^|[\s/])bootstrap\.sh(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument and the line on which it begins, counted from 1."""

    text: str
    line: int


def kubelet_arguments_in(text: str, source: str) -> tuple[Argument, ...] | None:
    """Return the kubelet's arguments in a text; None when it is something else.

    Raises:
        InputError: a quote is not closed.

    >>> [one.text for one in kubelet_arguments_in('KUBELET_EXTRA_ARGS="--max-pods=50 --v=2"', "example") or ()]
    ['--max-pods=50', '--v=2']
    """
    if "\0" in text:
        words = [word for word in text.split("\0") if word]
        if not any(_FLAG.match(word) for word in words):
            return None
        return tuple(Argument(word, 1) for word in words[1:] if not words[0].startswith("-"))
    found: list[Argument] = []
    for number, line in _joined(text):
        rest = _flags_of(line)
        if rest is not None:
            found += (Argument(word, number) for word in _words(rest, f"{source}:{number}"))
        elif not found and not _BESIDE.match(line):
            return None
    return tuple(one for one in found if not one.text.startswith("$")) or None


def bootstrap_arguments_in(text: str, source: str) -> tuple[tuple[str, Argument], ...] | None:
    """Return the options of ``bootstrap.sh`` with their values; None when the text does not call it.

    Raises:
        InputError: a quote is not closed.

    >>> bootstrap_arguments_in("/etc/eks/bootstrap.sh demo --kubelet-extra-args '--max-pods=50'", "example")
    (('--kubelet-extra-args', Argument(text='--max-pods=50', line=1)),)
    """
    for number, line in _joined(text):
        call = BOOTSTRAP.search(line)
        if call and not line.startswith("#"):
            words = _words(line[call.end() :], f"{source}:{number}")
            return tuple((name, Argument(value, number)) for name, value in pairwise(words) if name.startswith("--"))
    return None


def _flags_of(line: str) -> str | None:
    """Return the part of a line that has flags."""
    if _FLAG.match(line):
        return line
    if command := _COMMAND.match(line):
        return line[command.end() :]
    if environment := _ENVIRONMENT.match(line):
        rest = line[environment.end() :]
        quoted = len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "\"'"
        return rest[1:-1] if quoted else rest.rstrip("\"'") if '"KUBELET' in line else rest
    return None


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are not empty, with their numbers; a backslash at the end continues a line."""
    waiting, begins = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        begins = begins if waiting else number
        waiting += line.strip()
        if waiting.endswith("\\"):
            waiting = f"{waiting[:-1].rstrip()} "
            continue
        if waiting:
            yield begins, waiting
        waiting = ""
    if waiting:
        yield begins, waiting.strip()


def _words(text: str, source: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError(f"cannot be read as arguments: {error}", source=source, remedy="close the quote") from None


def split_arguments(text: str, source: str) -> tuple[str, ...]:
    """Return arguments that are one text, as a shell splits it.

    Raises:
        InputError: a quote is not closed.
    """
    return tuple(_words(text, source))
