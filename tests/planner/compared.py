"""Small things to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mooring.answers.base.trace import Trace, shapes
from mooring.answers.compare.measures import AlignedContainersPart, VariantPart, VariantSettingsPart, measures
from mooring.answers.compare.trial import StrandedCPUsPart, Trial, run_trials
from mooring.answers.compare.variant import Dimension, Variant, changes_between, option_sets
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.kubelet.events import Admit
from mooring.inputs.machines.loader import load_machine

STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")


SMALL = "sockets=2 cores=4 threads=2 memory=8Gi"


def machine(text: str = "sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi") -> Machine:
    return load_machine(text)


def pod(name: str, cpus: int, init: int = 0, **devices: int) -> Pod:
    """Return a Guaranteed pod with one container, after an init container when ``init`` is given."""
    made = Pod.of(name, cpus, "1Gi", {f"vendor.example/{kind}": count for kind, count in devices.items() if count})
    before = Pod.of("before", init, "1Gi").containers
    main = replace(made.containers[0], name="main")
    held = (replace(before[0], kind=ContainerKind.INIT), main) if init else (main,)
    return replace(made, uid=f"uid-{name}", containers=held)


def pods(*cpus: int) -> list[Pod]:
    return [pod(f"pod-{number}", count) for number, count in enumerate(cpus)]


def trace(asked: Sequence[Pod]) -> Trace:
    return Trace(tuple(Admit(one) for one in asked))


def varied(given: Machine, config: KubeletConfig, *dimensions: Dimension) -> list[Variant]:
    """Return a configuration and all combinations on top of it, the illegal ones too."""
    base = Variant("base", given, config)
    made = option_sets(config, dimensions, len(given.info.topology))
    departing = ((one, changes_between(config, one)) for one in made)
    return [base, *(replace(base, config=one, changes=changes) for one, changes in departing if changes)]


def run_trial(told: Trace, variant: Variant) -> Trial:
    """Run one variant through a trace."""
    (trial,) = run_trials(told, {0: variant})
    return trial


def outcome(asked: Trace | Sequence[Pod], config: KubeletConfig = STATIC, filling: Sequence[Pod] = ()) -> VariantPart:
    """Return what becomes of a trace under a configuration; its node is filled with the given pods, or its own."""
    told = asked if isinstance(asked, Trace) else trace(asked)
    trial = run_trial(told, Variant("base", machine(), config))
    return measures(
        told, trial, {0: Variant("base", machine(SMALL), STATIC)}, shapes(trace(filling) if filling else told)
    )[0]


FIGURES = VariantPart(
    group=0,
    name="base",
    machine="small",
    as_given=True,
    settings=VariantSettingsPart("static", {}, "None", "none", "container", {}, {}),
    changes=[],
    starts=True,
    start_error_stage="",
    start_error="",
    start_error_code="",
    admitted=0,
    rejected={},
    lost=0,
    exclusive_containers=0,
    memory_containers=0,
    device_containers=0,
    aligned=AlignedContainersPart(0, 0, 0, 0, 0, 0),
    alignment_promise="guarantee",
    spread=0.0,
    stranded=StrandedCPUsPart(0, 0, 0, 0),
    memory_nodes_beyond_need=0,
)
"""Of a variant that admits nothing."""
