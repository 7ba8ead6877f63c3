"""Say clearly when the interpreter is too old, before anything is installed."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file is for older interpreters
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"Mooring needs Python 3.11 or later, and {sys.executable} is {found}: run make with PYTHON=python3.11")
