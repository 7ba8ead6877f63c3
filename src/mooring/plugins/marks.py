"""The mark by which an extension point is recognised in a plugin."""

from __future__ import annotations

import pluggy

PROJECT = "mooring"

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's method (or a module's function) as its answer at the extension point of the same name."""
