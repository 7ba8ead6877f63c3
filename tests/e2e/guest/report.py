"""The guest's only program: it runs the steps of a scenario, and reports to the host over the second serial line."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import tty
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

LINE = "/dev/ttyS1"
VALUES_FILE = "/opt/values.json"
IMAGE = "/opt/image.tar"
OVERLAY = "/opt/overlay.ko"
"""Files that the host has put there."""


@cache
def values() -> Mapping[str, Any]:
    """Return what the host has handed over."""
    return dict(json.loads(Path(VALUES_FILE).read_text(encoding="utf-8")))


def tell(kind: str, **what: Any) -> None:
    """Report a document to the host."""
    text = json.dumps({"kind": kind, **what})
    left = memoryview(f"{text}\n".encode())
    while left:
        left = left[os.write(_line(), left) :]


def read_lines(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the documents that arrived; a line that was cut is none."""
    for line in text.splitlines():
        try:
            document = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(document, dict):
            yield document


def steps_of(module: str) -> dict[str, Callable[[], str]]:
    """Return the steps of a scenario by name, in the order of the file."""
    return {
        name.removeprefix("step_"): function
        for name, function in vars(import_module(module)).items()
        if name.startswith("step_") and callable(function)
    }


class TooSlowError(Exception):
    """The guest was too slow to see what a step is about; neither that step nor those after it can be judged."""


def run_steps(steps: Mapping[str, Callable[[], str]], diagnosis: Callable[[], str] = str) -> int:
    """Run steps and report each; return the number of those that failed.

    Args:
        steps: by name.
        diagnosis: says more about the guest when one has failed.
    """
    failed, slow = 0, ""
    for name, function in steps.items():
        started = time.monotonic()
        try:
            result: dict[str, Any] = {"ok": True, "told": slow or function(), "skipped": bool(slow)}
        except TooSlowError as why:
            slow = f"{name}: {why}"
            result = {"ok": True, "told": slow, "skipped": True}
        except Exception:  # noqa: BLE001 - whatever it is, the next step shall run and the host shall know
            failed += 1
            result = {"ok": False, "told": f"{traceback.format_exc(limit=-4)}\n{diagnosis()}"}
        tell("step", step=name, seconds=round(time.monotonic() - started, 1), **result)
    return failed


@cache
def _line() -> int:
    line = os.open(LINE, os.O_WRONLY | os.O_NOCTTY)
    tty.setraw(line)
    return line


if __name__ == "__main__":
    scenario = str(values()["scenario"])
    sys.exit(run_steps(steps_of(scenario), getattr(import_module(scenario), "diagnosis", str)))
