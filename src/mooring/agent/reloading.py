"""Looking at the configuration's files, taking up what changed in them, and saying truly what came of it."""

from __future__ import annotations

import time
from typing import Any

from mooring.agent.configuration import AgentConfiguration
from mooring.agent.holder import StateHolder
from mooring.agent.reactor.outcomes import Refused
from mooring.agent.reload import ConfigurationWatch, Reload, engine_refusal
from mooring.agent.startup import Startup
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.status.snapshot import InForce, Published
from mooring.agent.taking_up import under
from mooring.service.clock import present_moment
from mooring.service.logs import set_level


class Reloading:
    """The configuration of a running agent."""

    def __init__(
        self, beginning: Startup, holder: StateHolder, published: Published, metrics: AgentMetrics, log: Any
    ) -> None:
        """Begin with the configuration that is in force.

        Args:
            beginning: has it, and how it is read.
            holder: has the state.
            published: holds the snapshot that says what is in force.
            metrics: count, and are told what they show.
            log: of the agent.
        """
        self._holder, self._published, self._metrics, self._log = holder, published, metrics, log
        self.options = beginning.configuration.options
        """Those in force."""
        self._watch = ConfigurationWatch(
            beginning.configuration, beginning.load, self._refusal, self._take_up, time.monotonic
        )

    def ask(self) -> None:
        """Read the files at the next look, whether they have changed or not."""
        self._watch.ask()

    def look(self) -> None:
        """Look at the files when it is time to; to be called now and then."""
        found = self._watch.poll()
        if found is not None:
            self._tell(found)

    def _refusal(self, new: AgentConfiguration) -> str:
        return engine_refusal(self._holder.state.kubelet, new)

    def _take_up(self, new: AgentConfiguration) -> str:
        """Go on with another configuration, or return why not; then nothing of it is in force."""
        now = present_moment()
        found = self._holder.apply(lambda state, hear: under(state, new, now, hear))
        if isinstance(found.answer, Refused):
            return found.answer.text
        set_level(new.options.log_level)
        self._metrics.per_container = new.options.per_container_metrics
        self.options = new.options
        return ""

    def _tell(self, found: Reload) -> None:
        """Let the outside know what a change of the files came to."""
        is_taken = found.configuration is not None
        self._metrics.reloads.labels("taken" if is_taken else "refused").inc()
        if found.configuration is not None:
            self._log.info("another configuration is in force", generation=self._watch.generation)
            for finding in found.configuration.findings:
                self._log.warning(finding.message, about=finding.subject)
        else:
            self._log.warning("the configuration stays", why=found.refusal)
        since = time.time() if is_taken else self._published.snapshot().configuration.since
        self._holder.show(
            configuration=InForce(self._watch.current.files, self._watch.generation, since, self._watch.refusal)
        )
