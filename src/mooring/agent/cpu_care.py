"""Looking after CPUs that go offline and come back, with the extension cpu-hotplug."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mooring.agent.cpu_watch import CPUWatch
from mooring.agent.holder import Holder
from mooring.agent.known_machine import keep_machine
from mooring.agent.online_cpus import OnlineCPUs
from mooring.agent.options import AgentOptions
from mooring.agent.reactor.hotplug import cpus_changed, is_news
from mooring.core.bits import list_text
from mooring.core.cpuset import CPUSet
from mooring.core.machine import Machine
from mooring.node.hotplug import known_cpus


class CPUCare:
    """Tells the reactor which CPUs are online."""

    def __init__(self, root: str, machine: Machine, holder: Holder, options: AgentOptions, log: Any) -> None:
        """Keep the machine's description, and look for the first time: nobody is placed on a CPU that is offline.

        Args:
            root: folder that stands for ``/``.
            machine: with all of its CPUs.
            holder: has the state.
            options: of the agent.
            log: of the agent.
        """
        self._online, self._holder, self._log = OnlineCPUs(root), holder, log
        self._strange = CPUSet()
        if problem := keep_machine(Path(options.state_dir), machine):
            log.warning("the machine's description cannot be kept", problem=problem)
        self.look()
        self._watch = CPUWatch(self._watched, options.online_cpus_interval_ns / 1e9)

    def start(self) -> None:
        """Begin to watch."""
        if not self._watch.hears:
            self._log.info("the kernel's events of CPUs cannot be heard; the list of online CPUs is read now and then")
        self._watch.start()

    def stop(self, patience: float) -> None:
        """Stop watching; wait for that for some seconds."""
        self._watch.stop(patience)

    def online(self) -> CPUSet | None:
        """Return the CPUs that are online now; None where nobody can know."""
        return self._online.read()

    def look(self) -> None:
        """Look once, and have done what follows."""
        found = self.online()
        if found is None:
            self._holder.complain("online CPUs", "the list of online CPUs cannot be read; what was known counts")
            return
        self._name_strangers(found)
        if is_news(self._holder.state, found.mask):
            self._holder.apply(lambda state, hear: cpus_changed(state, found.mask, hear))

    def _watched(self) -> None:
        try:
            self.look()
        except Exception as error:  # noqa: BLE001 - without this thread no CPU would ever be missed
            self._log.error("internal error", exc_info=error)

    def _name_strangers(self, online: CPUSet) -> None:
        """Say that there are CPUs of which the agent has no description: they were offline when it first started."""
        strange = online - CPUSet(known_cpus(self._holder.state.kubelet.node))
        if strange != self._strange:
            self._strange = strange
            if strange:
                text = "CPUs came online that were not there when the agent first started; nobody gets them"
                self._log.warning(text, cpus=list_text(strange.mask), remedy="drain the node and start the agent anew")
