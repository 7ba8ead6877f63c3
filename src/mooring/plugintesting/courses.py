"""What happens to a node: strategies of hypothesis for configurations, pods, and their coming and going."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mooring.core.config import KubeletConfig
from mooring.core.errors import MooringError
from mooring.core.machineinfo import MachineInfo
from mooring.core.pod import Container, ContainerKind, Pod, QoS
from mooring.core.quantity import Quantity

try:
    from hypothesis import strategies as st
except ImportError:  # pragma: no cover - the suite has it
    raise MooringError(
        "mooring.plugintesting needs hypothesis, which is not installed; run pip install hypothesis"
    ) from None

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
OPTIONS = ("", "full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod is admitted."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Departure:
    """One of those that run ends; counted from the oldest, around and around."""

    which: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The kubelet, or the agent, starts again on its own state."""


Step = Arrival | Departure | Restart


@dataclass(frozen=True, slots=True)
class Course:
    """A node and what happens to it."""

    machine: str
    """What it is called."""
    info: MachineInfo
    config: KubeletConfig
    steps: tuple[Step, ...]


@st.composite
def courses(draw: st.DrawFn, machines: Mapping[str, MachineInfo], annotations: Mapping[str, Sequence[str]]) -> Course:
    """Draw a course.

    Args:
        draw: of hypothesis.
        machines: to choose from, by what they are called.
        annotations: name -> values that pods may have.
    """
    name = draw(st.sampled_from(sorted(machines)))
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=draw(st.sampled_from([{option: "true"} if option else {} for option in OPTIONS])),
        topology_manager_policy=draw(st.sampled_from(POLICIES)),
        topology_manager_scope=draw(st.sampled_from(["container", "pod"])),
        kube_reserved={"cpu": "1"},
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )
    kinds = draw(st.lists(st.integers(0, 9), min_size=1, max_size=7))
    steps: list[Step] = []
    for number, kind in enumerate(kinds):
        if kind < 6:
            steps.append(Arrival(draw(_pods(f"pod-{number}", annotations))))
        else:
            steps.append(Departure(number) if kind < 9 else Restart())
    return Course(name, machines[name], config, (*steps, Restart()))


@st.composite
def _pods(draw: st.DrawFn, uid: str, annotations: Mapping[str, Sequence[str]]) -> Pod:
    count = draw(st.integers(1, 2))
    kinds = [ContainerKind.INIT] * draw(st.integers(0, 1)) + [ContainerKind.APP] * count
    made = []
    for number, kind in enumerate(kinds):
        cpus = draw(st.sampled_from(["1", "2", "2", "3", "4", "6", "500m"]))
        amounts = {"cpu": Quantity.parse(cpus), "memory": Quantity.parse("64Mi")}
        made.append(Container(f"{kind.value}-{number}", kind, amounts, amounts))
    given = {name: draw(st.sampled_from(["", *values])) for name, values in sorted(annotations.items())}
    told = {name: value for name, value in given.items() if value}
    qos = draw(st.sampled_from([QoS.GUARANTEED, QoS.GUARANTEED, QoS.GUARANTEED, QoS.BURSTABLE]))
    return Pod(uid, uid, containers=tuple(made), qos=qos, annotations=told, priority=draw(st.integers(0, 2)))
