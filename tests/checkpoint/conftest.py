"""Settings of this room's property tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine must not make a law fail: no example is timed.
settings.register_profile("checkpoint", settings.default, deadline=None)
settings.load_profile("checkpoint")
