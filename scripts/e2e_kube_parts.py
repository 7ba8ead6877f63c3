"""Make the Kubernetes parts that e2e tests need: kubelet, API server, scheduler and etcd; helm on request.

Kubernetes' programs are built from its Go module, whose checksum is known here; its staging modules are replaced by
their published versions, as its own ``go.mod`` names them. An older kubelet is built from its own version of the
module. etcd is Debian's. Everything lies in the folder of ``e2e_parts.py``, under a key of versions and flags; what is
there is not made again. On two CPUs with nothing else to do the first build takes 5 to 10 minutes, 2.3 GB of memory for
its linker, and 3 GB of Go's own cache; helm and the older kubelet take three minutes more each. Each build is
announced with the minutes that it takes beside what the machine does now.

Run by hand, it makes the first four, or those that are named, and says where they are. What cannot be had is
skipped by name and reason; what fails beyond that is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e_parts import UnavailableError, announce, cache_folder, last_line, locked, own_suite, run, unpacked

MODULE = "k8s.io/kubernetes"
MODULE_VERSION = "v1.37.1"
OLDER_VERSION = "v1.34.4"
"""Of the kubelet that is upgraded: the oldest that an API server of :data:`MODULE_VERSION` still serves."""
PROGRAMS = ("kubelet", "kube-apiserver", "kube-scheduler")
BUILD = ("go", "build", "-mod=mod", "-trimpath", "-buildvcs=false", "-p", "2")
ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}
FIRST_MINUTES, LATER_MINUTES = 8, 3
"""Of the first program of a version, for which its modules are fetched, and of another."""


@dataclass(frozen=True, slots=True)
class Version:
    """A release of Kubernetes' module, and the programs that are built from it."""

    name: str
    checksum: str
    """As Go's checksum database has it."""
    programs: tuple[str, ...]

    @property
    def staging(self) -> str:
        """The version of its staging modules."""
        return self.name.replace("v1.", "v0.", 1)

    @property
    def linker_flags(self) -> str:
        """Without a version the programs report v0.0.0-master, and the API server refuses clients by it."""
        minor = self.name.split(".")[1]
        package = "k8s.io/component-base/version"
        return f"-s -w -X {package}.gitVersion={self.name} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}"


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module with one program that is installed as it is."""

    path: str
    version: str
    checksum: str
    """As Go's checksum database has it."""
    command: str
    """Folder of the program, whose last part is its name."""


HELM = Module("helm.sh/helm/v4", "v4.3.1", "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g=", "cmd/helm")
VERSIONS = {
    one.name: one
    for one in (
        Version(MODULE_VERSION, "h1:LTUzSbp9n0W7649oVKBYfC48zcoD3vCk++1PZQn28q8=", PROGRAMS),
        Version(OLDER_VERSION, "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=", ("kubelet",)),
    )
}


@dataclass(frozen=True, slots=True)
class KubeParts:
    """What a cluster of one node needs beside containerd; all paths are absolute."""

    version: str
    etcd: Path
    apiserver: Path
    kubelet: Path


def kube_parts() -> KubeParts:
    """Return the parts of a cluster of one node, made if they are not there.

    Raises:
        UnavailableError: when there is no Go, the module cannot be had or etcd's package is missing.
        RuntimeError: when a build fails.
    """
    return KubeParts(MODULE_VERSION, etcd(), kube_program("kube-apiserver"), kube_program("kubelet"))


def etcd() -> Path:
    """Return Debian's etcd, unpacked and not installed; raises as :func:`kube_parts`."""
    with locked(cache_folder()) as cache:
        program = unpacked(cache, "etcd-server", own_suite()) / "usr/bin/etcd"
    if not os.access(program, os.X_OK):
        raise RuntimeError(f"{program} is no program; remove {cache_folder()} and try again")
    return program


def kube_program(name: str, version: str = MODULE_VERSION) -> Path:
    """Return one of the programs of a version, built if it is not there; raises as :func:`kube_parts`."""
    built = VERSIONS[version]
    if shutil.which("go") is None:
        raise UnavailableError(f"no go: {name} could not be built")
    compiler = run(["go", "env", "GOVERSION"], cwd=None, **ENVIRONMENT).stdout.strip()
    kept = cache_folder() / "kubernetes"
    kept.mkdir(exist_ok=True)
    # A lock of its own: nobody who wants containerd should wait for this build.
    with locked(kept):
        folder = kept / f"{version}-{compiler}-{_key(compiler, built)}"
        program = folder / name
        if not program.exists():
            _build(folder, name, built)
    return program


def helm() -> Path:
    """Return helm, built if it is not there; raises as :func:`kube_program`."""
    return _installed(HELM)


def _installed(module: Module) -> Path:
    """Return the program of a module, built if it is not there."""
    name = Path(module.command).name
    if shutil.which("go") is None:
        raise UnavailableError(f"no go: {name} could not be built")
    compiler = run(["go", "env", "GOVERSION"], cwd=None, **ENVIRONMENT).stdout.strip()
    kept = cache_folder() / "kubernetes"
    kept.mkdir(exist_ok=True)
    with locked(kept):
        folder = kept / f"{name}-{module.version}-{compiler}"
        if not folder.exists():
            _install(module, folder)
    return folder / name


def _install(module: Module, folder: Path) -> None:
    """Build the program of a module; the folder is there whole or not at all."""
    versioned = f"{module.path}@{module.version}"
    announce(versioned, LATER_MINUTES)
    fetched = run(["go", "mod", "download", "-json", versioned], cwd=folder.parent, **ENVIRONMENT)
    if fetched.returncode:
        raise UnavailableError(f"module {versioned}: {last_line(fetched)}")
    told = json.loads(fetched.stdout)
    if told["Sum"] != module.checksum:
        raise RuntimeError(f"{versioned} is not what it was: its checksum differs")
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    package = f"{module.path}/{module.command}@{module.version}"
    words = [*nice, "go", "install", "-p", "2", "-trimpath", "-ldflags", "-s -w", package]
    finished = run(words, cwd=fresh, **{**ENVIRONMENT, "GOBIN": str(fresh)})
    if finished.returncode:
        raise RuntimeError(f"building {versioned} failed: {finished.stderr[-2000:]}")
    fresh.rename(folder)


def _key(compiler: str, version: Version) -> str:
    told = json.dumps([version.checksum, compiler, [*BUILD, "-ldflags", version.linker_flags], ENVIRONMENT])
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _build(folder: Path, name: str, version: Version) -> None:
    announce(f"{name} {version.name}", LATER_MINUTES if (folder / "go.sum").exists() else FIRST_MINUTES)
    _write_module(folder, version)
    fresh = folder / f"{name}.new"
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    words = [*nice, *BUILD, "-ldflags", version.linker_flags, "-o", str(fresh), f"{MODULE}/cmd/{name}"]
    finished = run(words, cwd=folder, **ENVIRONMENT)
    if finished.returncode:
        raise RuntimeError(f"building {name} {version.name} failed: {finished.stderr[-2000:]}")
    fresh.rename(folder / name)


def _write_module(folder: Path, version: Version) -> None:
    """Write a module that only depends on Kubernetes, and have Go note the checksums of all that it needs."""
    if (folder / "go.sum").exists():
        return
    fetched = run(["go", "mod", "download", "-json", f"{MODULE}@{version.name}"], cwd=folder.parent, **ENVIRONMENT)
    if fetched.returncode:
        raise UnavailableError(f"module {MODULE}@{version.name}: {last_line(fetched)}")
    told = json.loads(fetched.stdout)
    if told["Sum"] != version.checksum:
        raise RuntimeError(f"{MODULE}@{version.name} is not what it was: its checksum differs")
    own = Path(told["GoMod"]).read_text(encoding="utf-8")
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text(module_text(own, version), encoding="utf-8")
    imports = "".join(f'import _ "{MODULE}/cmd/{name}"\n' for name in version.programs)
    (folder / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}", encoding="utf-8")
    tidied = run(["go", "mod", "tidy"], cwd=folder, **ENVIRONMENT)
    if tidied.returncode:
        (folder / "go.sum").unlink(missing_ok=True)
        raise UnavailableError(f"modules of {MODULE}@{version.name}: {last_line(tidied)}")


def module_text(own: str, version: Version) -> str:
    """Return a ``go.mod`` that requires Kubernetes.

    Args:
        own: Kubernetes' ``go.mod``. Where it replaces a module by a folder of its repository, the published version
            stands in; other modules of ``k8s.io`` have versions of their own.
        version: of Kubernetes.
    """
    staged = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging/\S+$", own, re.MULTILINE)
    language = re.search(r"^go (\S+)$", own, re.MULTILINE)
    if not staged or language is None:
        raise RuntimeError(f"{MODULE}@{version.name}: its go.mod has no staging modules")
    replaced = "".join(f"\t{name} => {name} {version.staging}\n" for name in sorted(set(staged)))
    return (
        f"module mooring.test/kubernetes\n\ngo {language[1]}\n\n"
        f"require {MODULE} {version.name}\n\nreplace (\n{replaced})\n"
    )


def _named(name: str) -> Path:
    if name == "etcd":
        return etcd()
    if name == "helm":
        return helm()
    program, _, version = name.partition("@")
    return kube_program(program, version or MODULE_VERSION)


def main(names: list[str]) -> int:
    """Make everything, or the named programs (``kubelet@v1.34.4``), and print where they are."""
    for name in names or ["etcd", *PROGRAMS]:
        try:
            program = _named(name)
        except UnavailableError as why:
            print(f"SKIPPED {name}: {why}", flush=True)
        else:
            print(f"{name}: {program}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
