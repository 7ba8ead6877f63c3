"""Reloading the configuration while the agent runs: whole, or not at all.

Nothing here waits: the agent calls :meth:`ConfigurationReloader.check` every half second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from mooring.agent.configuration import AgentConfiguration
from mooring.agent.reactor.outcomes import Refused
from mooring.agent.reload import concerns_engine, engine_refusal, restart_reasons, with_configuration
from mooring.agent.startup import Startup
from mooring.agent.state_holder import StateHolder
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.status.snapshot import InForce, Published
from mooring.engine.core.errors import InputError
from mooring.service.daemon import present_moment
from mooring.service.logs import Log, set_level

PERIOD = 2.0
"""Seconds between two checks of the files."""

Signature = tuple[tuple[int, int, int] | None, ...]
"""Inode, time of change and size of each file; None for one that is not there."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What a change of the files came to."""

    configuration: AgentConfiguration | None
    """The new configuration, or None when the old one stays."""
    refusal: str = ""
    """Why it stays, in one line."""


class ConfigurationWatch:
    """Sees changes of the files by their inode, time and size, and reads them when they have come to rest."""

    def __init__(
        self,
        current: AgentConfiguration,
        load: Callable[[], AgentConfiguration],
        accepts: Callable[[AgentConfiguration], str],
        take_up: Callable[[AgentConfiguration], str],
        clock: Callable[[], float],
    ) -> None:
        """Begin with a configuration that is in force.

        Args:
            current: the configuration.
            load: reads the files again, as at the start; raises InputError.
            accepts: says why the engine cannot continue with a configuration, or nothing; asked on a copy.
            take_up: lets it be in force, or says why it is not after all: the state may have changed since.
            clock: seconds that only go forward.
        """
        self.current = current
        """The configuration in force."""
        self.generation = 1
        """How many configurations have been in force."""
        self.refusal = ""
        """Why the files are not in force, or nothing."""
        self._load, self._accepts, self._take_up, self._clock = load, accepts, take_up, clock
        self._seen = self._last = signature(current)
        self._next = clock() + PERIOD
        self._asked = False

    def ask(self) -> None:
        """Read the files at the next poll whether they have changed or not, as SIGHUP requests."""
        self._asked = True

    def poll(self) -> Reload | None:
        """Look at the files when it is time to, and return what a change came to.

        A file that is being written changes from one check to the next and is left alone until it does not.
        """
        now = self._clock()
        if not self._asked and now < self._next:
            return None
        self._next = now + PERIOD
        found = signature(self.current)
        settled, self._last = found == self._last, found
        if not self._asked and (found == self._seen or not settled):
            return None
        self._asked, self._seen = False, found
        return self._taken_up()

    def _taken_up(self) -> Reload:
        try:
            new = self._load()
        except InputError as error:
            return self._refused(str(error))
        if reasons := restart_reasons(self.current, new):
            return self._refused("; ".join(reasons))
        if concerns_engine(self.current, new) and (refusal := self._accepts(new)):
            return self._refused(refusal)
        if refusal := self._take_up(new):
            return self._refused(refusal)
        self.current, self.refusal = new, ""
        self.generation += 1
        # A file that is named again has never been checked.
        self._seen = self._last = signature(new)
        return Reload(new)

    def _refused(self, refusal: str) -> Reload:
        self.refusal = refusal
        return Reload(None, refusal)


class ConfigurationReloader:
    """The configuration of a running agent."""

    def __init__(
        self, beginning: Startup, holder: StateHolder, published: Published, metrics: AgentMetrics, log: Log
    ) -> None:
        """Begin with the configuration that is in force.

        Args:
            beginning: has it, and how it is read.
            holder: has the state.
            published: holds the snapshot that says what is in force.
            metrics: count, and are updated with what they show.
            log: of the agent.
        """
        self._holder, self._published, self._metrics, self._log = holder, published, metrics, log
        self.options = beginning.configuration.options
        """Those in force."""
        self._watch = ConfigurationWatch(
            beginning.configuration, beginning.load, self._refusal, self._take_up, time.monotonic
        )

    def ask(self) -> None:
        """Read the files at the next check, whether they have changed or not."""
        self._watch.ask()

    def check(self) -> None:
        """Check the files when it is time to; to be called now and then."""
        found = self._watch.poll()
        if found is not None:
            self._report_reload(found)

    def _refusal(self, new: AgentConfiguration) -> str:
        return engine_refusal(self._holder.state.kubelet, new)

    def _take_up(self, new: AgentConfiguration) -> str:
        """Go on with another configuration, or return why not; then nothing of it is in force."""
        now = present_moment()
        found = self._holder.apply(lambda state, hear: with_configuration(state, new, now, hear))
        if isinstance(found.answer, Refused):
            return found.answer.text
        set_level(new.options.log_level)
        self._metrics.per_container = new.options.per_container_metrics
        self.options = new.options
        return ""

    def _report_reload(self, found: Reload) -> None:
        """Let the outside know what a change of the files came to."""
        is_taken = found.configuration is not None
        self._metrics.reloads.labels("taken" if is_taken else "refused").inc()
        if found.configuration is not None:
            self._log.info("configuration reloaded", generation=self._watch.generation)
            for finding in found.configuration.findings:
                self._log.warning(finding.message, about=finding.subject)
        else:
            self._log.warning("configuration change refused", why=found.refusal)
        since = time.time() if is_taken else self._published.snapshot().configuration.since
        self._holder.show(
            configuration=InForce(self._watch.current.files, self._watch.generation, since, self._watch.refusal)
        )


def signature(configuration: AgentConfiguration) -> Signature:
    """Return what tells whether the files of a configuration have changed."""
    return tuple(_stat(path) for path in configuration.files)


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a str in hand
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
