"""For authors of plugins: run one through random machines, pods and courses, and hear the first rule that it breaks.

It needs hypothesis, which Mooring does not bring along; nothing else of Mooring imports this room.

>>> from mooring.engine.plugins import CPURequest, CPUSet, hookimpl
>>> class OneTooFew:
...     def __init__(self, settings): pass
...     @hookimpl
...     def select_cpus(self, request: CPURequest) -> CPUSet:
...         return CPUSet.from_ids(list(request.available)[: request.need - 1])
>>> try:
...     check_plugin(OneTooFew, examples=20)
... except BrokenRuleError as broken:
...     print(broken.rule)
every answer counts: select_cpus: it selected 0 CPUs where 1 are wanted
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from mooring.engine.core.config import (
    BUDGET,
    FIXABLE_DEFECTS,
    ChosenPlugin,
    KubeletConfig,
    MooringConfig,
    PluginChoice,
    PluginPlacement,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machineinfo import Cache, Core, CPUFacts, CPUKind, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.node import Node
from mooring.engine.plugins.facts import PluginFailed
from mooring.engine.plugins.loading import points_of

try:
    from hypothesis import strategies as st
except ImportError:  # pragma: no cover - the suite has it
    raise MooringError(
        "mooring.plugintesting needs hypothesis, which is not installed; run pip install hypothesis"
    ) from None

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
OPTIONS = ("", "full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache")


Step = Pod | int | None
"""A pod that is admitted; which of those that run ends, counted from the oldest, around and around; or a restart."""


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
            steps.append(draw(_pods(f"pod-{number}", annotations)))
        else:
            steps.append(number if kind < 9 else None)
    return Course(name, machines[name], config, (*steps, None))


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


GIB = 1 << 30


def _machine(
    nodes: int, cores: Sequence[int], *, caches: int = 1, node_of_socket: int = 1, facts: CPUFacts | None = None
) -> MachineInfo:
    """Return a machine of equal NUMA nodes.

    Args:
        nodes: how many.
        cores: number of threads of each core of a node.
        caches: uncore caches of each node.
        node_of_socket: NUMA nodes of each socket.
        facts: beyond the kubelet's view.
    """
    # First threads come first, as most firmware numbers them.
    total, next_cpu = nodes * len(cores), nodes * len(cores)
    made = []
    for node in range(nodes):
        own = []
        for position, threads in enumerate(cores):
            core, more = node * len(cores) + position, tuple(range(next_cpu, next_cpu + threads - 1))
            next_cpu += threads - 1
            cache = Cache(node * caches + position * caches // len(cores), 1 << 25, "Unified", 3)
            own.append(Core(core, (core, *more), node // node_of_socket, uncore_caches=(cache,)))
        row = tuple(10 if node == other else 20 + abs(node - other) for other in range(nodes))
        made.append(NUMANode(node, 8 * GIB, cores=tuple(own), distances=row))
    sockets = -(-nodes // node_of_socket)
    return MachineInfo(
        next_cpu, sockets, 8 * GIB * nodes, tuple(made), num_physical_cores=total, facts=facts or CPUFacts()
    )


_HYBRID = CPUFacts((CPUKind(1024, CPUSet.parse("0-2,8-10")), CPUKind(512, CPUSet.parse("3-7"))), CPUSet.parse("6-7"))

MACHINES: Mapping[str, MachineInfo] = {
    "one NUMA node, 4 cores of 2 threads": _machine(1, [2] * 4),
    "2 sockets of 4 cores with 2 threads": _machine(2, [2] * 4),
    "1 socket of 4 NUMA nodes, 2 caches in each, 1 thread a core": _machine(4, [1] * 4, caches=2, node_of_socket=4),
    "8 NUMA nodes of 2 cores with 2 threads": _machine(8, [2] * 2, node_of_socket=2),
    "hybrid: 3 cores of 2 threads and 5 of 1; 2 CPUs isolated": _machine(1, [2] * 3 + [1] * 5, facts=_HYBRID),
}
"""What each is -> the machine."""


NAME = "plugin"
TRIES = 3
"""How often a question that took too long is asked again: a busy machine is not the plugin's fault."""


class BrokenRuleError(MooringError):
    """A plugin broke a rule; the message says where."""

    def __init__(self, rule: str, where: Sequence[str]) -> None:
        self.rule = rule
        """The rule, and how it was broken."""
        super().__init__("\n  ".join((rule, *where)))


Make = Callable[[Mapping[str, object]], object]
"""What the entry point names: makes a plugin of its settings."""


def check_plugin(
    make: Make,
    settings: Mapping[str, object] | None = None,
    *,
    machines: Mapping[str, MachineInfo] = MACHINES,
    annotations: Mapping[str, Sequence[str]] | None = None,
    examples: int = 100,
    budget: int = BUDGET,
) -> None:
    """Run a plugin through random courses of pods on machines, in both placements.

    The rules: every answer counts (none is of a wrong kind or breaks what the host promises, and nothing is raised);
    the same question has the same answer, also from a plugin that was made again; no question takes longer than the
    budget of processor time; a restart on the node's own state refuses and moves no pod; a list of waiting pods
    stays complete. The courses are the same in every run.

    Args:
        make: makes the plugin of its settings, as the entry point does.
        settings: of the plugin.
        machines: what they are called -> machines to try.
        annotations: name -> values that the plugin understands; pods have some of them.
        examples: how many courses.
        budget: nanoseconds for one question.

    Raises:
        BrokenRuleError: a rule was broken; the shortest course that shows it.
        InputError: what is made is no plugin.
    """
    from hypothesis import HealthCheck, Phase, Verbosity, given  # noqa: PLC0415 - courses say clearly that it is missing
    from hypothesis import settings as how  # noqa: PLC0415 - as above

    given_settings = MappingProxyType(dict(settings or {}))
    _points(make, given_settings)

    @how(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(courses(machines, annotations or {}))
    def run(course: Course) -> None:
        for placement in PluginPlacement:
            _Check(make, given_settings, placement, budget, course).run()

    run()


def _points(make: Make, settings: Mapping[str, object]) -> Mapping[str, Callable[..., object]]:
    return points_of(NAME, make(settings))


@dataclass(slots=True)
class _Check:
    """One course with one placement."""

    make: Make
    settings: Mapping[str, object]
    placement: PluginPlacement
    budget: int
    course: Course
    slowest: tuple[int, str] = (0, "")
    """Nanoseconds of the slowest question of a step, and its point."""
    done: list[str] = field(default_factory=list)
    """Steps so far, in words."""

    def run(self) -> None:
        """Take every step, and hold the plugin to the rules."""
        node = self._started()
        waiting = [step for step in self.course.steps if isinstance(step, Pod)]
        facts: list[object] = []
        plugins = node.settings.plugins
        if plugins is not None:
            plugins.ordered(waiting, facts.append)
        self._hold(facts)
        for step in self.course.steps:
            match step:
                case Pod():
                    node = self._admitted(node, step)
                case None:
                    node = self._restarted(node)
                case which if node.active:
                    uid = list(node.active)[which % len(node.active)]
                    self.done.append(f"{uid} ends")
                    node = node.remove(uid)[0]

    def _started(self) -> Node:
        """Start a node with a new instance of the plugin, which was not asked anything yet."""
        points = {name: self._timed(name, point) for name, point in _points(self.make, self.settings).items()}
        plugins = PluginChoice((ChosenPlugin(NAME, self.settings, points, self.placement),))
        mooring = MooringConfig(fixed_defects=FIXABLE_DEFECTS, plugins=plugins)
        return Node.fresh(self.course.info, self.course.config, mooring)

    def _timed(self, name: str, point: Callable[..., object]) -> Callable[..., object]:
        def ask(**arguments: object) -> object:
            began = time.thread_time_ns()
            try:
                return point(**arguments)
            finally:
                self.slowest = max(self.slowest, (time.thread_time_ns() - began, name))

        return ask

    def _admitted(self, node: Node, pod: Pod) -> Node:
        asks = ", ".join(f"{one.name} ({one.requests['cpu']} CPUs)" for one in pod.containers)
        self.done.append(f"{pod.uid} arrives: {pod.qos.value}, {asks}, annotations {dict(pod.annotations)}")
        for _ in range(TRIES):
            facts: list[object] = []
            self.slowest = (0, "")
            after, decision = node.admit(pod, facts.append)
            if self.slowest[0] <= self.budget:
                break
        else:
            took, point = self.slowest
            raise self._broken(
                f"no question takes too long: {point} took {took / 1e6:.1f} ms of {self.budget / 1e6:g} ms"
            )
        self._hold(facts)
        if node.admit(pod)[1] != decision:
            raise self._broken("the same question has the same answer: asked again, it decided otherwise")
        anew = self._started().settings
        if Node(anew, node.providers, node.stored_hints, node.active, node.started).admit(pod)[1] != decision:
            raise self._broken("the same question has the same answer: a new instance decided otherwise")
        return after

    def _restarted(self, node: Node) -> Node:
        self.done.append("the node starts again")
        found = node.restart()
        if isinstance(found, StartRefusal):
            # The kubelet does not start when all CPUs are exclusive; that is no plugin's doing.
            return node
        after, readmission = found
        for refused in readmission.refused:
            raise self._broken(f"a restart refuses no pod: {refused.uid} was refused, {refused.reason}")
        if after.cpu.assignments != node.cpu.assignments:
            raise self._broken("a restart moves no pod: other CPUs were assigned")
        return after

    def _hold(self, facts: Sequence[object]) -> None:
        for fact in facts:
            if isinstance(fact, PluginFailed):
                raise self._broken(f"every answer counts: {fact.point}: {fact.why}", fact)

    def _broken(self, rule: str, fact: PluginFailed | None = None) -> BrokenRuleError:
        config = self.course.config
        options = ", ".join(config.cpu_manager_policy_options) or "no options"
        where = [
            f"machine: {self.course.machine}",
            f"kubelet: {options}, {config.topology_manager_policy}, {config.topology_manager_scope} scope",
            f"placement: {self.placement.value}",
        ]
        if fact is not None and fact.pod:
            where.append(f"asked about: {fact.pod} {fact.container}".rstrip())
        return BrokenRuleError(rule, [*where, *(f"step {number}: {step}" for number, step in enumerate(self.done, 1))])
