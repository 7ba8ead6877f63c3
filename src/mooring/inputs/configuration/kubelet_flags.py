"""The kubelet's command line: what of it decides, and how it changes a configuration file.

Source: kubelet v1.37.1, cmd/kubelet/app/options; a flag wins over the configuration file, and feature gates of both are
put together. Names of all flags:
https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/

Texts that hold the kubelet's flags: a command line, files of arguments and of environment, units, start scripts.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.releases.config_fields import FIELDS, Holds, KubeletField, is_lasting
from mooring.lazy import dataclass, field


def _pairs(text: str, sign: str = "=") -> dict[str, str]:
    parts = (part.partition(sign) for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in parts}


def _truth(text: str) -> bool:
    return text.lower() in ("", "1", "t", "true")


def _count(text: str) -> int | str:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else text


READINGS: Final[Mapping[Holds, Callable[[str], Any]]] = {
    Holds.FLAG: _truth,
    Holds.COUNT: _count,
    Holds.TEXTS: lambda text: text.split(",") if text else [],
    Holds.THRESHOLDS: lambda text: _pairs(text, "<"),
    Holds.GATES: lambda text: {name: _truth(value) for name, value in _pairs(text).items()},
    Holds.MEMORY: lambda text: [
        {"numaNode": _count(node.strip()), "limits": _pairs(limits)}
        for node, _, limits in (part.partition(":") for part in text.split(";"))
        if node.strip()
    ],
    **dict.fromkeys((Holds.OPTIONS, Holds.AMOUNTS, Holds.MINIMA, Holds.DURATIONS), _pairs),
}
"""What a field holds -> how a flag's text is read, where it is not the value itself."""
_FIELDS: Final[Mapping[str, KubeletField]] = {one.flag: one for one in FIELDS if one.flag}
_PLACES: Final = {"config": "config", "config-dir": "config_dir", "root-dir": "root_dir", "hostname-override": "node"}
_SWITCHES: Final = frozenset(flag for flag, one in _FIELDS.items() if one.holds is Holds.FLAG)
"""Flags that need no value."""


@dataclass(frozen=True, slots=True)
class KubeletFlags:
    """What a kubelet's command line says about its decisions, and where it looks for more."""

    config: str = ""
    config_dir: str = ""
    root_dir: str = ""
    node: str = ""
    """The node's name, where it is not the computer's."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a KubeletConfiguration."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Field -> number of the last argument that sets it, counted from 0."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """Flag as it is written, with its dashes, that not every release has -> number of its first argument."""


def kubelet_flags(arguments: Iterable[str]) -> KubeletFlags:
    """Return what decides among a kubelet's arguments; everything else is ignored.

    >>> kubelet_flags(["--config", "/etc/kubelet.yaml", "--reserved_cpus=0-1", "--v=2"]).fields
    {'reservedSystemCPUs': '0-1'}
    """
    fields: dict[str, Any] = {}
    places: dict[str, str] = {}
    positions: dict[str, int] = {}
    leaving: dict[str, int] = {}
    arguments = list(arguments)
    for position, written, value in _named(arguments):
        name = written.lstrip("-").replace("_", "-")
        if not is_lasting(written):
            # The kubelet's text about letters has the whole argument.
            leaving.setdefault(written if written.startswith("--") else arguments[position], position)
        if name in _PLACES:
            places[_PLACES[name]] = value
        elif name in _FIELDS:
            target = _FIELDS[name].name
            positions[target] = position
            fields[target] = repeated(fields.get(target), READINGS.get(_FIELDS[name].holds, str)(value))
    return KubeletFlags(**places, fields=fields, positions=positions, leaving=leaving)


def repeated(earlier: Any, value: Any) -> Any:
    """Return what a field is after one more flag that sets it: flags that hold several values may be repeated."""
    if isinstance(earlier, dict) and isinstance(value, dict):
        return {**earlier, **value}
    return [*earlier, *value] if isinstance(earlier, list) and isinstance(value, list) else value


def _named(arguments: list[str]) -> Iterable[tuple[int, str, str]]:
    """Yield flags as they are written with their positions and values, which may be in one argument or in two."""
    index = 0
    while index < len(arguments):
        position, argument = index, arguments[index]
        index += 1
        if not argument.startswith("-"):
            continue
        written, equals, value = argument.partition("=")
        name = written.lstrip("-").replace("_", "-")
        if not equals and name not in _SWITCHES and index < len(arguments) and not arguments[index].startswith("-"):
            value = arguments[index]
            index += 1
        yield position, written, value


def merged_configuration(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration after a file of ``--config-dir``: a JSON merge patch (RFC 7386).

    >>> merged_configuration({"a": 1, "b": {"x": 1}}, {"a": None, "b": {"y": 2}})
    {'b': {'x': 1, 'y': 2}}
    """
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = merged_configuration(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged


_COMMAND: Final = re.compile(r"(?:ExecStart=)?(?:\S*/)?kubelet\s+(?=-)")
_ENVIRONMENT: Final = re.compile(r"(?:export\s+)?(Environment=)?([\"']?)KUBELET_\w*=(?=.*-)")
_FLAG: Final = re.compile(r"--?[A-Za-z]")
_BESIDE: Final = re.compile(r"#|\[\w+\]|[A-Z][A-Za-z]*=|[A-Z_]+=")
"""What may stand in such a file before the flags: comments, sections and other settings of a unit."""
LOGGED: Final = re.compile(r'\bFLAG: (--[\w-]+)="(.*)"\s*$', re.MULTILINE)
_ANYWHERE: Final = re.compile(r"(?:^|[\s/\"'=])kubelet[\"']?\s+(?=--[a-z])")
_CARRIED: Final = re.compile(
    r"""--(?:kubelet-arg[=\s]+|extra-config[=\s]+["']?kubelet\.)["']?([\w-]+=[^\s"'@]*)"""
    r"""|(--)?kubelet-extra-args[=\s]+(?:"([^"]*)"|'([^']*)'|(--\S+))"""
)
"""Flags of the kubelet in those of k3s and RKE2, minikube, k0s, and a charm."""
_ASSIGNED: Final = re.compile(
    r"""\s*(?:export\s+)?["']?([\w.-]+)["']?\s*[=:]\s*(?:"([^"]*)"|'([^']*)')(?:\s*[,;])?(?:\s*#.*)?"""
)
"""A name and a text in quotes: a variable that has flags, or in other languages a flag and its value."""
_CHANGED: Final = re.compile(r"""\.(\w+)\s*\|?=\s*\\?["']?([\w.:,-]+)""")
"""A field that jq or yq sets in the kubelet's file."""
BOOTSTRAP: Final = re.compile(r"(?:^|[\s/])bootstrap\.sh(?=\s|$)")


Argument: TypeAlias = tuple[str, int]
"""One argument and the line on which it begins, counted from 1."""


def kubelet_arguments_in(text: str, source: str) -> tuple[Argument, ...] | None:
    """Return the kubelet's arguments in a text; None when it is something else.

    Raises:
        InputError: a quote is not closed.

    >>> [word for word, _ in kubelet_arguments_in('KUBELET_EXTRA_ARGS="--max-pods=50 --v=2"', "example") or ()]
    ['--max-pods=50', '--v=2']
    """
    if "\0" in text:
        words = [word for word in text.split("\0") if word]
        if not any(_FLAG.match(word) for word in words):
            return None
        return tuple((word, 1) for word in words[1:] if not words[0].startswith("-"))
    found: list[Argument] = []
    for number, line in _joined(text):
        rest = _flags_of(line)
        if rest is not None:
            found += ((word, number) for word in split_arguments(rest, f"{source}:{number}"))
        elif not found and not _BESIDE.match(line):
            return None
    return tuple(one for one in found if not one[0].startswith("$")) or None


def carried_flags(line: str) -> str:
    """Return the kubelet's flags in the flags of another program; empty where it has none."""
    found = (one[1] or one[3] or one[4] or one[5] or "" for one in _CARRIED.finditer(line))
    return " ".join(word if word.startswith("-") else f"--{word}" for text in found for word in text.split())


def pasted_arguments_in(text: str, source: str) -> tuple[Argument, ...]:
    """Return the kubelet's arguments on any line of a text: of ``ps``, of a log, of a script or another program.

    A log has a line for each flag, with the default of those that were not given; these are left out.

    Raises:
        InputError: a quote is not closed.

    >>> [word for word, _ in pasted_arguments_in("root 1 0.5 /usr/bin/kubelet --max-pods=50", "example")]
    ['--max-pods=50']
    """
    found: list[Argument] = []
    for number, line in _joined(text):
        if logged := LOGGED.search(line):
            one = _FIELDS.get(logged[1].lstrip("-"))
            value = READINGS.get(one.holds, str)(logged[2]) if one else ""
            if one and one.member and value and value != one.of(KubeletConfig()):
                found.append((f"{logged[1]}={logged[2]}", number))
        elif command := _ANYWHERE.search(line):
            # What follows in quotes, or behind the command, is not the kubelet's.
            rest = re.split(r"[;&|`]|\s#", line[command.end() :], maxsplit=1)[0].replace('"', "").replace("'", "")
            found += ((word, number) for word in rest.split() if not word.startswith("$"))
        elif re.search(r"\b[jy]q\b", line):
            changed = dict(_CHANGED.findall(line))
            found += (
                (f"--{one.flag}={changed[one.name]}", number) for one in FIELDS if one.flag and one.name in changed
            )
        elif carried := carried_flags(line):
            found += ((word, number) for word in split_arguments(carried, source))
        elif assigned := _ASSIGNED.fullmatch(line):
            name, value = assigned[1].rpartition(".")[2], assigned[2] or assigned[3] or ""
            words = value.split() if value.startswith("--") else [f"--{name}={value}"] if name in _FIELDS else []
            found += ((word, number) for word in words if kubelet_flags(words).fields)
    return tuple(found)


def bootstrap_arguments_in(text: str, source: str) -> tuple[tuple[str, Argument], ...] | None:
    """Return the options of ``bootstrap.sh`` with their values; None when the text does not call it.

    Raises:
        InputError: a quote is not closed.

    >>> bootstrap_arguments_in("/etc/eks/bootstrap.sh demo --kubelet-extra-args '--max-pods=50'", "example")
    (('--kubelet-extra-args', ('--max-pods=50', 1)),)
    """
    for number, line in _joined(text):
        call = BOOTSTRAP.search(line)
        if call and not line.startswith("#"):
            words = split_arguments(line[call.end() :], f"{source}:{number}")
            return tuple((name, (value, number)) for name, value in pairwise(words) if name.startswith("--"))
    return None


def _flags_of(line: str) -> str | None:
    """Return the part of a line that has flags."""
    if carried := carried_flags(line):
        return carried
    if _FLAG.match(line):
        return line
    if command := _COMMAND.match(line):
        return line[command.end() :]
    if environment := _ENVIRONMENT.match(line):
        # systemd takes both quotes around a whole assignment, a shell around its value.
        rest, quote = line[environment.end() :], environment[2]
        if quote:
            return rest.partition(quote)[0] if environment[1] else rest.removesuffix(quote)
        quoted = len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "\"'"
        return rest[1:-1] if quoted else rest
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


def split_arguments(text: str, source: str) -> list[str]:
    """Return arguments that are one text, as a shell splits it.

    Raises:
        InputError: a quote is not closed.
    """
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError(f"cannot be read as arguments: {error}", source=source, remedy="close the quote") from None
