"""The kubelet for which the files are meant: this one, or an older one to which a node is rolled back.

Kubelet 1.37 writes its state twice into a file; an older one reads only the members of its own format, and these have
no entries of whole pods. Mooring knows the rules of v1.37.1 alone: an older kubelet is one that sees less of the file,
and for the rest decides the same about it.

Source: spec: state-files.md section 5, README.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mooring.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3
from mooring.checkpoint.formats import bytes_of
from mooring.checkpoint.goscan import JSONObject, parse_prefix
from mooring.checkpoint.memory_file import memory_state_text, memory_text_v1, memory_text_v2
from mooring.checkpoint.salvage import DEPTH, json_of
from mooring.core.config import KubeletConfig
from mooring.core.gates import FeatureGates
from mooring.cpumanager.state import CPUState
from mooring.kubelet.kubelet import StateTexts
from mooring.memorymanager.state import MemoryState

POD_LEVEL_GATE = "PodLevelResourceManagers"
BASELINE_GATE = "InPlacePodVerticalScalingExclusiveCPUs"


@dataclass(frozen=True, slots=True)
class StateFileRelease:
    """A release of the kubelet, as far as its state files go."""

    name: str
    writes_data: bool
    """It writes and reads the state a second time, in ``data``."""
    knows_pods: bool
    """It has the gate PodLevelResourceManagers."""

    def config(self, config: KubeletConfig) -> KubeletConfig:
        """Return the configuration as this kubelet honours it."""
        if self.knows_pods:
            return config
        return replace(config, feature_gates={**config.feature_gates, POD_LEVEL_GATE: False})

    def seen(self, files: StateTexts, *, pod_level: bool) -> StateTexts:
        """Return the files as this kubelet sees them."""
        if self.writes_data:
            return files
        hidden = {"data", "datachecksum", *(() if pod_level else ("podentries",))}
        return StateTexts(_without(files.cpu, hidden), _without(files.memory, hidden))

    def cpu_text(self, state: CPUState, gates: FeatureGates) -> str:
        """Return the CPU manager's file as this kubelet writes it."""
        if self.writes_data:
            return cpu_state_text(state, pod_level=gates[POD_LEVEL_GATE], baselines=gates[BASELINE_GATE])
        return cpu_text_v3(state) if gates[POD_LEVEL_GATE] else cpu_text_v2(state)

    def memory_text(self, state: MemoryState, gates: FeatureGates) -> str:
        """Return the memory manager's file as this kubelet writes it."""
        if self.writes_data:
            return memory_state_text(state, pod_level=gates[POD_LEVEL_GATE])
        return memory_text_v2(state) if gates[POD_LEVEL_GATE] else memory_text_v1(state)


def _without(text: str | None, hidden: set[str]) -> str | None:
    """Return a file without some members; a file that is no JSON is left as it is."""
    if text is None:
        return None
    outer = parse_prefix(bytes_of(text), DEPTH)
    if outer.fault or not isinstance(outer.value, JSONObject):
        return text
    members = [(name, value) for name, value in outer.value.members if name.lower() not in hidden]
    if len(members) == len(outer.value.members):
        return text
    try:
        return json_of(JSONObject(members))
    except RecursionError:  # nested far deeper than a state file: whatever is hidden, no kubelet takes it
        return text


CURRENT = StateFileRelease("1.37", writes_data=True, knows_pods=True)
RELEASES: Mapping[str, StateFileRelease] = {
    release.name: release
    for release in (
        CURRENT,
        StateFileRelease("1.36", writes_data=False, knows_pods=True),
        StateFileRelease("1.35", writes_data=False, knows_pods=False),
    )
}
"""By name; the last one stands for everything before it."""
