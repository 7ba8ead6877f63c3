"""What the runtime talks to: each of its calls becomes an event of the reactor, and the outcome its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mooring.agent.nri.errors import RefusalError
from mooring.agent.nri.observer import Loss, LostAnswer
from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    PodSandbox,
    RuntimeContainer,
)
from mooring.agent.pods.resolve import resolved
from mooring.agent.pods.source import OnePod, PodsAtHand, ResizedSource
from mooring.agent.reactor.container_start import create_container
from mooring.agent.reactor.lifecycle import EVENTS, needs_pod, state_change, stop_container
from mooring.agent.reactor.listing import unlisted
from mooring.agent.reactor.outcomes import Adjusted, EventOutcome, Refused
from mooring.agent.reactor.records import as_requested, messages_of
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reactor.update_container import update_container
from mooring.agent.reactor.updates import answer_lost
from mooring.agent.state_holder import Decide, StateHolder, updates_of
from mooring.core.moment import Moment
from mooring.core.pod import Pod
from mooring.manifest.defaults import PodGates
from mooring.manifest.pods import DEFAULT_GATES
from mooring.service.clock import present_moment


class RuntimeAdapter:
    """The :class:`~mooring.agent.nri.types.Handler` of the agent; its calls come from one thread."""

    def __init__(
        self,
        holder: StateHolder,
        pods: ResizedSource | None,
        gates: PodGates = DEFAULT_GATES,
        clock: Callable[[], Moment] = present_moment,
    ) -> None:
        """Begin to answer.

        Args:
            holder: has the state.
            pods: knows pods; None when all are to be derived from their containers.
            gates: of the kubelet, for pods that are derived.
            clock: tells the present moment, from which delays count.
        """
        self._holder = holder
        self._pods = pods
        self._gates = gates
        self._clock = clock
        self._told: frozenset[str] = frozenset()
        """Containers that the newest answer has updates of."""

    def configure(self, _config: str, _runtime: str, _version: str) -> frozenset[Event]:
        """Want to hear of everything."""
        return EVENTS

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        """Bring state and runtime together."""
        state = self._holder.state
        running = {one.id for one in unlisted(state, pods, containers) if self._holder.is_running(one)}
        unknown = unknown_pods(state, pods, containers, running)
        known = None if self._pods is None else PodsAtHand(self._pods.known(unknown))
        specs = {
            one.uid: self._found(
                known, one, None, as_requested(state, [each for each in containers if each.pod_sandbox_id == one.id])
            )
            for one in unknown
        }
        now = self._clock()
        return updates_of(
            self._decided(lambda state, hear: synchronize(state, pods, containers, specs, hear, now, running))
        )

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        """Place a container."""
        spec = self._pod(pod, container, messages_of(self._holder.state, pod.id))
        now = self._clock()
        outcome = self._decided(lambda state, hear: create_container(state, pod, container, spec, hear, now), pod.uid)
        assert isinstance(outcome.answer, Adjusted)  # noqa: S101 - a refusal was raised
        return outcome.answer.adjustment, outcome.answer.updates

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        """Resize a container, or overrule an update where it concerns what the agent decides."""
        target = None if self._pods is None else self._pods.wanted(pod)
        now = self._clock()
        outcome = self._decided(
            lambda state, hear: update_container(state, pod, container, resources, target, now, hear), pod.uid
        )
        return updates_of(outcome)

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        """Learn that a container has ended."""
        return updates_of(self._decided(lambda state, _hear: stop_container(state, container), pod.uid))

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        """Learn everything else."""
        spec: Pod | None = None
        state = self._holder.state
        if pod is not None and needs_pod(state, event, pod, container):
            spec = self._pod(pod, container, messages_of(state, pod.id))
        self._decided(
            lambda state, hear: state_change(state, event, pod, container, spec, hear), "" if pod is None else pod.uid
        )

    def lost(self, answer: LostAnswer) -> None:
        """Put right what an answer that did not arrive should have made true.

        After a lost connection there is nothing to do: the next Synchronize tells everything anew.
        """
        told, self._told = self._told, frozenset()
        if answer.loss is not Loss.CLOSED and told:
            self._holder.apply(lambda state, _hear: answer_lost(state, told))

    def _decided(self, decide: Decide, uid: str = "") -> EventOutcome:
        self._told = frozenset()
        outcome = self._holder.apply(decide, uid)
        if isinstance(outcome.answer, Refused):
            raise RefusalError(outcome.answer.text)
        self._told = frozenset(one.container_id for one in updates_of(outcome))
        if outcome.starts:
            # No reply confirms updates: one that failed would leave a container on the CPUs of the new one.
            self._holder.confirm()
        return outcome

    def _pod(self, sandbox: PodSandbox, container: RuntimeContainer | None, others: Sequence[RuntimeContainer]) -> Pod:
        return self._found(self._pods, sandbox, container, others)

    def _found(
        self,
        pods: OnePod | None,
        sandbox: PodSandbox,
        container: RuntimeContainer | None,
        others: Sequence[RuntimeContainer],
    ) -> Pod:
        rest = [one for one in others if container is None or one.id != container.id]
        found = resolved(pods, sandbox, container, rest, self._gates)
        for each in (*found.differences, *found.problems):
            self._holder.complain(f"{sandbox.namespace}/{sandbox.name}", str(each))
        return found.pod
