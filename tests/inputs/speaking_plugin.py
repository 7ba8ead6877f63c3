"""A plugin that says what its settings say, wherever a plugin can say something."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.errors import InputError
from mooring.engine.plugins import CPURequest, CPUSet, Room, Withheld, hookimpl

PODS = "---\n".join(
    f"{{apiVersion: v1, kind: Pod, metadata: {{name: pod-{cpus}}}, spec: {{containers: [{{name: c, "
    f"resources: {{limits: {{cpu: {cpus}, memory: 1Gi}}}}}}]}}}}\n"
    for cpus in (2, 4, 6)
)
"""The first is left a choice, the second is made room for, and the third is refused."""
CONFIGURED = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "MooringConfiguration",
    "extensions": ["plugins"],
    "pluginBudget": "10s",
    "plugins": [
        {"name": "one", "settings": {"withheld": "hot", "room": "cooler"}},
        {"name": "two", "settings": {"pre_score": "no table", "sort_pods": "no order", "made": ""}},
        {"name": "three", "settings": {"select_cpus": "Guess"}},
    ],
}


class Speaking:
    """What the entry points name."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.says = settings
        for name in {*settings} - {"withheld", "room", "pre_score", "sort_pods", "select_cpus", "made"}:
            raise InputError(f"{name} is not known", field=name, remedy=f"leave {name} out")
        self._raise("made")

    def _raise(self, name: str) -> None:
        if text := self.says.get(name):
            raise type(text, (Exception,), {})(text)

    @hookimpl
    def sort_pods(self) -> None:
        self._raise("sort_pods")

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> Withheld | None:
        cpus, text = request.available if request.need > 2 else CPUSet.of(2), self.says.get("withheld")
        return Withheld(cpus, text) if text else None

    @hookimpl
    def post_filter(self, request: CPURequest, withheld: CPUSet) -> Room | None:
        return Room(withheld, self.says["room"]) if request.need == 4 and "room" in self.says else None

    @hookimpl
    def pre_score(self) -> None:
        self._raise("pre_score")

    @hookimpl
    def select_cpus(self) -> object:
        text = self.says.get("select_cpus")
        return type(text, (), {})() if text else None
