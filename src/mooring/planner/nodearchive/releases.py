"""How the kubelet of a node decides differently from the one that Mooring decides as: warnings for its archive.

Source: the rules and formats of :mod:`mooring.releases`, which docs/reference/kubelet-releases.md shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mooring.core.config import KubeletConfig
from mooring.core.machine import Finding
from mooring.core.release import NEWEST, Release
from mooring.explain.phrases import plural
from mooring.releases.catalog import NEWEST_MINOR, OLDEST_MINOR, minor_of, release_of
from mooring.releases.rules import RELEASE_NAMES, RULES, ReleaseRule
from mooring.releases.state_files import state_file_rules

CODE: Final = "MOOR-580"

_STATIC: Final = "static"
RESIZES: Final = (
    "resizes (1.31 to 1.36): hints and allocation of a resize are those of a new pod; later: CPUs and memory stay as "
    "they are assigned"
)
"""What no rule decides: Mooring resizes as the newest release does."""


def release_findings(version: str, config: KubeletConfig, decides: Release = NEWEST) -> Iterator[Finding]:
    """Yield what a node's kubelet may do otherwise than Mooring says, under this configuration.

    Nothing is said about the release that Mooring decides as, about another patch of it, and about an unknown version.

    Args:
        version: of the node's kubelet, as it reports it.
        config: of the node's kubelet.
        decides: the release that Mooring decides as.

    >>> [found.subject for found in release_findings("v1.99.0", KubeletConfig())]
    ['kubelet v1.99.0']
    >>> list(release_findings("v1.37.1+k3s1", KubeletConfig()))
    []
    """
    subject, minor = f"kubelet {version}", minor_of(version)
    if minor is None:
        return
    if minor > NEWEST_MINOR:
        message = f"is newer than {NEWEST.tag}, the newest known; what it does otherwise is not known"
        yield Finding("warning", subject, message, CODE)
        return
    release = release_of(RELEASE_NAMES[0] if minor < OLDEST_MINOR else version)
    if release == decides:
        return
    messages = [*_rules(release, decides, config), *_formats(release, decides)]
    if (release == NEWEST) != (decides == NEWEST):
        messages.append(RESIZES)
    side = "older" if RELEASE_NAMES.index(release.name) < RELEASE_NAMES.index(decides.name) else "newer"
    more = ", and more that is not known" if minor < OLDEST_MINOR else ""
    ways = plural(len(messages), "way")
    message = f"is {side} than {decides.tag}, whose decisions these are; it differs in {ways}{more}"
    yield Finding("warning", subject, message, CODE)
    yield from (Finding("warning", subject, one, CODE) for one in messages)


def _rules(release: Release, decides: Release, config: KubeletConfig) -> Iterator[str]:
    different = {*release.rules.names()} ^ {*decides.rules.names()}
    for rule in RULES:
        if rule.name in different and _matters(rule, config):
            yield f"{rule.name} ({rule.span}): {rule.says}; later: {rule.instead}"


def _matters(rule: ReleaseRule, config: KubeletConfig) -> bool:
    if rule.options and config.cpu_manager_policy != _STATIC:
        return False
    return all(config.cpu_manager_policy_options.get(name) == "true" for name in rule.options)


def _formats(release: Release, decides: Release) -> Iterator[str]:
    theirs, ours = (state_file_rules(one.name, pod_level=False) for one in (release, decides))
    for name, one, other in (("CPU", theirs.cpu, ours.cpu), ("memory", theirs.memory, ours.memory)):
        if (one.written, one.read) != (other.written, other.read):
            yield (
                f"{name} manager's state file: {release.name} writes {one.written} and reads {', '.join(one.read)}; "
                f"{decides.name} writes {other.written} and reads {', '.join(other.read)}"
            )
