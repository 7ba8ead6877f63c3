"""Running a plugin through courses, and saying in plain words which rule it broke first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from mooring.engine.core.config import FIXABLE_DEFECTS, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.plugins import BUDGET, ChosenPlugin, PluginChoice, PluginPlacement
from mooring.engine.core.pod import Pod
from mooring.engine.node import Node
from mooring.engine.plugins.facts import PluginFailed
from mooring.plugging.loading import points_of
from mooring.plugintesting.courses import MACHINES, Arrival, Course, Departure, courses

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
        waiting = [step.pod for step in self.course.steps if isinstance(step, Arrival)]
        self._order(node, waiting)
        for step in self.course.steps:
            match step:
                case Arrival(pod):
                    node = self._admitted(node, pod)
                case Departure(which) if node.active:
                    uid = list(node.active)[which % len(node.active)]
                    self.done.append(f"{uid} ends")
                    node = node.remove(uid)[0]
                case Departure():
                    pass
                case _:
                    node = self._restarted(node)

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

    def _order(self, node: Node, pods: Sequence[Pod]) -> None:
        facts: list[object] = []
        plugins = node.settings.plugins
        if plugins is not None:
            plugins.ordered(pods, facts.append)
        self._hold(facts)

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
