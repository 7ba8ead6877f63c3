"""Switch each rule of an older kubelet off, or on in the release after it, and count the recordings that notice.

Prints one row a rule: the number of scenarios of each release that then fail. 0 means that no recording separates the
rule there. Run it with the tests on the path: ``python -m mutation.release_rules``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.releases.flipped import departures, files_of, flipped, recorded

from mooring.engine.core.errors import MooringError
from mooring.engine.core.release import Release
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.rule import ReleaseRule
from mooring.engine.releases.rules import RULES


def counted(rule: ReleaseRule) -> Iterator[tuple[str, int]]:
    """Yield each release that follows the rule, and the one after it, with the number of scenarios that fail."""
    for name in (*rule.releases, rule.after):
        yield name, _failing(flipped(RELEASES[name], rule.name), RELEASES[name])


def _failing(changed: Release, release: Release) -> int:
    return sum(_fails(content, changed) for file in files_of(release) for content in recorded(file))


def _fails(content: dict[str, object], release: Release) -> bool:
    try:
        return bool(departures(content, release))
    except MooringError:
        return True


def main() -> None:
    """Print the table."""
    for rule in RULES:
        counts = ", ".join(f"{name}: {count}" for name, count in counted(rule))
        print(f"{rule.name} (until {rule.until}): {counts}", flush=True)


if __name__ == "__main__":
    main()
