"""What an agent costs beside a real containerd, for a machine on which nothing else runs; as root:

``python -m tests.e2e.containerd.figures built``, or ``debian`` for the other containerd. Printed are the time that
CreateContainer takes without a plugin and with the agent, and the time that an agent takes from its start until it is
ready again beside many containers that run. Containers are real, and so are the cgroups; two CPUs are enough.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.cri import Pod
from tests.e2e.containerd.runtime import Runtime, parts_named, running
from tests.patience import until

ROUNDS = 60
"""Creations of one kind; the first few do not count."""
WARMING = 10
RUNNING = 250
"""Containers beside which an agent starts."""
PER_POD = 10


def milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def creations(node: Runtime, pod: Pod, prefix: str, resources: dict[str, int] | None = None) -> list[float]:
    """Return the milliseconds of creations one after another; each container goes before the next comes."""
    found = []
    for number in range(ROUNDS + WARMING):
        made: list[str] = []

        def create(name: str = f"{prefix}{number}", made: list[str] = made) -> None:
            made.append(node.cri.create(pod, name, resources=resources))

        found.append(milliseconds(create))
        node.cri.remove(made[0])
    return found[WARMING:]


def line(what: str, found: Sequence[float]) -> str:
    ordered = sorted(found)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{what:<44} median {statistics.median(found):6.1f} ms   p99 {last:6.1f} ms   ({len(found)} creations)"


def latency(node: Runtime) -> None:
    """Tell the time of CreateContainer: without a plugin, with the agent, and without again."""
    shared, own = pod_on(node, "shared"), pod_on(node, "own")
    told = [line("no plugin", creations(node, shared, "before"))]
    with agent_on(node, level="info"):
        told.append(line("agent, shared container", creations(node, shared, "shared")))
        told.append(line("agent, container with a CPU of its own", creations(node, own, "own", whole_cpus(1))))
    told.append(line("no plugin, after", creations(node, shared, "after")))
    for pod in (shared, own):
        node.cri.remove_pod(pod.id)
    sys.stdout.write("".join(f"{each}\n" for each in told))


def reconciliation(node: Runtime) -> None:
    """Tell the seconds from an agent's start until it is ready, beside containers that run already."""
    made: list[str] = []
    for number in range(RUNNING // PER_POD):
        pod = pod_on(node, f"p{number}")
        made += [node.cri.run(pod, f"c{each}") for each in range(PER_POD)]
    agent = AgentProcess(node, level="info")
    for what in ("first start, all containers found unpinned", "start after a kill", "start after a kill"):
        process = milliseconds(agent.start)
        until(lambda: _told(agent) == RUNNING, "the agent knows every container")
        sys.stdout.write(f"{what:<44} ready after {process / 1000:.2f} s, beside {RUNNING} containers\n")
        # While containerd carries out 250 updates it lets no plugin in (2.4.2: 4 s); the agent is not what waits then.
        until(lambda: all(node.cri.recorded_cpus(one) for one in made), "the runtime has them on record", pause=0.5)
        agent.end(signal.SIGKILL)
    agent.start()
    agent.end()


def _told(agent: AgentProcess) -> int:
    """Return how many containers the newest Synchronize told."""
    told = [line["containers"] for line in agent.log if line["event"] == "runtime synchronized"]
    return told[-1] if told else 0


def main(name: str) -> None:
    """Print everything about one containerd."""
    with tempfile.TemporaryDirectory(prefix="nri-", dir="/tmp") as folder:
        parts = parts_named(name)
        with running(parts, Path(folder)) as node:
            sys.stdout.write(f"containerd {parts.version}\n")
            latency(node)
            reconciliation(node)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ["built"]:
        main(wanted)
