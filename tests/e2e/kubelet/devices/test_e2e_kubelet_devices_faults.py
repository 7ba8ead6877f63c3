"""What the agent makes of devices that change, vanish or are not told: nothing that runs moves, and it is said."""

from __future__ import annotations

import re
from typing import Any

from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.claiming import CLAIMS
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.devices.cases import FOUR_NODES
from tests.e2e.kubelet.devices.driver import NUMA_NODE
from tests.e2e.kubelet.devices.settings import DeviceNode, alignment, device_node
from tests.e2e.kubelet.patience import until

from mooring.engine.core.cpuset import CPUSet

GPU = alignment.GPU


def wants(name: str, *counts: int, cpus: int = 4) -> dict[str, Any]:
    """Return a pod with a container for each number of GPUs."""
    containers = [
        {
            "name": f"app{number}",
            "resources": {"limits": {"cpu": str(cpus), "memory": "64Mi", **({GPU: str(count)} if count else {})}},
        }
        for number, count in enumerate(counts)
    ]
    return {"metadata": {"name": name}, "spec": {"containers": containers}}


def place(node: DeviceNode, made: dict[str, Any]) -> dict[str, tuple[str, CPUSet]]:
    assert not node.refuses(made)
    return node.told(made)


def codes(node: DeviceNode, name: str) -> set[str]:
    """Return the codes that the agent has reported about a pod."""
    assert node.both is not None
    return {code for line in map(str, node.both.agent.log) if name in line for code in re.findall(r"MOOR-\d+", line)}


def test_a_plugin_that_dies_and_a_device_that_fails_move_nothing(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with device_node(api, kube, playing, played, FOUR_NODES, alignment.Setting.AGENT_PLUGINS) as node:
        plugin = node.plugins[GPU]
        first = node.arrive(wants("first", 1))
        before, [used] = place(node, first), node.held(first)["app0"][GPU]
        assert len(node.numa_nodes(first)["app0"]) == 1
        plugin.turn(used, healthy=False)
        others = [node.arrive(wants(f"other-{number}", 1)) for number in range(3)]
        assert used not in {one for made in others for one in node.held(made)["app0"][GPU]}
        until(lambda: "MOOR-626" in codes(node, "first"), "the agent says that the device has changed")
        assert place(node, first) == before
        plugin.die()
        refused = node.arrive(wants("refused", 1))
        assert node.refuses(refused)
        plain = node.arrive(wants("plain", 0))
        assert not node.refuses(plain)
        assert place(node, first) == before
        plugin.start()
        later = node.arrive(wants("later", 1))
        assert len(node.numa_nodes(later)["app0"]) == 1
        assert place(node, first) == before


def test_a_kubelet_that_forgets_and_an_agent_that_restarts_move_nothing(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with device_node(api, kube, playing, played, FOUR_NODES, alignment.Setting.AGENT_PLUGINS) as node:
        assert node.both is not None
        made = [node.arrive(wants(f"pod-{number}", 1, 1)) for number in range(2)]
        before = [place(node, one) for one in made]
        assert all(len(nodes) == 1 for one in made for nodes in node.numa_nodes(one).values())
        for forget in (False, True):
            node.restart_kubelet(forget=forget)
            node.both.agent.end()
            node.both.agent.start()
            later = node.arrive(wants(f"later-{forget}".lower(), 0))
            assert not node.refuses(later)
            assert [place(node, one) for one in made] == before


def test_pod_resources_that_hang_delay_a_pod_by_the_budget_and_no_more(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with device_node(api, kube, playing, played, FOUR_NODES, alignment.Setting.AGENT_PLUGINS) as node:
        assert node.relay is not None
        node.arrive(wants("before", 1))
        node.relay.speaks.clear()
        blind = node.arrive(wants("blind", 1))
        assert not node.refuses(blind)
        until(lambda: "MOOR-624" in codes(node, "blind"), "the agent says that it does not know the devices")
        required = wants("required", 1)
        required["metadata"]["annotations"] = {"mooring/device-alignment": "require"}
        waiting = node.api.create_pod(node.runnable(required))
        until(lambda: "MOOR-624" in codes(node, "default/required"), "what requires alignment waits")
        assert not node.runs(waiting)
        node.relay.speaks.set()
        until(lambda: node.runs(waiting), "it comes in when its devices are known")
        assert len(node.numa_nodes(waiting)["app0"]) == 1


def test_claims_that_are_shared_changed_or_taken_away_move_nothing_that_runs(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with device_node(api, kube, playing, played, FOUR_NODES, alignment.Setting.AGENT_CLAIMS) as node:
        first = node.arrive(wants("first", 1))
        # Both containers of the second pod, and the third pod, have the claim of one GPU.
        shared = node.sharing("second", "first-app0", containers=2)
        second = node.arrive_as(shared)
        [used] = node.held(first)["app0"][GPU]
        assert {one for each in node.held(second).values() for one in each[GPU]} == {used}
        home = node.numa_nodes(first)["app0"]
        assert node.numa_nodes(second) == {"app0": home, "app1": home}
        before = place(node, first), place(node, second)
        driver = node.drivers[GPU]
        [there] = home
        elsewhere = {"int": (there + 1) % 4}
        driver.publish({name: {NUMA_NODE: elsewhere} if name == used else row for name, row in driver.devices.items()})
        until(lambda: "MOOR-626" in codes(node, "first"), "the agent says that the device is near another node")
        third = node.arrive_as(node.sharing("third", "first-app0", containers=1))
        assert node.told(third)["app0"][1] == CPUSet.from_ids([elsewhere["int"]])
        headers = {"Content-Type": "application/merge-patch+json"}
        api.cluster.http.patch(f"{CLAIMS}/first-app0/status", json={"status": None}, headers=headers)
        node.arrive(wants("last", 0))
        assert (place(node, first), place(node, second)) == before
