"""The main job on shipped input: plan the example pods on a shipped machine, and draw the node.

Prints every command before it runs it, so that it can be typed again. Exit code 0 when the commands answered, also with
the "no" that the example contains on purpose.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODE = "-f examples/pods.yaml --machine epyc-7763-2s-nps4 --config examples/kubelet.yaml"
COMMANDS = (
    f"mooring plan {NODE}",
    f"mooring show {NODE} -o svg --to demo/node.svg",
)
ANSWERED = (0, 1)


def main() -> int:
    """Run the commands and say where the picture is."""
    for command in COMMANDS:
        print(f"$ {command}", flush=True)
        arguments = shlex.split(command)[1:]
        finished = subprocess.run([sys.executable, "-m", "mooring", *arguments], cwd=ROOT, check=False)  # noqa: S603 - fixed
        if finished.returncode not in ANSWERED:
            return finished.returncode
        print(flush=True)
    print("The picture of the node is demo/node.svg: open it in a browser.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
