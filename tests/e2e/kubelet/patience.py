"""Waiting for parts that take seconds, without taking the processor from them."""

from __future__ import annotations

from functools import partial

from tests import patience

until = partial(patience.until, seconds=120.0, pause=0.05)
