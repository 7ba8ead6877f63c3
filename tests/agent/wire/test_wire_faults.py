"""The agent's main loop against a runtime whose connection goes wrong, at every frame and in every way.

After each fault agent and runtime find together again, nobody runs on CPUs of others, and the state is the runtime's
record. The tests take some frames; ``MOORING_WIRE=all`` takes every one (ten minutes).
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from tests.agent.wire import faults
from tests.agent.wire.fault_proxy import Act, Fault, Way
from tests.agent.wire.faulty_node import FaultyNode, faulty_node
from tests.agent.wire.wire_process import until
from tests.agent.wire.wired_runtime import NEW, OLD, Manners

from mooring.agent.nri import plugin

IS_ALL = os.environ.get("MOORING_WIRE") == "all"
FRAMES = 33
"""Frames that go either way in the lives of a test, from the registration on, when nothing goes wrong."""
LONG = {"mooring-test/long": "x" * 10_000}
"""Makes three frames or four of a request, so that there are some to be mixed up."""
LONG_FRAMES = 96
TRIES = 10
"""How often lives are lived until a fault comes to pass."""
SHORT = 0.3
"""Seconds that a runtime waits here where it is to be kept waiting."""

INTRUDERS = [
    faults.garbage,
    faults.unknown_connection,
    faults.endless_frame,
    faults.endless_message,
    faults.eats_what_follows,
    faults.large_request,
    faults.answer_to_nobody,
]


def suffer_at(node: FaultyNode, way: Way, act: Act, *numbers: int, frames: int = FRAMES) -> None:
    """Have frames go wrong, each in lives of its own: those with these numbers, or all that there are when asked to.

    How many there are depends on what the runtime has to say, and how often; about ``frames``.
    """

    def is_suffered(number: int) -> bool:
        # A runtime with little patience on a busy machine may go on without the agent before it comes to pass.
        return any(node.suffer(Fault(way, number, act), patient=number % 2 == 0) for _ in range(TRIES))

    if IS_ALL:
        reached = next(number for number in count() if not is_suffered(number))
        print(f"{reached} frames {way.name}")
        assert reached > frames // 2
        return
    for number in numbers:
        assert is_suffered(number), f"frame {number} was never reached"


@pytest.mark.parametrize("act", [faults.cut_before, faults.cut_within, faults.cut_after], ids=lambda act: act.__name__)
def test_a_connection_may_be_cut_at_any_frame(act: Act) -> None:
    with faulty_node(OLD) as node:
        suffer_at(node, Way.TO_RUNTIME, act, 2, 8)
    with faulty_node(NEW) as node:
        suffer_at(node, Way.TO_PLUGIN, act, 12, 27)


@pytest.mark.parametrize("act", [faults.duplicate, faults.swap, faults.overwritten], ids=lambda act: act.__name__)
def test_frames_may_come_twice_in_another_order_or_as_nonsense(act: Act) -> None:
    with faulty_node(replace(NEW, timeout=SHORT)) as node:
        node.kubelet.annotations.update(LONG)
        suffer_at(node, Way.TO_PLUGIN, act, 7, frames=LONG_FRAMES)
        suffer_at(node, Way.TO_RUNTIME, act, 4)


def test_something_that_nobody_sent_may_come_between_frames() -> None:
    with faulty_node(replace(OLD, timeout=SHORT)) as node:
        for place, act in enumerate(INTRUDERS):
            suffer_at(node, Way.TO_PLUGIN, act, 5 * place)


@pytest.mark.parametrize(
    "act", [faults.late(2 * SHORT), faults.lose, faults.deafen, faults.half_close], ids=["late", "lost", "deaf", "half"]
)
def test_a_runtime_that_waited_too_long_goes_on_and_takes_the_agent_back(act: Act) -> None:
    with faulty_node(replace(NEW, timeout=SHORT, registration_timeout=1.0)) as node:
        suffer_at(node, Way.TO_RUNTIME, act, 5)
        suffer_at(node, Way.TO_PLUGIN, act, 16)


@pytest.mark.parametrize("manners", [OLD, NEW], ids=["nri-0.8", "nri-0.12"])
def test_an_agent_whose_runtime_hung_up_unheard_comes_back(manners: Manners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "QUIET_SECONDS", 0.3)
    monkeypatch.setattr(plugin, "PATIENCE_SECONDS", 0.3)
    with faulty_node(replace(manners, timeout=SHORT, registration_timeout=1.0)) as node:
        suffer_at(node, Way.TO_PLUGIN, faults.go_silent, 3)


def lives_by_chance(node: FaultyNode, chance: random.Random, name: str) -> None:
    """Run a few pods of all sorts, change and end others; some stay for the next time."""
    kubelet, runtime = node.kubelet, node.wired.runtime
    for number in range(chance.randrange(2, 6)):
        running = [made.id for made in runtime.processes.values() if made.runs]
        match chance.randrange(5):
            case 0 if running:
                kubelet.resize(chance.choice(running), chance.choice((2, 256, 2048)))
            case 1 if running:
                kubelet.stop(chance.choice(running))
            case 2 if runtime.sandboxes:
                kubelet.end(chance.choice([*runtime.sandboxes]))
            case _:
                kubelet.run(
                    f"{name}-{number}", *chance.choice(((0,), (0, 0), (1,), (2,), (1, 1), (3,), (2, 1, 1), (9,)))
                )
        if chance.random() < 0.3 and not node.wired.has_plugin:
            until(node.is_settled, "agent and runtime are together again")
    while len(runtime.sandboxes) > 10:
        kubelet.end(next(iter(runtime.sandboxes)))


@pytest.mark.parametrize("manners", [OLD, NEW], ids=["nri-0.8", "nri-0.12"])
def test_one_fault_after_another_among_pods_that_stay_leaves_nothing_wrong(manners: Manners) -> None:
    chance = random.Random(manners.introduction.version)  # noqa: S311 - the same faults in every run
    acts = [
        faults.cut_before,
        faults.cut_within,
        faults.cut_after,
        faults.duplicate,
        faults.swap,
        faults.overwritten,
        faults.late(2 * SHORT),
        faults.lose,
        faults.deafen,
        faults.half_close,
    ]
    with faulty_node(replace(manners, timeout=SHORT, registration_timeout=1.0)) as node:
        for number in range(200 if IS_ALL else 3):
            fault = Fault(chance.choice([*Way]), chance.randrange(FRAMES), chance.choice([*acts, *INTRUDERS]))
            node.meet(fault, partial(lives_by_chance, node, chance, f"pod{number}"))
