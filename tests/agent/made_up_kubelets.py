"""A made-up /proc in which kubelets come and go."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from mooring.agent.conflicts import KubeletFinder
from mooring.inputs.machines.tree import FolderTree


@dataclass
class Processes:
    """What runs on a computer."""

    root: Path
    listings: int = 0
    """How often all processes were looked at."""

    def start(self, number: int, *arguments: str, name: str = "kubelet") -> None:
        folder = self.root / "proc" / str(number)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n", encoding="ascii")
        words = (f"/usr/bin/{name}", *arguments)
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in words), encoding="ascii")

    def end(self, number: int) -> None:
        shutil.rmtree(self.root / "proc" / str(number))

    def beside(self) -> KubeletFinder:
        """Return what looks for a kubelet among them."""

        class Counted(FolderTree):
            def names(tree, path: str) -> tuple[str, ...]:  # noqa: N805 - the outer self is meant below
                self.listings += path == "proc"
                return super().names(path)

        (self.root / "proc").mkdir(parents=True, exist_ok=True)
        return KubeletFinder(lambda: Counted(str(self.root)))
