"""Reading settings and annotations of the plugins that come with Mooring."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.plugins.values import CPURequest, PodView, Withheld

ON = ("true", "false")


def check_fields(settings: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse settings that a plugin does not have.

    Raises:
        InputError: naming the first one.
    """
    for field in settings:
        if field not in known:
            remedy = f"known are {', '.join(sorted(known))}" if known else "the plugin takes no settings"
            raise InputError(f"{str(field)[:60]!r} is not known", field=str(field)[:60], remedy=remedy)


def word(settings: Mapping[str, object], field: str, words: Collection[str], default: str) -> str:
    """Return a setting that is one of some words.

    Raises:
        InputError: it is none of them.
    """
    found = settings.get(field, default)
    # YAML reads on and off as truth values.
    if isinstance(found, bool) and {"on", "off"} <= set(words):
        found = "on" if found else "off"
    if not isinstance(found, str) or found not in words:
        raise InputError(f"{str(found)[:40]!r} is not known", field=field, remedy=f"write {' or '.join(words)}")
    return found


def flag(settings: Mapping[str, object], field: str, *, default: bool) -> bool:
    """Return a setting that is true or false.

    Raises:
        InputError: it is neither.
    """
    found = settings.get(field, default)
    if not isinstance(found, bool):
        raise InputError(f"{str(found)[:40]!r} is neither true nor false", field=field, remedy="write true or false")
    return found


def annotated(pod: PodView | None, annotation: str, container: str) -> str | None:
    """Return what an annotation says of a container: ``annotation.container`` wins over the pod's ``annotation``.

    >>> annotated(PodView("1", "default", "web", "Guaranteed", {"a": "x", "a.db": "y"}), "a", "db")
    'y'
    """
    if pod is None:
        return None
    own = pod.annotations.get(f"{annotation}.{container}") if container else None
    return pod.annotations.get(annotation) if own is None else own


def nothing_for(request: CPURequest, annotation: str, value: str, words: Collection[str]) -> Withheld:
    """Withhold everything from a pod whose annotation says what there is not.

    To ignore it would place the pod where its author did not want it, without a report.
    """
    because = f"{annotation}: {value[:40]!r} is none of {', '.join(words)}"
    return Withheld(request.available, because)


def outside(request: CPURequest, cpus: CPUSet, because: str) -> Withheld | None:
    """Withhold all but some CPUs; None when there are no others."""
    others = request.available - cpus
    return Withheld(others, because) if others else None
