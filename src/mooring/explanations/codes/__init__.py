"""What became of a pod, in one value: a stable code, a sentence, and what can be done; remedies of refused starts.

The codes 1xx are given here and nowhere else; each has a page (``mooring explain MOOR-101``), a Markdown file of the
package. A code names a cause, not the kubelet's reason: too few CPUs are MOOR-101 whichever manager noticed it. A table
of reasons and messages stands beside the pages.

Source of a refused start's texts: kubelets v1.31.14 to v1.37.1; spec: configuration.md, state-files.md section 4,
releases.md sections 2, 3 and 8. Source of the advice: the kubelet's own text, the reference of KubeletConfiguration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from mooring.engine.core.decision import OUT_OF, Cause, StartRefusal, is_decided_reason
from mooring.engine.core.errors import InputError
from mooring.engine.releases.rules import RULES
from mooring.lazy import dataclass, lazily

with lazily():
    import difflib

NOT_ENOUGH_CPUS = "MOOR-101"
LARGER_THAN_A_NODE = "MOOR-102"
NO_SINGLE_NODE = "MOOR-103"
TOO_MANY_NODES = "MOOR-104"
PINNED_BY_EARLIER = "MOOR-105"
HOLDS_ANOTHER_NUMBER = "MOOR-106"
HELD_ELSEWHERE = "MOOR-107"
PULLED_APART = "MOOR-108"

NOT_ENOUGH_MEMORY = "MOOR-111"
NO_SINGLE_NODE_FOR_MEMORY = "MOOR-112"
TOO_MANY_NODES_FOR_MEMORY = "MOOR-113"
MEMORY_GROUP_CONFLICT = "MOOR-114"
TOO_LITTLE_WHERE_CHOSEN = "MOOR-115"

NO_WHOLE_CORES = "MOOR-121"
TOO_FEW_WHOLE_CORES = "MOOR-122"
NOTHING_TO_SHARE = "MOOR-123"
TAKING_FAILS = "MOOR-124"
WITHHELD = "MOOR-125"

NOT_ENOUGH_DEVICES = "MOOR-131"
DEVICES_APART = "MOOR-132"
MORE_DEVICES_THAN_A_NODE = "MOOR-133"
PINNED_BY_DEVICES = "MOOR-134"
DEVICES_FAR_APART = "MOOR-135"
FAR_FROM_DEVICES = "MOOR-136"
HELD_APART = "MOOR-137"
UNKNOWN_NODES = "MOOR-138"

OUT_OF_CPU = "MOOR-141"
OUT_OF_MEMORY = "MOOR-142"
OUT_OF_PODS = "MOOR-143"
OUT_OF_ANOTHER_RESOURCE = "MOOR-144"
NO_POD_LEVEL_RESOURCES = "MOOR-145"

NEVER_RETURNS = "MOOR-151"
CRASHES = "MOOR-152"
NOT_SERVED = "MOOR-159"

EXCLUSIVE_CPUS = "MOOR-161"
PARTITION = "MOOR-162"
UNHEALTHY_DEVICES = "MOOR-139"

SHARED_BY_POLICY = "MOOR-163"
SHARED_BY_QOS = "MOOR-164"
SHARED_BY_AMOUNT = "MOOR-165"
SHARED_BY_GATE = "MOOR-166"

SPREAD = "MOOR-171"
CACHES_SPLIT = "MOOR-172"
STRANDED_CPUS = "MOOR-173"
UNEVEN_SHARES = "MOOR-174"
CORE_SHARED = "MOOR-175"
NEIGHBOURS_SHARE = "MOOR-176"
MEMORY_GROUP = "MOOR-177"
MEMORY_ELSEWHERE = "MOOR-178"
POOL_EMPTY = "MOOR-179"
DEVICES_SPREAD = "MOOR-180"

RESIZE_BY_POLICY = "MOOR-181"
BELOW_BASELINE = "MOOR-182"
BETWEEN_POOLS = "MOOR-183"
NO_ROOM_BESIDE = "MOOR-184"
NO_POD_LEVEL_RESIZE = "MOOR-185"
WITHOUT_BASELINE = "MOOR-186"
LESS_MEMORY = "MOOR-187"
HIDDEN_SIBLINGS = "MOOR-188"
RESIZE_NOT_SERVED = "MOOR-189"
DEVICES_ELSEWHERE = "MOOR-190"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is."""

    code: str
    sentence: str
    """Plain words; a clause without its subject where it becomes part of a sentence."""
    remedy: str = ""
    """One or two sentences about what to do; empty where nothing is to be done. It is general advice and not tried: it
    names no figure. What is found by asking the engine again is in ``mooring.answers.base.changes``."""


_DELETE = (
    "Drain the node and delete the {noun} manager's state file ({noun}_manager_state); the pods get other {what} when "
    "they are created again."
)

_REMEDIES: Mapping[Cause, str] = {
    Cause.ALPHA_CPU_OPTION: "Set featureGates: {CPUManagerPolicyAlphaOptions: true}, or remove the option.",
    Cause.BETA_CPU_OPTION: "Remove CPUManagerPolicyBetaOptions: false from featureGates, or remove the option.",
    Cause.OPTIONS_WITHOUT_POLICY: "Options need cpuManagerPolicy: static; remove them under policy none.",
    Cause.UNKNOWN_CPU_OPTION: (
        "Known are full-pcpus-only, distribute-cpus-across-numa, align-by-socket, distribute-cpus-across-cores, "
        "strict-cpu-reservation and prefer-align-cpus-by-uncorecache."
    ),
    Cause.UNKNOWN_TOPOLOGY_OPTION: "Known are prefer-closest-numa-nodes and max-allowable-numa-nodes.",
    Cause.OPTIONS_EXCLUDE: "Remove one of the two options.",
    Cause.SOCKET_AND_POLICY: (
        "Use topologyManagerPolicy best-effort or restricted with align-by-socket, or remove the option."
    ),
    Cause.SOCKET_AND_MACHINE: "Remove align-by-socket on this machine.",
    Cause.OPTION_VALUE: 'Write "true" or "false" for the option, as text in quotes.',
    Cause.OPTIONS_GATE: (
        "Remove CPUManagerPolicyOptions: false or TopologyManagerPolicyOptions: false from featureGates, or remove the "
        "options."
    ),
    Cause.NO_RESERVED_CPUS: (
        'The static policy needs CPUs for the system: set reservedSystemCPUs (such as "0"), or cpu in kubeReserved or '
        "systemReserved."
    ),
    Cause.TOO_FEW_CPUS: "This machine cannot provide the CPUs to reserve: name them in reservedSystemCPUs.",
    Cause.CPUS_NOT_ONLINE: "Name only CPUs that are online in reservedSystemCPUs.",
    Cause.NOT_RESERVABLE: (
        "Only cpu, memory, ephemeral-storage and pid can be reserved in kubeReserved and systemReserved."
    ),
    Cause.OVERCOMMITTED: "More is reserved than the machine has: lower kubeReserved, systemReserved or evictionHard.",
    Cause.TOO_MANY_NODES: (
        'Set topologyManagerPolicyOptions: {max-allowable-numa-nodes: "N"} with at least the machine\'s number of '
        "NUMA nodes."
    ),
    Cause.NO_DISTANCES: "This machine reports no NUMA distances: remove prefer-closest-numa-nodes.",
    Cause.TOPOLOGY_OPTION_GROUP: (
        "Enable the feature gate of the option's group, TopologyManagerPolicyBetaOptions or "
        "TopologyManagerPolicyAlphaOptions, or remove the option."
    ),
    Cause.RESERVED_SUM: (
        "The sums in reservedMemory must equal kubeReserved + systemReserved + evictionHard memory.available "
        "(100Mi when evictionHard is absent); huge pages cannot be reserved."
    ),
    Cause.RESERVED_NODE: "Name only NUMA nodes of this machine in reservedMemory.",
    Cause.RESERVED_AMOUNT: "Give reservedMemory with whole numbers of bytes, such as memory: 1Gi.",
    Cause.POLICY_CHANGED: f"Another policy wrote the state file. {_DELETE}",
    Cause.FILE_DAMAGED: f"The state file is damaged or of an unknown format. {_DELETE}",
    Cause.CPUS_CHANGED: (
        f"The CPUs or the reservation differ from those in the state file: restore them, or start over. {_DELETE}"
    ),
    Cause.FILE_CONTRADICTS: f"The state file contradicts itself or the machine. {_DELETE}",
}

_WHAT = {"cpu": "CPUs", "memory": "memory"}


def remedy(refusal: StartRefusal) -> str:
    """Return one or two sentences about what to do, or an empty text when nothing is known.

    >>> from mooring.engine.core.decision import Fault
    >>> remedy(StartRefusal.of("start", Fault("", Cause.OPTIONS_EXCLUDE)))
    'Remove one of the two options.'
    """
    if not refusal.faults:
        return ""
    fault = refusal.faults[0]
    manager = fault.names[0] if fault.names else ""
    return _REMEDIES.get(fault.cause, "").replace("{noun}", manager).replace("{what}", _WHAT.get(manager, ""))


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
        near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.8)
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
