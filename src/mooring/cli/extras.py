"""Verbs whose packages are not installed with Mooring itself, but by an extra of its distribution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mooring import DISTRIBUTION
from mooring.engine.core.errors import InputError


@contextmanager
def needs_extra(name: str, *, source: str) -> Iterator[None]:
    """Name the extra that installs what a verb lacks.

    Args:
        name: the extra, of ``pyproject.toml``.
        source: the verb, as errors name it.

    Raises:
        InputError: a package other than Mooring is missing.

    >>> try:
    ...     with needs_extra("fleet", source="mooring fleet"):
    ...         import no_such_package
    ... except InputError as error:
    ...     print(error.remedy)
    install its packages: pip install 'kube-mooring[fleet]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "mooring").startswith("mooring"):
            raise
        raise InputError(
            f"the package {error.name} is missing",
            source=source,
            remedy=f"install its packages: pip install '{DISTRIBUTION}[{name}]'",
        ) from None
