"""Build the playground of the site, the planner in the browser: build/site/playground/index.html.

Pyodide is fetched with npm and msgspec's build for it with pip, once, each by version and hash. Everything else is of
this environment. A machine without npm or Node.js has a site without the playground.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml

import mooring
from mooring.inputs.machines.loader import SHIPPED

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "site" / "playground"
PARTS = ROOT / ".venvs" / "playground"
"""What was fetched."""
PYODIDE = "314.0.7"
INTEGRITY = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
"""The package's SHA-512, as npm has it."""
BUILT = ("msgspec",)
"""Packages of the lock file that have no form without compiled parts."""
PLATFORM = ("--platform", "pyemscripten_2026_0_wasm32", "--python-version", "3.14", "--abi", "cp314")
PACKING = ROOT / "scripts" / "playground_packing.py"
PLANNER = ROOT / "scripts" / "playground_planner.py"
LOADED = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
"""What of Pyodide the page loads besides the standard library."""
NODE = """
import { loadPyodide } from "./package/pyodide.mjs";
const python = await loadPyodide();
python.mountNodeFS("/host", "/");
python.runPython(%s);
"""


class UnavailableError(Exception):
    """A part cannot be had on this machine."""


def fetched() -> tuple[Path, list[Path]]:
    """Return the folder of Pyodide and the wheels, fetched if they are not there.

    Raises:
        UnavailableError: npm, Node.js or one of the parts cannot be had.
    """
    missing = [name for name in ("npm", "node") if shutil.which(name) is None]
    if missing:
        raise UnavailableError(f"no {missing[0]}")
    PARTS.mkdir(parents=True, exist_ok=True)
    archive = PARTS / f"pyodide-{PYODIDE}.tgz"
    if not archive.exists():
        _fetch("npm", "pack", "--silent", "--pack-destination", str(PARTS), f"pyodide@{PYODIDE}")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        archive.unlink()
        raise SystemExit(f"{archive.name}: its hash is not that of the release")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = "\n".join(re.findall(rf"^(?:{'|'.join(BUILT)})==(?:.*\\\n)*.*", lock, re.MULTILINE))
    wheels = PARTS / f"wheels-{hashlib.sha256(locked.encode()).hexdigest()[:16]}"
    if not wheels.exists():
        with TemporaryDirectory(dir=PARTS) as folder:
            Path(folder, "requirements.txt").write_text(locked, encoding="utf-8")
            pip = (sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--require-hashes")
            choice = ("--no-deps", "--only-binary", ":all:", *PLATFORM)
            _fetch(*pip, *choice, "-d", f"{folder}/wheels", "-r", f"{folder}/requirements.txt")
            Path(folder, "wheels").rename(wheels)
    return archive, sorted(wheels.glob("*.whl"))


def _fetch(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode:
        raise UnavailableError(f"{' '.join(command[:4])}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")


def known() -> dict[str, list[Any]]:
    """Return what the page offers: shipped machines and lessons."""
    return {"machines": sorted(SHIPPED), "lessons": yaml.safe_load((PAGE / "lessons.yaml").read_text(encoding="utf-8"))}


def licences() -> str:
    """Return the licences of what the page loads, with their texts where the packages have them."""
    texts = runpy.run_path(str(ROOT / "scripts" / "release" / "licences.py"))["texts"]
    parts = [
        f"Pyodide {PYODIDE}: MPL-2.0, source and text: https://github.com/pyodide/pyodide/tree/{PYODIDE}",
        "CPython 3.14, in Pyodide: PSF-2.0, https://docs.python.org/3.14/license.html",
    ]
    for name in ("click", "PyYAML", *BUILT, mooring.DISTRIBUTION):
        package = distribution(name)
        parts += [f"{name} {package.version}", *texts(package)]
    return "\n\n".join(parts) + "\n"


def build(site: Path) -> None:
    """Write the page, and what it loads, into an empty folder.

    Raises:
        UnavailableError: a part cannot be had.
    """
    archive, wheels = fetched()
    shutil.rmtree(site, ignore_errors=True)
    (site / "pyodide").mkdir(parents=True)
    for path in PAGE.iterdir():
        if path.suffix != ".yaml":
            shutil.copy(path, site)
    (site / "licences.txt").write_text(licences(), encoding="utf-8")
    (site / "lessons.json").write_text(json.dumps(known()), encoding="utf-8")
    with TemporaryDirectory() as folder:
        library, pyodide = Path(folder, "library"), Path(folder, "package")
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Pythons before 3.11.4 have none
            packed.extractall(folder)  # noqa: S202 - with that filter
        for package in (mooring, click, yaml):
            here = Path(str(package.__file__)).parent
            shutil.copytree(here, library / here.name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.md"))
        for wheel in wheels:
            shutil.unpack_archive(wheel, library, "zip")
        shutil.copy(PLANNER, library / "planner.py")
        # Plugins are found by their entry points.
        metadata = library / f"mooring-{mooring.__version__}.dist-info"
        metadata.mkdir()
        for name in ("METADATA", "entry_points.txt"):
            (metadata / name).write_text(distribution(mooring.DISTRIBUTION).read_text(name) or "", encoding="utf-8")
        for name in LOADED:
            shutil.copy(pyodide / name, site / "pyodide")
        # The page loads no package by the names of Pyodide's lock file.
        lock = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8")) | {"packages": {}}
        (site / "pyodide" / "pyodide-lock.json").write_text(json.dumps(lock), encoding="utf-8")
        packing, *folders = (f"/host{path}" for path in (PACKING, library, pyodide, site.resolve()))
        program = f"import runpy; runpy.run_path({packing!r})['pack'](*{folders})"
        Path(folder, "pack.mjs").write_text(NODE % json.dumps(program), encoding="utf-8")
        subprocess.run(["node", str(Path(folder, "pack.mjs"))], check=True)  # noqa: S603, S607 - our own words
    for path in (site / "planner.zip", *(site / "pyodide").glob("*.zip"), *(site / "pyodide").glob("*.wasm")):
        path.with_name(f"{path.name}.packed").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        path.unlink()


def main() -> int:
    """Build it into the site."""
    site = ROOT / "build" / "site" / "playground"
    try:
        build(site)
    except UnavailableError as error:
        print(f"SKIPPED playground: {error}")
        return 0
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    print(f"{(site / 'index.html').relative_to(ROOT)}: {len(sizes)} files, {sum(sizes.values()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
