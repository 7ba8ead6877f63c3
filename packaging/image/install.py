"""Runs in the build stage of ``Containerfile``: installs Mooring in a virtual environment of the base's Python.

``python3 install.py CONTEXT PREFIX`` installs ``CONTEXT/requirements.txt`` by hash and Mooring's wheel from
``CONTEXT/wheels``; ``CONTEXT/platforms`` has pip's words for wheels of another architecture. Bytecode, of the modules
of the standard library too, is compiled to ``PREFIX/bytecode``: its validity depends on no file's time. pip and the
packages' own tests stay out. The same input gives the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

UNUSED_FOLDERS = ("test", "tests", "testing")
"""Folders of packages that no program imports."""
UNUSED_FILES = ("*.pxd", "*.pxi", "*.pyi", "*.pyx", "pygments/lexers/[a-z]*.py")
"""For compilers and type checkers; and grammars, because Mooring prints no source code in colour."""
COMMANDS = ("kubectl", "mooring", "python")
"""What programs of the environment begin with; the others belong to dependencies."""
RARELY_IMPORTED = r"/pygments/|/lightkube/models/(?!_|coordination_|core_|meta_|resource|runtime)"
"""Of the packages: compiled when they are imported."""
RARELY_IMPORTED_OF_PYTHON = (
    r"/(config-[^/]+|distutils|ensurepip|idlelib|lib2to3|pydoc_data|test|tkinter|turtledemo|unittest|venv"
    r"|site-packages|dist-packages)/|/encodings/(?!(__init__|aliases|ascii|idna|latin_1|utf_8)\.py)"
)
"""Of the standard library's folder."""


def main(context: Path, prefix: Path) -> None:
    """Make the environment."""
    environment = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}

    def run(*words: str, **more: str) -> None:
        subprocess.run(words, check=True, env={**os.environ, **environment, **more})  # noqa: S603 - own words

    run(sys.executable, "-m", "venv", "--without-pip", str(prefix))
    python, wheels = str(prefix / "bin" / "python3"), context / "wheels"
    # pip is taken from its wheel: a base may have none.
    (pip,) = wheels.glob("pip-*.whl")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-compile",
        "--no-cache-dir",
        "--no-deps",
    ]
    install += ["--disable-pip-version-check", "--quiet", "--no-index", "--find-links", str(wheels)]
    packages = next(prefix.glob("lib/python3*/site-packages"))
    platforms = (context / "platforms").read_text(encoding="ascii").split()
    if platforms:
        install += [*platforms, f"--target={packages}"]
    (own,) = wheels.glob("*mooring*.whl")
    run(*install, str(own), PYTHONPATH=str(pip))
    run(*install, "--require-hashes", "-r", str(context / "requirements.txt"), PYTHONPATH=str(pip))
    # Of what is installed for another architecture, pip leaves the programs of the first wheel here, and no others.
    for path in (packages / "bin").glob("*"):
        path.rename(prefix / "bin" / path.name)
    for folder in sorted(packages.rglob("*")):
        if folder.name in UNUSED_FOLDERS and folder.is_dir() and folder.parent != packages:
            shutil.rmtree(folder)
    for pattern in UNUSED_FILES:
        for path in packages.rglob(pattern):
            path.unlink()
    for path in (prefix / "bin").iterdir():
        if not path.name.startswith(COMMANDS):
            path.unlink()
    compiling = (python, "-m", "compileall", "-q", "-q", "--invalidation-mode", "unchecked-hash", "-x")
    bytecode = str(prefix / "bytecode")
    run(*compiling, RARELY_IMPORTED, str(packages), PYTHONPYCACHEPREFIX=bytecode)
    run(*compiling, RARELY_IMPORTED_OF_PYTHON, sysconfig.get_path("stdlib"), PYTHONPYCACHEPREFIX=bytecode)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
