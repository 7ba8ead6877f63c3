"""The folders of a runtime's namespace, and what the machine has of them; needs no runtime."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.containerd.runtime import RUN_FOLDER, Runtime, private, why_not


@contextlib.contextmanager
def namespace(folder: Path) -> Iterator[Runtime]:
    """Make the namespace of a runtime that never starts."""

    def made(cgroup_parent: str, holder: subprocess.Popen[bytes]) -> Runtime:
        return Runtime("none", None, folder, cgroup_parent, holder, ("true",), {})

    with private(made) as node:
        yield node


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_runtime_that_ends_takes_nothing_from_another_and_leaves_no_folder_on_the_machine(folder: Path) -> None:
    before = sorted(Path("/run").iterdir())
    with contextlib.ExitStack() as ending:
        first = ending.enter_context(namespace(folder))
        with namespace(folder) as second:
            for node, name in ((first, "first"), (second, "second")):
                node.run(["sh", "-c", f"echo {name} > {RUN_FOLDER}/state"])
            ending.close()
            second.run(["grep", "-x", "second", f"{RUN_FOLDER}/state"])
            for one in before:
                second.run(["test", "-e", str(one)])
    assert sorted(Path("/run").iterdir()) == before
