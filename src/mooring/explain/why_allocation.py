"""Why a manager failed to serve a pod that the topology manager had let through, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mooring.engine.core.bits import list_text
from mooring.engine.core.pod import ContainerKind
from mooring.engine.cpumanager.facts import WholeCoresChecked
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.memorymanager.facts import MemoryPinningFailed
from mooring.engine.node import Decision
from mooring.explain import reason as code
from mooring.explain.chapters import Circumstances
from mooring.explain.phrases import device_words, only, plural, who
from mooring.explain.reason import Reason
from mooring.explain.story import Taking
from mooring.explain.why_devices import fewer_devices, unhealthy_devices
from mooring.explain.why_memory import nothing_to_share, used_up_memory, why_no_memory
from mooring.lazy import lazily

with lazily():
    import mooring.engine.plugins.facts as plugin_facts


def why_smt(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for a refusal by the check of full-pcpus-only."""
    checked = circumstances.refusal(WholeCoresChecked)
    if checked is None:
        return Reason(code.NO_WHOLE_CORES, "full-pcpus-only allocates whole cores only.")
    need, group = checked.need, checked.group
    asks = f"{who(checked.container)} requests {plural(need, 'exclusive CPU')}"
    if need % group:
        below, above = need // group * group, (need // group + 1) * group
        advice = f"request {below} or {above}" if below else f"request {above}"
        return Reason(
            code.NO_WHOLE_CORES,
            f"{asks}, but full-pcpus-only allocates whole cores of {group}{_by_average(circumstances, group)}: "
            f"{advice}.",
            "Request whole cores, or a fraction such as 900m to run in the shared pool.",
        )
    init = [container.name for container in circumstances.pod.containers if container.kind is ContainerKind.INIT]
    left = any(decision.containers[name].cpus for name in init if name in decision.containers)
    uncounted = "; the CPUs of its init containers do not count" if left else ""
    return Reason(
        code.TOO_FEW_WHOLE_CORES,
        f"{asks} in whole cores, but {only(checked.available, 'CPU')} in the shared pool on cores without a reserved "
        f"CPU{uncounted}.",
        "Request fewer CPUs, remove a pod, or reserve whole cores.",
    )


def _by_average(circumstances: Circumstances, group: int) -> str:
    topology = circumstances.settings.topology
    if topology is None or all(mask.bit_count() == group for mask in topology.cores.values()):
        return ""
    counted = circumstances.settings.plugins is not None and circumstances.settings.plugins.counts_cores
    return " (of the cores that plugins leave)" if counted else " (the average of this machine's cores)"


def why_empty_shared_pool(circumstances: Circumstances) -> Reason:
    """Return the reason for a pod whose exclusive containers leave nothing to share (KEP-5526)."""
    of_memory = any(isinstance(fact, MemoryPinningFailed) for fact in circumstances.facts)
    cause = nothing_to_share(used_up_memory(circumstances) if of_memory else "cpu")
    return Reason(
        cause.code,
        f"The pod as a whole {cause.sentence}: request more in the pod's own resources.",
        cause.remedy,
    )


def why_unexpected(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for an error that the kubelet itself calls unexpected."""
    inner = decision.message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")
    if "[memorymanager]" in inner:
        return why_no_memory(inner, circumstances)
    devices = circumstances.refusal(DevicesTaken)
    if devices is not None:
        total = len(circumstances.devices.devices.get(devices.resource, ()))
        has = f"the node has {total or 'none'}" if total < devices.need else "fewer are free"
        cause = unhealthy_devices(devices.resource, devices.need, circumstances) or Reason(
            code.NOT_ENOUGH_DEVICES, has, fewer_devices(devices.need, total)
        )
        words = device_words(devices.resource, devices.need)
        return replace(cause, sentence=f"It requests {words}, but {cause.sentence} ({inner}).")
    taken = circumstances.refusal(Taking)
    if taken is None or any(run.place == "partition" for run in taken.runs):
        return Reason(code.NOT_SERVED, f"A resource manager returned an error ({inner}).")
    asks = f"{who(taken.container)} requests {plural(taken.need, 'exclusive CPU')}"
    usable = taken.pool.bit_count()
    if taken.need > usable:
        also = ", including those of its init containers" if taken.reusable else ""
        return Reason(
            code.NOT_ENOUGH_CPUS,
            f"{asks}, but {only(usable)} free{also}.",
            fewer_cpus(taken.need, usable, circumstances),
        )
    if _withheld_sentences(circumstances.facts):
        return Reason(
            code.WITHHELD,
            f"{asks}, but plugins withhold too many of the {usable} available.",
            "Change the pod's annotations or the settings of the plugin, request fewer CPUs, or remove a pod.",
        )
    return Reason(
        code.TAKING_FAILS,
        f"{asks} and {usable} are available, but the kubelet's allocation fails on their layout ({taken.error}).",
        "Request another number of CPUs, or use another CPU manager option.",
    )


def fewer_cpus(need: int, usable: int, circumstances: Circumstances) -> str:
    """Return what helps where too few CPUs are free; no pod is in the way of what the node does not have."""
    policy = circumstances.settings.cpu
    if policy is not None and (policy.topology.all_cpus & ~policy.reserved).bit_count() < need:
        return "Request fewer CPUs, or use a larger node."
    return "Request fewer CPUs, or remove a pod." if usable else "Remove a pod."


def with_withheld(reason: Reason, facts: Sequence[object]) -> Reason:
    """Return the reason for a refusal with the plugins that withheld CPUs, and why they did."""
    said = _withheld_sentences(facts)
    return replace(reason, sentence=f"{reason.sentence} {said}") if said else reason


def _withheld_sentences(facts: Sequence[object]) -> str:
    """Return one sentence for each plugin that withheld CPUs in the last question; empty when none did."""
    found = [fact for fact in facts if isinstance(fact, plugin_facts.PluginFiltered)]
    if not found:
        return ""
    last = {fact.plugin: fact for fact in found if fact.container == found[-1].container}
    given = 0
    for fact in facts:
        if isinstance(fact, plugin_facts.PluginMadeRoom) and fact.container == found[-1].container:
            given |= fact.cpus
    sentences = []
    for name, fact in last.items():
        cpus = fact.cpus & ~given
        if cpus:
            because = f": {fact.because}" if fact.because else ""
            sentences.append(f"The plugin {name} withholds {list_text(cpus)}{because}.")
    return " ".join(sentences)
