"""When the agent looks again at what pods hold: soon while something is unknown, then less and less often."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tests.agent.devices.test_agent_devices_reactor import UNKNOWN, create, node
from tests.agent.nri.runtime_side import TIMEOUT
from tests.agent.small_node import guaranteed

from mooring.agent.device_access import DeviceReconciler
from mooring.agent.device_lookup import DeviceLookup
from mooring.agent.state import AgentState, DevicesFound
from mooring.agent.state_holder import StateHolder
from mooring.service.logs import Log


@dataclass
class Asked:
    """Takes the place of a kubelet that tells nothing, and of the state's holder."""

    state: AgentState
    now: float = 0.0
    looks: list[float] = field(default_factory=list)

    def of_all(self, pods: Any, _missing: Any, _timeout: float) -> dict[str, DevicesFound]:
        return dict.fromkeys(pods, UNKNOWN)

    def close(self) -> None:
        pass


def looks(asked: Asked, seconds: float) -> list[float]:
    """Return when the agent looks, which it could twice a second."""
    lookup, holder = cast("DeviceLookup", asked), cast("StateHolder", asked)
    made = DeviceReconciler(lookup, holder, Log("test"), clock=lambda: asked.now)
    done = threading.Event()

    def look() -> None:
        asked.looks.append(asked.now)
        done.set()

    made.look = look  # type: ignore[method-assign]
    while asked.now < seconds:
        asked.now += 0.5
        if made.reconcile():
            assert done.wait(TIMEOUT)
            done.clear()
    made.close(TIMEOUT)
    return asked.looks


def test_unknown_devices_are_asked_for_soon_and_then_less_and_less_often() -> None:
    state = create(node(), guaranteed("a", "2"), UNKNOWN).state
    assert looks(Asked(state), 40) == [1.0, 3.0, 7.0, 15.0, 25.0, 35.0]


def test_where_everything_is_known_the_agent_looks_every_ten_seconds() -> None:
    state = replace(create(node(), guaranteed("a", "2"), UNKNOWN).state, without_devices={})
    assert looks(Asked(state), 25) == [10.0, 20.0]
