"""What every verb refuses in the values that were typed: empty ones, and numbers that are none.

Verbs whose packages are not installed with Mooring itself, but by an extra of its distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan
from typing import Any

import click
from click.core import ParameterSource

from mooring import DISTRIBUTION
from mooring.engine.core.errors import InputError


class Verb(click.Command):
    """A command of which no value that was typed is empty.

    An unset variable of a script gives such a value. It would count as not given, or as the current folder, and the
    answer would be about another node than the one that was meant.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            InputError: a value is empty.
        """
        rest = super().parse_args(ctx, args)
        for parameter in self.params if not ctx.resilient_parsing else ():
            value = ctx.params.get(parameter.name or "")
            typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
            values = value if isinstance(value, tuple) else (value,)
            if typed and any(isinstance(one, str) and not one.strip() for one in values):
                raise InputError(
                    "is empty",
                    field=parameter.opts[0] if isinstance(parameter, click.Option) else "the argument",
                    remedy="give it a value" if parameter.required else "give it a value, or leave it out",
                )
        return rest


class Seconds(click.FloatRange):
    """A number of seconds; click's own ranges take nan, which is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        seconds = float(super().convert(value, param, ctx))
        if isnan(seconds):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return seconds


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
