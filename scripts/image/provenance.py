"""How an image came to be, as an in-toto statement with SLSA's provenance: which commit, packages and wheels.

It claims what this build did and is not signed: whoever publishes the image signs it (docs/how-to/build-the-image.md).
Formats: in-toto Statement v1, SLSA Provenance v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bill_of_materials import Wheel, deb_purl
from debian_root import Package

BUILD_TYPE = "https://mooring.dev/build/image/v1"


def provenance(
    image: str,
    digest: str,
    parameters: Mapping[str, str],
    revision: str,
    wheels: Iterable[Wheel],
    packages: Sequence[Package],
    tools: Mapping[str, str],
) -> dict[str, Any]:
    """Return the statement.

    Args:
        image: name with tag.
        digest: of its manifest, ``sha256:...``.
        parameters: what the caller of the build chose.
        revision: the commit.
        wheels: that were installed.
        packages: of the Debian root.
        tools: name -> version of the programs that built it.
    """
    inputs = [{"uri": "pkg:generic/mooring", "digest": {"gitCommit": revision}}]
    inputs += [{"uri": one.purl, "name": one.file, "digest": {"sha256": one.sha256}} for one in wheels]
    inputs += [{"uri": deb_purl(one), "digest": {"sha256": one.sha256}} for one in packages]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": image, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": inputs,
            },
            "runDetails": {"builder": {"id": f"{BUILD_TYPE}/make-image", "version": dict(tools)}},
        },
    }
