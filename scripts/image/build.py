"""Build the image of ``packaging/image/Containerfile`` with buildah, without a daemon and without root.

Into ``build/image``, or ``build/image-arm64`` for another architecture:

* ``mooring.tar``, an OCI archive: ``ctr images import``, ``podman load``, ``skopeo copy oci-archive:``;
* ``mooring.cdx.json``, what is in it (CycloneDX), and ``mooring.provenance.json``, what it was made of (SLSA);
* ``digest``, that of its manifest.

Without ``BASE`` the base is a root file system made of Debian's packages. The same commit, packages and wheels give the
same archive, byte by byte: no file is newer than the commit (or ``SOURCE_DATE_EPOCH``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bill_of_materials import Wheel, bill_of_materials, read_wheel
from debian_root import Package, UnavailableError, write_root
from provenance import provenance

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "packaging" / "image"
PIP = "pip==25.3"
"""Installs within the build; it is not in the image."""
# Wheels for the C library of Debian 12 and older ones.
GLIBC = tuple(range(36, 16, -1))
DEBIAN_ROOT = "localhost/mooring-root:"
"""With the architecture as its tag."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The kernel's name of each architecture; the key is Debian's and OCI's."""
UNAVAILABLE = 2
"""Exit code where this machine cannot build an image."""


@dataclass(frozen=True, slots=True)
class Build:
    """One build: where its files are, and the time that no file of the image is newer than."""

    folder: Path
    epoch: int
    architecture: str

    def buildah(self, *words: str) -> str:
        """Run buildah on images of its own, away from the user's."""
        # A driver decides the order of a layer's files: always the same driver.
        place = (f"--root={self.folder / 'storage'}", f"--runroot={self.folder / 'run'}")
        return said("buildah", "--storage-driver=vfs", *place, *words)

    def image(self, context: Path, file: Path, name: str, arguments: Mapping[str, str]) -> None:
        """Build an image of a Containerfile."""
        words = [
            "--quiet",
            f"--arch={self.architecture}",
            "--isolation=chroot",
            "--network=host",
            "--no-cache",
            "--format=oci",
        ]
        words += [f"--build-arg={one}={value}" for one, value in arguments.items()]
        self.buildah("build", *words, f"--timestamp={self.epoch}", f"--file={file}", f"--tag={name}", str(context))

    def write(self, name: str, document: Mapping[str, object]) -> None:
        """Write a document beside the archive."""
        (self.folder / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Build, and print what came out."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    given.add_argument("--base", default="", help="name of a base image; by default a Debian root is made")
    given.add_argument("--suite", default="", help="Debian suite of that root; by default this machine's")
    own = {machine: name for name, machine in MACHINES.items()}.get(os.uname().machine, "")
    given.add_argument("--arch", default=own, choices=MACHINES, help="architecture; by default this machine's")
    given.add_argument("--image", default="", help="name and tag; localhost/mooring:VERSION by default")
    given.add_argument("--folder", type=Path, help="what is written goes there")
    chosen = given.parse_args()
    if shutil.which("buildah") is None:
        print("make image: buildah is missing (Debian: apt-get install buildah)", file=sys.stderr)
        return UNAVAILABLE
    if chosen.base and chosen.arch != own:
        given.error("--base takes this machine's architecture only: the Debian root is the one that others have")
    try:
        name = "image" if chosen.arch == own else f"image-{chosen.arch}"
        folder = (chosen.folder or ROOT / "build" / name).resolve()
        build(folder, chosen.base, chosen.suite, chosen.image, chosen.arch, own)
    except UnavailableError as why:
        print(f"make image: {why}", file=sys.stderr)
        return UNAVAILABLE
    return 0


def build(folder: Path, base: str, suite: str, image: str, architecture: str, own_architecture: str) -> None:
    """Build the image; an empty text takes what :func:`main` says.

    For another architecture, this machine's Python of the same version installs and compiles; nothing is emulated.
    """
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or said("git", "log", "-1", "--format=%ct"))
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    built = Build(folder, epoch, architecture)
    changed = bool(said("git", "status", "--porcelain", "--untracked-files=no"))
    revision = said("git", "rev-parse", "HEAD") + ("-dirty" if changed else "")
    context = folder / "context"
    shutil.rmtree(context, ignore_errors=True)
    (context / "wheels").mkdir(parents=True)
    for name in ("install.py", "requirements.txt"):
        shutil.copy(SOURCES / name, context)
    own = _own_wheel(context / "wheels")
    image = image or f"localhost/mooring:{own.version}"
    packages = () if base else _debian_base(built, suite, architecture)
    installing = packages if architecture == own_architecture else _debian_base(built, suite, own_architecture)
    if {_source_of(one) for one in installing} != {_source_of(one) for one in packages}:
        raise UnavailableError(
            f"Debian has other versions for {architecture} than for {own_architecture} at the moment"
        )
    installer = base or DEBIAN_ROOT + own_architecture
    version = _python_of(built, installer)
    platforms = _download(context / "wheels", version, MACHINES[architecture])
    (context / "platforms").write_text(
        "\n".join(platforms) if architecture != own_architecture else "", encoding="ascii"
    )
    arguments = {
        "BASE": base or DEBIAN_ROOT + architecture,
        "INSTALLER": installer,
        "BASE_NAME": base or "scratch",
        "VERSION": own.version,
        "REVISION": revision,
        "CREATED": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    built.image(context, SOURCES / "Containerfile", image, arguments)
    digest = _archive(built, image)
    built.buildah("rmi", "--all", "--force")
    wheels = sorted(_installed(context / "wheels"), key=lambda one: one.purl)
    parameters = {"base": base, "suite": suite, "architecture": architecture, "sourceDateEpoch": str(epoch)}
    tools = {"buildah": said("buildah", "--version"), "python": sys.version.split()[0]}
    built.write("mooring.cdx.json", bill_of_materials(image, digest, base, wheels, packages))
    built.write("mooring.provenance.json", provenance(image, digest, parameters, revision, wheels, packages, tools))
    (folder / "digest").write_text(f"{digest}\n", encoding="ascii")
    size = (folder / "mooring.tar").stat().st_size
    print(f"{image} {digest}\n{folder / 'mooring.tar'}: {size / 1e6:.1f} MB")


def _debian_base(built: Build, suite: str, architecture: str) -> tuple[Package, ...]:
    """Make the base image :data:`DEBIAN_ROOT` of an architecture; return its packages.

    buildah takes a base only if it is marked as of the architecture that it builds for, so this one is too.
    """
    root = built.folder / f"root-{architecture}"
    root.mkdir(exist_ok=True)
    packages = write_root(root / "root.tar", suite, architecture, built.folder / "apt", built.epoch)
    (root / "Containerfile").write_text("FROM scratch\nADD root.tar /\n", encoding="utf-8")
    built.image(root, root / "Containerfile", DEBIAN_ROOT + architecture, {})
    return packages


def _source_of(package: Package) -> tuple[str, str]:
    return package.source, package.version.partition("+b")[0]  # rebuilds of one architecture have the same sources


def _python_of(built: Build, base: str) -> str:
    """Return the version of a base image's Python, such as ``3.11``."""
    container = built.buildah("from", "--quiet", base)
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    answer = built.buildah("run", "--isolation=chroot", container, "--", "python3", "-c", question)
    built.buildah("rm", container)
    return answer.splitlines()[-1]


def _own_wheel(folder: Path) -> Wheel:
    """Build Mooring's wheel of what is in git, reproducibly."""
    said(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    (made,) = folder.glob("*.whl")
    return read_wheel(made)


def _download(folder: Path, version: str, machine: str) -> list[str]:
    """Fetch pip, and all wheels for a version of Python, each checked by its hash; return pip's words for them."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    said(*words, PIP)
    platforms = ["--only-binary=:all:", f"--python-version={version}", "--implementation=cp"]
    platforms += [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC] + [
        f"--platform=manylinux2014_{machine}"
    ]
    said(*words, *platforms, "--require-hashes", "-r", str(SOURCES / "requirements.txt"))
    return platforms


def _installed(folder: Path) -> list[Wheel]:
    return [read_wheel(path) for path in folder.glob("*.whl") if not path.name.startswith("pip-")]


def _archive(built: Build, image: str) -> str:
    """Write the image as an OCI archive; return the digest of its manifest."""
    layout = built.folder / "layout"
    shutil.rmtree(layout, ignore_errors=True)
    built.buildah("push", "--quiet", image, f"oci:{layout}:{image}")
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    (entry,) = index["manifests"]
    # containerd takes the whole name from here.
    entry["annotations"]["io.containerd.image.name"] = image
    (layout / "index.json").write_text(json.dumps(index), encoding="utf-8")
    with tarfile.open(built.folder / "mooring.tar", "w", format=tarfile.USTAR_FORMAT) as out:
        for path in sorted(layout.rglob("*")):
            member = out.gettarinfo(path, str(path.relative_to(layout)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.mode = built.epoch, 0o755 if member.isdir() else 0o644
            with contextlib.ExitStack() as opened:
                out.addfile(member, opened.enter_context(path.open("rb")) if member.isreg() else None)
    shutil.rmtree(layout)
    return str(entry["digest"])


def said(*command: str) -> str:
    """Return what a program prints; ends with its complaint when it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - own words
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
