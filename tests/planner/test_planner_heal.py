"""Heal: damaged, drifted, rolled-back and torn states of every release; the engine judges what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import pytest

from mooring import load_machine
from mooring.answers.base.plan import Plan, Question, RefusedPlan, make_plan
from mooring.answers.doctor.diagnosis import diagnose, with_repairs
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.machines.isolation import PinnedContainer

MACHINES = {
    (cores, memory): load_machine(f"sockets=1 numa=2 cores={cores} threads=2 memory={memory}Gi")
    for cores in (4, 6, 8)
    for memory in (15, 16)
}
"""A node before and after a change of its firmware, of its kernel, or of what the hypervisor gives it."""


def configuration(random: Random, *, memory: bool) -> KubeletConfig:
    options = random.choice([{}, {}, {"full-pcpus-only": "true"}, {"strict-cpu-reservation": "true"}])
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=options,
        memory_manager_policy="Static" if memory else "None",
        reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),) if memory else (),
        kube_reserved={"memory": "924Mi"} if memory else {},
        reserved_system_cpus=random.choice(["0", "0,4", "0-1"]),
        topology_manager_policy=random.choice(["none", "best-effort", "restricted"]),
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )


def pods(random: Random) -> tuple[Pod, ...]:
    return tuple(
        replace(
            Pod.of(f"default/pod-{number}", cpu=random.choice([1, 2, 2, 4]), memory=random.choice(["1Gi", "2Gi"])),
            uid=f"{number:08x}-0000-0000-0000-000000000000",
        )
        for number in range(random.randint(0, 5))
    )


def pinned(plan: Plan) -> tuple[PinnedContainer, ...]:
    """Return what the control groups of a node's containers say."""
    node = plan.kubelet.node
    found = []
    for answer in plan.answers:
        for container in answer.pod.containers if answer.admitted else ():
            cpus = CPUSet(node.cpu.assignments.get(answer.pod.uid, {}).get(container.name, 0))  # type: ignore[arg-type]
            blocks = node.memory.assignments.get(answer.pod.uid, {}).get(container.name, ())
            memory = tuple((block.type, block.size) for block in blocks)
            nodes = blocks[0].numa if blocks else ()
            found.append(PinnedContainer(answer.pod.uid, container.name, cpus, nodes, memory))
    return tuple(found)


def torn(text: str, random: Random) -> str:
    return text[: random.randrange(len(text))]


def flipped(text: str, random: Random) -> str:
    place = random.randrange(len(text))
    return f"{text[:place]}{chr(ord(text[place]) ^ (1 << random.randrange(5)))}{text[place + 1 :]}"


TEXTS: Mapping[str, Callable[[str, Random], str | None]] = {
    "torn": torn,
    "flipped": flipped,
    "empty": lambda _text, _random: "",
    "zeros": lambda text, _random: "\0" * len(text),
    "missing": lambda _text, _random: None,
    "another file": lambda _text, _random: '{"policyName":"none","checksum":0}',
}


def damaged(question: Question, files: StateTexts, kind: str, random: Random) -> Question:
    """Return the node as it starts again, after one of the things that happen."""
    config = question.config
    if kind in TEXTS:
        if files.memory and random.random() < 0.5:
            return replace(question, files=replace(files, memory=TEXTS[kind](files.memory, random)))
        return replace(question, files=replace(files, cpu=TEXTS[kind](files.cpu or "", random)))
    question = replace(question, files=files)
    if kind == "machine":
        return replace(question, machine=random.choice(list(MACHINES.values())))
    if kind == "release":
        return replace(question, mooring=MooringConfig(release=random.choice(list(RELEASES.values()))))
    if kind == "reserved":
        return replace(question, config=replace(config, reserved_system_cpus=random.choice(["0", "1", "0-3", "2,6"])))
    if kind == "options":
        return replace(question, config=replace(configuration(random, memory=bool(files.memory))))
    return replace(question, config=replace(config, cpu_manager_policy="none", cpu_manager_policy_options={}))


def live(seed: int) -> tuple[str, bool]:
    """Let a node run, and damage it; check what heal writes, and return what happened and whether it was needed."""
    random = Random(seed)  # noqa: S311 - for examples
    release = random.choice(list(RELEASES.values()))
    asked = Question(
        random.choice(list(MACHINES.values())),
        configuration(random, memory=random.random() < 0.6),
        MooringConfig(release=release),
        pods(random),
    )
    plan = make_plan(asked)
    if isinstance(plan, RefusedPlan):  # an option that the release does not know
        return "configuration", False
    kind = random.choice([*TEXTS, "machine", "release", "reserved", "options", "policy"])
    node = damaged(replace(asked, pods=()), plan.files, kind, random)
    own = pinned(plan)

    def refused(files: StateTexts) -> object:
        return refusal_of(start_kubelet(node.machine.info, node.config, node.mooring, files))

    if refused(StateTexts()) is not None:  # the configuration does not fit this machine, whatever the files say
        return kind, False
    found = diagnose(node, pinned=own)
    if refused(node.files) is None and "missing" not in kind:
        return kind, False
    healed = with_repairs(node.files, found.repairs)
    assert refused(healed) is None, (seed, kind, found.repairs)
    if node.config.cpu_manager_policy == "static":
        start = start_kubelet(node.machine.info, node.config, node.mooring, healed)
        state, settings = start.node.cpu, start.settings.cpu  # type: ignore[union-attr]
        assert settings is not None
        possible = {
            (one.uid, one.name): one.cpus.mask
            for one in own
            if one.cpus and not one.cpus.mask & (~settings.topology.all_cpus | settings.reserved)
        }
        kept = {(uid, name): mask for uid, held in state.assignments.items() for name, mask in held.items()}
        lost = possible.items() - kept.items()
        assert not lost or not settings.shareable & ~sum(possible.values()), (seed, kind, lost, kept)
    return kind, True


MORE = [
    pytest.param(range(first, first + 2500), id=str(first), marks=pytest.mark.long)
    for first in range(300, 10_300, 2500)
]


@pytest.mark.parametrize("seeds", [pytest.param(range(300), id="0"), *MORE])
def test_the_kubelet_starts_on_what_was_written_and_running_containers_keep_their_cpus(seeds: range) -> None:
    seen = Counter(live(seed) for seed in seeds)
    needed = {kind for (kind, is_needed) in seen if is_needed}
    assert needed >= {*TEXTS, "machine", "reserved", "policy"} - {"another file"}, seen
