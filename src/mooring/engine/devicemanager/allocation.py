"""Taking devices.

Source: kubelet v1.37.1, devicemanager manager.go (devicesToAllocate, filterByAffinity); spec: topology-manager.md
section 7.1.

Which of several equally near devices a plugin prefers, where somebody has declared its rule.

A plugin may offer GetPreferredAllocation; the kubelet then asks it which of the near devices to take, and takes those
that it names first. What a plugin answers is its own affair: a declared rule stands for it.

Source: kubelet v1.37.1, devicemanager manager.go (devicesToAllocate, callGetPreferredAllocationIfAvailable).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from mooring.engine.core.bits import NO_NODES, NUMAMask
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.gotext import quote
from mooring.engine.core.pod import Container, Pod
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.devicemanager.hints import device_requests
from mooring.engine.devicemanager.state import Device, DeviceState, Preference, ReusableDevices
from mooring.lazy import replace


def allocate(
    state: DeviceState,
    reusable: ReusableDevices,
    pod: Pod,
    container: Container,
    affinity: NUMAMask | None,
    observer: Observer | None = None,
    *,
    sources_ready: bool = True,
) -> tuple[DeviceState, ReusableDevices] | AllocationError:
    """Serve one container.

    Args:
        state: devices and holders before.
        reusable: devices that init containers leave.
        pod: the pod.
        container: one of its containers.
        affinity: mask of the stored hint; None for no opinion.
        observer: receives what was found.
        sources_ready: not while the kubelet starts and admits containers that run already.
    """
    taken: dict[str, frozenset[str]] = {}
    for resource, count in device_requests(container, state).items():
        # 1. What it holds stays, if it is what it asks for.
        if state.held_by(pod.uid, container.name, resource):
            error = _why_not_kept(state, pod.uid, container.name, resource, count, sources_ready=sources_ready)
            if error:
                _report(observer, (pod.uid, container.name, resource), count, affinity, error)
                return AllocationError(error)
            continue
        if not any(device.healthy for device in state.devices[resource]):
            error = _none_healthy(resource)
            _report(observer, (pod.uid, container.name, resource), count, affinity, error)
            return AllocationError(error)
        # 2. Reusable devices first; which of them is arbitrary, too.
        drawn = state.drawn.get(pod.uid, {}).get(container.name, {}).get(resource, frozenset())
        chosen = sorted(reusable.of(pod.uid, resource), key=lambda name: (name not in drawn, name))[:count]
        need = count - len(chosen)
        # 3-4. New ones, the near ones first.
        if need > 0:
            available = state.available(resource)
            if len(available) < need:
                error = (
                    f"requested number of devices unavailable for {resource}. "
                    f"Requested: {need}, Available: {len(available)}"
                )
                _report(observer, (pod.uid, container.name, resource), count, affinity, error)
                return AllocationError(error)
            chosen += _chosen(state, resource, available, affinity, chosen, need, drawn)
        if observer is not None:
            near = NO_NODES
            for device in state.devices[resource]:
                near |= device.mask if device.id in chosen else NO_NODES
            observer(DevicesTaken(pod.uid, container.name, resource, count, affinity, tuple(chosen), near, ""))
        taken[resource] = frozenset(chosen)
    containers = state.held.get(pod.uid, {})
    held = {**containers.get(container.name, {}), **{resource: ids for resource, ids in taken.items() if ids}}
    after = replace(state, held={**state.held, pod.uid: {**containers, container.name: held}}) if taken else state
    return after, reusable.after(pod.uid, container, held)


def _why_not_kept(
    state: DeviceState, pod: str, container: str, resource: str, count: int, *, sources_ready: bool
) -> str:
    """Return the kubelet's text when a container cannot keep what it holds, else an empty text.

    Of a container that runs while the kubelet starts the health of its devices is not asked. What a container has by
    claims is not the device manager's.
    """
    held = state.held_by(pod, container, resource)
    if resource in state.claimed.get(pod, {}).get(container, {}):
        return ""
    if len(held) != count:
        asked = f"pod {quote(pod)} container {quote(container)}"
        return f"{asked} changed request for resource {quote(resource)} from {len(held)} to {count}"
    healthy = {device.id for device in state.devices[resource] if device.healthy}
    if not sources_ready or held <= healthy:
        return ""
    if not healthy:
        return _none_healthy(resource)
    return f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"


def _none_healthy(resource: str) -> str:
    return f"no healthy devices present; cannot allocate unhealthy devices {resource}"


def _report(
    observer: Observer | None, asked: tuple[str, str, str], count: int, affinity: NUMAMask | None, error: str
) -> None:
    """Report why nothing of (pod, container, resource) was taken."""
    if observer is not None:
        observer(DevicesTaken(*asked, count, affinity, (), NUMAMask(0), error))


def _chosen(
    state: DeviceState,
    resource: str,
    available: frozenset[str],
    affinity: NUMAMask | None,
    included: Collection[str],
    need: int,
    drawn: Collection[str],
) -> list[str]:
    """Return the devices to take: near ones first, and of more than enough near ones those that the plugin prefers."""
    # Order the available devices by nearness: touching the affinity, elsewhere, without information.
    #
    # Which of several equally near devices is taken is random in the kubelet. Here the order is such that any number of
    # devices from its beginning has the NUMA nodes that a random draw most often has (the mode of the hypergeometric
    # distribution); devices that differ in nothing else are ordered by id. Where it is known what was drawn, that is
    # taken among the equally near ones.
    devices = sorted((one for one in state.devices[resource] if one.id in available), key=lambda device: device.id)
    alike, before = Counter(device.mask for device in devices), Counter[NUMAMask]()
    ranks: dict[str, tuple[int, bool, float, str]] = {}
    for device in devices:
        mask = device.mask
        distance = 0 if affinity is None or mask & affinity else 1 if mask else 2
        ranks[device.id] = (
            distance,
            device.id not in drawn,
            -(alike[mask] - before[mask]) / (before[mask] + 1),
            device.id,
        )
        before[mask] += 1
    nearest = sorted(ranks, key=lambda name: ranks[name])
    rule = state.preferences.get(resource)
    known = {device.id: device for device in state.devices[resource]}
    near = [name for name in nearest if affinity is None or known[name].mask & affinity]
    taken = near[:need] if len(near) <= need else []
    others = (
        [known[name] for name in nearest if name not in taken] if taken else [known[name] for name in near or nearest]
    )
    kept = [known[name] for name in (*included, *taken) if name in known]
    wanted = preferred(others, kept, need - len(taken), rule)
    return nearest[:need] if wanted is None else [*taken, *(device.id for device in wanted)]


def drop_stale(state: DeviceState, active: Collection[str]) -> DeviceState:
    """Return the state without the devices of pods that are not active."""
    if all(uid in active for uid in state.held):
        return state
    return replace(state, held={uid: containers for uid, containers in state.held.items() if uid in active})


def preferred(
    devices: Sequence[Device], included: Collection[Device], count: int, rule: Preference | None
) -> list[Device] | None:
    """Return the devices that a plugin with this rule prefers; None without a rule that says it.

    Args:
        devices: among which it may choose.
        included: that the container gets anyway.
        count: how many more it needs.
        rule: of the plugin.

    >>> gpus = [Device(f"g{number}", (0,), root=f"pci0000:{number // 2}0") for number in range(6)]
    >>> [one.id for one in preferred(gpus[1:], (), 2, Preference.PACKED)]
    ['g2', 'g3']
    """
    if rule not in (Preference.PACKED, Preference.ALIGNED):
        return None
    return _fewest(devices, included, count, (_nodes, _root) if rule is Preference.ALIGNED else (_root,))


def _fewest(
    devices: Sequence[Device], included: Collection[Device], count: int, levels: tuple[Callable[[Device], str], ...]
) -> list[Device]:
    """Take from as few places as possible, in each of them from as few places of the next level; at last by id.

    Places of what the container gets anyway come first, then the smallest place that has enough, else the largest.
    """
    if not levels:
        return sorted(devices, key=lambda device: device.id)[:count]
    place, *inside = levels
    groups: dict[str, list[Device]] = {}
    for device in devices:
        groups.setdefault(place(device), []).append(device)
    known = {place(device) for device in included}
    chosen: list[Device] = []
    while groups and len(chosen) < count:
        need = count - len(chosen)

        def order(name: str, need: int = need) -> tuple[bool, bool, int, str]:
            size = len(groups[name])
            return name not in known, size < need, size if size >= need else -size, name

        best = min(groups, key=order)
        chosen += _fewest(groups.pop(best), [*included, *chosen], need, tuple(inside))
    return chosen


def _root(device: Device) -> str:
    return device.root or device.id


def _nodes(device: Device) -> str:
    return f"{device.mask:x}" if device.mask else device.id
