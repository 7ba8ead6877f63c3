"""Packages with plugins, installed into a folder on the path of this process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mooring.engine.plugins.loading import GROUP

SOURCE = '''
from sys import exit
from mooring.engine.core.errors import InputError
from mooring.engine.plugins import CPUSet, hookimpl


class Good:
    """Scores by the number of a CPU."""

    def __init__(self, settings):
        if "limit" in settings and not isinstance(settings["limit"], int):
            raise InputError("is not a number", field="limit", remedy="write limit: 3")
        self.made_of = dict(settings)
        settings_are_frozen(settings)
        settings.get("list", []).append("\\x1b[8m")

    @hookimpl
    def pre_score(self, request):
        return {cpu: float(cpu) for cpu in request.available}

    @hookimpl
    def allocated(self):
        return None


def settings_are_frozen(settings):
    try:
        settings["x"] = 1
    except TypeError:
        return
    raise AssertionError("settings can be changed")


def raising(settings):
    raise OSError("no such file\\nsecond line")


def refusing(settings):
    raise InputError(5, remedy=7)


class Empty:
    def __init__(self, settings):
        pass


class Peeked(Empty):
    def __dir__(self):
        raise ValueError("do not look")


class Wrapper(Empty):
    @hookimpl(hookwrapper=True)
    def pre_score(self, request):
        yield


class Greedy(Empty):
    @hookimpl
    def pre_score(self, request, node):
        return {}


class Unknown(Empty):
    @hookimpl
    def score_cpu(self, request):
        return 1


HEARD = []


class Hears(Empty):
    """Notes what it is told."""

    @hookimpl
    def allocated(self, change):
        HEARD.append(("allocated", change.uid, change.container, str(change.cpus)))

    @hookimpl
    def deallocated(self, change):
        HEARD.append(("deallocated", change.uid, change.container, str(change.cpus)))


class Flawed(Empty):
    """Fails when it is asked and when it is told."""

    @hookimpl
    def pre_score(self, request):
        raise ValueError("flawed")

    @hookimpl
    def allocated(self, change):
        raise OSError("deaf\\x1b[8m\\u202e")


class Backwards(Empty):
    @hookimpl
    def sort_pods(self, pods):
        return [pod.uid for pod in reversed(pods)]
'''


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, names: Mapping[str, str], package: str = "made-up-plugins"
) -> None:
    """Make a package with a module of plugins known to this process.

    Args:
        folder: where it is put; belongs to the test.
        monkeypatch: takes the path back.
        names: name of a plugin -> what makes it, in the module.
        package: its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(SOURCE)
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {module}:{made}" for name, made in names.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
