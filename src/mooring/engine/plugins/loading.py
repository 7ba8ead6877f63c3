"""Finding and making plugins: entry points of the group ``mooring.cpu_plugins``, by pluggy's rules, watched for time.

Those that come with Mooring are entry points like any others; a plugin of the same name elsewhere is refused, so that
nothing takes their place unseen.

There are the eight extension points of the CPU Manager Plugin Model (proposal) in the order in which they are asked,
and one more: ``choose_affinity``, without which a preferred choice of CPUs cannot win against other providers. A plugin
takes those arguments of a point that it wants, by name. Whatever it answers is checked; one that fails, answers wrongly
or takes too long is named in a finding, and its answer is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from importlib.metadata import EntryPoint, entry_points
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import TypeAlias

import pluggy

from mooring.engine.core.config import ChosenPlugin, OutOfTimeError, Work
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError, clean, shortened
from mooring.engine.plugins import values

GROUP = "mooring.cpu_plugins"
_OWN = "mooring.engine.plugins.shipped"
_hookspec = pluggy.HookspecMarker(values.PROJECT)


class CPUPluginPoints:
    """The extension points. ``None`` as an answer always means: no opinion."""

    @_hookspec
    def sort_pods(self, pods: tuple[values.PodView, ...]) -> Sequence[str] | None:
        """Return the uids of pods that wait, in the order in which they are to be admitted.

        Asked where several pods wait at once; running pods keep their order.
        """

    @_hookspec
    def filter_cpus(self, request: values.CPURequest) -> CPUSet | values.Withheld | None:
        """Return CPUs that this pod may not get. Hints do not count them either."""

    @_hookspec
    def post_filter(self, request: values.CPURequest, withheld: CPUSet) -> CPUSet | values.Room | None:
        """Make room when too few CPUs are left: return withheld ones that may be given after all.

        ``request.available`` has what is left, ``withheld`` what filters took.
        """

    @_hookspec
    def pre_score(self, request: values.CPURequest) -> Mapping[int, float] | None:
        """Return a score for each of the available CPUs, as a ``dict``; higher is better, a missing one counts 0."""

    @_hookspec
    def select_cpus(self, request: values.CPURequest, scores: Mapping[int, float]) -> CPUSet | values.Selected | None:
        """Return the best set that the sums of all scores allow, of exactly ``request.need`` available CPUs."""

    @_hookspec
    def score_set(self, request: values.CPURequest, candidate: CPUSet) -> float | None:
        """Return a score for one candidate set; higher is better."""

    @_hookspec
    def allocated(self, change: values.Change) -> None:
        """Receive that a container got CPUs; what is returned or raised changes nothing."""

    @_hookspec
    def deallocated(self, change: values.Change) -> None:
        """Receive that a container released CPUs; what is returned or raised changes nothing."""

    @_hookspec
    def choose_affinity(self, request: values.AffinityRequest) -> frozenset[int] | None:
        """Return other NUMA nodes than the merged ones; only with the policy best-effort.

        They must be those that the CPU manager alone would have.
        """


POINTS = tuple(name for name in vars(CPUPluginPoints) if not name.startswith("_"))
"""In the order in which they are asked."""


def known_plugins() -> dict[str, str]:
    """Return the names of all plugins that are installed, and the packages that they come from."""
    return {point.name: _package(point) for point in sorted(_found(), key=lambda point: point.name)}


def load_plugin(name: str, settings: Mapping[str, object]) -> ChosenPlugin:
    """Load a plugin and make it of its settings; placement and weight are the usual ones.

    Raises:
        InputError: there is none of the name, or several, it cannot be loaded, does not take the settings, or is none.
    """
    found = [point for point in _found() if point.name == name]
    if not found:
        known = ", ".join(known_plugins()) or "none"
        raise InputError(f"the plugin {name!r:.60} is not installed", field="name", remedy=f"known are {known}")
    if len({point.value for point in found}) > 1:
        packages = ", ".join(sorted(_package(point) for point in found))
        raise InputError(f"{name!r:.60} is offered by several packages", field="name", remedy=f"keep one of {packages}")
    if name != clean(shortened(name)):
        raise InputError(f"{name!r:.60} is no name that a line can show", field="name", remedy="rename the plugin")
    point = found[0]
    try:
        made = point.load()(MappingProxyType(deepcopy(dict(settings))))
    except InputError as error:
        problem, field, remedy = (values.text_of(getattr, error, part) for part in ("problem", "field", "remedy"))
        raise InputError(problem, field=f"settings.{field}".removesuffix("."), remedy=remedy) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's own code, in which anything may be raised
        text = f"{values.text_of(getattr, type(error), '__name__')}: {values.text_of(str, error)}"
        raise InputError(f"{name} does not take them: {text}", field="settings") from None
    return ChosenPlugin(name, settings, points_of(name, made), is_shipped=point.value.startswith(_OWN))


def points_of(name: str, made: object) -> Mapping[str, Callable[..., object]]:
    """Return the extension points of a plugin, each with a function that takes any of the point's arguments.

    Raises:
        InputError: it implements none, one that does not exist, or wants arguments that there are not.
    """
    manager = pluggy.PluginManager(values.PROJECT)
    manager.add_hookspecs(CPUPluginPoints)
    try:
        manager.register(made, name)
        manager.check_pending()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of pluggy, or of members of the plugin that it looks at
        text, remedy = values.text_of(str, error), "compare with docs/reference/plugins.md"
        raise InputError(f"{name} is not a plugin: {text}", field="name", remedy=remedy) from None
    points = {}
    for point in POINTS:
        for implementation in getattr(manager.hook, point).get_hookimpls():
            if implementation.hookwrapper or implementation.wrapper:
                raise InputError(f"{name} wraps {point}", field="name", remedy="implement it without hookwrapper")
            points[point] = _by_name(implementation.function, implementation.argnames)
    if not points:
        remedy = f"mark one of {', '.join(POINTS)} with hookimpl"
        raise InputError(f"{name} implements no extension point", field="name", remedy=remedy)
    return MappingProxyType(points)


def _by_name(function: Callable[..., object], names: tuple[str, ...]) -> Callable[..., object]:
    def call(**arguments: object) -> object:
        return function(*(arguments[name] for name in names))

    return call


def _found() -> Iterator[EntryPoint]:
    # The same package can be on the path twice, as an installed and an editable one.
    yield from {(point.name, point.value): point for point in entry_points(group=GROUP)}.values()


def _package(point: EntryPoint) -> str:
    return (point.dist is not None and point.dist.name) or point.value


class Watchman:
    """Does work in a thread of its own, for a limited time; one for each configuration that is loaded."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task | None] | None = None
        self._given_up: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def __call__(self, work: Work, budget: int) -> object:
        """Do some work.

        Args:
            work: asks plugins.
            budget: nanoseconds.

        Raises:
            OutOfTimeError: it took longer; whatever it comes to later counts for nothing.
        """
        answers: _Answers = SimpleQueue()
        with self._lock:
            if self._tasks is None:
                self._tasks = SimpleQueue()
                threading.Thread(target=_work, args=(self._tasks,), name="plugins", daemon=True).start()
            tasks = self._tasks
            tasks.put((work, answers))
            try:
                found, error = answers.get(timeout=budget / 1e9)
            except Empty:
                # The thread is stuck with its queue; the next work gets another. It ends if it ever comes back.
                self._tasks = None
                tasks.put(None)
                raise OutOfTimeError from None
        if error is not None:
            raise error
        return found

    def give_up(self, plugin: str) -> None:
        """Note that a plugin is not to be asked again, as long as this configuration is in force."""
        with self._lock:
            self._given_up |= {plugin}

    def has_given_up(self, plugin: str) -> bool:
        """Tell whether a plugin is not to be asked any more."""
        return plugin in self._given_up


_Answers: TypeAlias = "SimpleQueue[tuple[object, BaseException | None]]"
_Task: TypeAlias = tuple[Work, _Answers]


def _work(tasks: SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        work, answers = task
        try:
            answers.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the waiting thread
            answers.put((None, error))
