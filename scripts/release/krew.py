"""Write krew's manifest of the plugin beside its archive, and check it by krew's documented rules.

    python scripts/release/krew.py ADDRESS ARCHIVE...

ADDRESS is the folder from which the archives are downloaded; an archive's name ends in its platform, ``-linux-amd64``.
Rules: krew's developer guide ("Writing Krew plugin manifests") and what ``kubectl krew`` checks before an install.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

from mooring import __version__

TEMPLATE = Path(__file__).resolve().parents[2] / "packaging" / "krew" / "mooring.yaml"
PROGRAM = "mooring"
"""The executable in the archive; krew links it as ``kubectl-mooring``."""
_PLATFORM = re.compile(r"-(?P<os>linux|darwin|windows)-(?P<arch>amd64|arm64)\.(tar\.gz|zip)$")
_SEMANTIC_VERSION = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_SHORT = 50
"""Characters of a short description that ``kubectl krew search`` shows."""


def manifest(address: str, archives: list[Path]) -> dict[str, Any]:
    """Return the manifest for archives that will be below an address."""
    made: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    made["spec"]["version"] = f"v{__version__}"
    made["spec"]["homepage"] = address.partition("/releases/")[0]
    for archive in archives:
        platform = _PLATFORM.search(archive.name)
        if platform is None:
            raise SystemExit(f"{archive.name}: the name must end in -OS-ARCH.tar.gz, such as -linux-amd64.tar.gz")
        made["spec"]["platforms"].append(
            {
                "selector": {"matchLabels": {"os": platform["os"], "arch": platform["arch"]}},
                "uri": f"{address}/{archive.name}",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "bin": PROGRAM,
            }
        )
    return made


def faults(made: dict[str, Any], file_name: str) -> list[str]:
    """Return what krew would refuse, or its guide advises against."""
    spec = made.get("spec", {})
    short = spec.get("shortDescription", "")
    found = [
        (made.get("apiVersion") == "krew.googlecontainertools.github.com/v1alpha2", "apiVersion"),
        (made.get("kind") == "Plugin", "kind"),
        (re.fullmatch(r"[\w-]+", made.get("metadata", {}).get("name", "")) is not None, "metadata.name"),
        (file_name == f"{made.get('metadata', {}).get('name')}.yaml", "metadata.name is not the file's"),
        (_SEMANTIC_VERSION.fullmatch(spec.get("version", "")) is not None, "spec.version"),
        (bool(short) and "\n" not in short and len(short) <= _SHORT, "spec.shortDescription"),
        (bool(spec.get("description")), "spec.description"),
        (bool(spec.get("platforms")), "spec.platforms"),
    ]
    for index, platform in enumerate(spec.get("platforms", ())):
        labels = platform.get("selector", {}).get("matchLabels", {})
        place = f"spec.platforms[{index}]"
        found += [
            (bool(labels) and set(labels) <= {"os", "arch"}, f"{place}.selector"),
            (re.fullmatch(r"https://.*\.(tar\.gz|zip)", platform.get("uri", "")) is not None, f"{place}.uri"),
            (re.fullmatch(r"[0-9a-f]{64}", platform.get("sha256", "")) is not None, f"{place}.sha256"),
            (bool(platform.get("bin")), f"{place}.bin"),
            (platform.get("files") != [], f"{place}.files"),
        ]
    return [place for good, place in found if not good]


def archive_faults(archive: Path) -> list[str]:
    """Return what krew could not unpack: it takes folders and plain files; the program and a licence must be there."""
    with tarfile.open(archive) as files:
        members = files.getmembers()
    names = {member.name.removeprefix("./") for member in members}
    found = [f"{member.name} is a link" for member in members if not (member.isfile() or member.isdir())]
    return found + [f"{name} is missing" for name in (PROGRAM, "LICENSE") if name not in names]


def main(address: str, archives: list[Path]) -> int:
    """Write ``mooring.yaml`` beside the archives."""
    made = manifest(address, archives)
    target = archives[0].parent / f"{PROGRAM}.yaml"
    wrong = faults(made, target.name) + [fault for archive in archives for fault in archive_faults(archive)]
    if wrong:
        print(f"{target.name}: krew would not take it: {', '.join(wrong)}", file=sys.stderr)
        return 1
    target.write_text(yaml.safe_dump(made, sort_keys=False, width=200), encoding="utf-8")
    print(f"{target}: {made['spec']['version']}, {', '.join(entry['uri'] for entry in made['spec']['platforms'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].rstrip("/"), [Path(word) for word in sys.argv[2:]]))
