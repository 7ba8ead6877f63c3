"""What the sentences of ``mooring.explanations.why`` claim, held against the node itself.

Every sentence must have one of the known forms, and every figure in it is counted again, from the state after the
decision and by plain enumeration, not from the facts of which the sentence was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations

from mooring.engine.core.bits import members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.memorymanager.policy import container_requests, pod_requests
from mooring.engine.node import Decision, Node

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

Say = Mapping[str, str]
"""The parts of a sentence that its form names."""

Check = Callable[["Told", Say], bool]

WHO = r"(?:Container (?P<container>\S+)|The pod as a whole)"
ASKS = rf"{WHO} requests (?P<need>\d+) exclusive CPUs?"
LEFT = r"(?P<left>none is|only \d+ (?:is|are))"
NODES = r"NUMA nodes? (?P<{}>[\d,\-]*\d)"


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence and what it is about."""

    text: str
    pod: Pod
    decision: Decision
    after: Node

    @property
    def cpus(self) -> Mapping[int, int]:
        """NUMA node -> mask of its CPUs."""
        assert self.after.settings.topology is not None
        return self.after.settings.topology.numa

    @property
    def reserved(self) -> int:
        return self.after.settings.cpu.reserved if self.after.settings.cpu is not None else 0

    def container(self, name: str) -> Container:
        return next(container for container in self.pod.containers if container.name == name)

    def need(self, name: str) -> int:
        """Return the exclusive CPUs of a container, or of the pod for an empty name."""
        policy = self.after.settings.cpu
        assert policy is not None
        if name:
            return exclusive_cpus(self.pod, self.container(name), policy.gates)
        return exclusive_cpus_of_pod(self.pod, policy.gates)

    def left(self) -> int:
        """Return the mask of the CPUs that nobody has: the failing container has got none."""
        return self.after.cpu.default & ~self.reserved

    def reusable(self, name: str) -> int:
        """Return the CPUs that earlier containers of the pod leave."""
        record = self.after.providers.reusable_cpus.of(self.pod.uid)
        if name:
            return record
        for cpus in self.after.cpu.assignments.get(self.pod.uid, {}).values():
            record |= cpus
        return record

    def memory(self, name: str) -> Mapping[str, int]:
        policy = self.after.settings.memory
        assert policy is not None
        if name:
            asked = container_requests(self.pod, self.container(name), policy.gates)
        else:
            asked = pod_requests(self.pod, policy.gates)
        assert not isinstance(asked, str)
        return asked

    def free_memory(self, node: int, resource: str) -> int:
        table = self.after.memory.nodes[node].memory.get(resource)
        return table.free if table is not None else 0


FORMS: list[tuple[re.Pattern[str], Check]] = []
"""All forms that a sentence may have, with what checks it."""


def says(form: str) -> Callable[[Check], Check]:
    """Register a check for the sentences of a form."""

    def register(verify: Check) -> Check:
        FORMS.append((re.compile(form), verify))
        return verify

    return register


def check(told: Told) -> None:
    """Fail unless every sentence has a known form and everything in it is true."""
    for module in ("refused", "memory", "admitted"):
        import_module(f"tests.explain.claims_of_{module}")
    assert told.text.endswith(".")
    for sentence in re.findall(r".+?\.(?= [A-Z]|$)", told.text):
        text = sentence.strip()
        forms = [(form.fullmatch(text), verify) for form, verify in FORMS]
        matching = [(found.groupdict(), verify) for found, verify in forms if found is not None]
        assert matching, f"no known form: {text}"
        assert any(verify(told, say) for say, verify in matching), (text, told.decision.message)


def ids(text: str) -> list[int]:
    return list(members(CPUSet.parse(text).mask))


def subject(name: str | None) -> str:
    return name or ""


def number(text: str) -> int:
    """Return the number of ``none is``, ``only 1 is``, ``no CPU is`` or ``only 5 CPUs are``."""
    found = re.search(r"\d+", text)
    return int(found.group()) if found is not None else 0


def fewest(told: Told, need: int, usable: int, around: Sequence[int] = ()) -> int:
    """Return, by trying all sets, how many nodes it takes for ``need`` of the usable CPUs; 0 when all have too few."""
    home = set(around)
    for size in range(1, len(told.cpus) + 1):
        for chosen in combinations(told.cpus, size):
            if home <= set(chosen) and sum((told.cpus[node] & usable).bit_count() for node in chosen) >= need:
                return size
    return 0


def about(text: str, amount: int) -> bool:
    """Tell whether a text says an amount of bytes: exactly as a quantity, rounded to a tenth with a unit."""
    number_, _, unit = text.partition(" ")
    if not unit:
        return Quantity.parse(text).units == amount
    return abs(float(number_) * UNITS[unit] - amount) <= 0.05000001 * UNITS[unit]
