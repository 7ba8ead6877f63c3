"""Mixed containers of a node in words: who runs in the shared pool besides the CPUs of his own.

The lines stand under the picture and under the tables of a plan.
"""

from __future__ import annotations

from mooring.core.pod import Pod
from mooring.kubelet.kubelet import Kubelet
from mooring.node.mixed import is_mixed
from mooring.planner.plan import Plan


def mixed_containers(kubelet: Kubelet, pod: Pod) -> tuple[str, ...]:
    """Return the containers of a pod that may use their own CPUs and the shared pool, in the pod's order.

    Claims are left out: who may use them is decided by requests that no plan knows.
    """
    held = kubelet.node.cpu.assignments.get(pod.uid, {})
    return tuple(one.name for one in pod.containers if is_mixed(kubelet.settings, pod, one, held.get(one.name, 0)))


def mixed_lines(plan: Plan) -> list[str]:
    """Return one line for each mixed container; without the extension mixed-cpus there is none."""
    if plan.kubelet is None:
        return []
    pool = plan.kubelet.node.shared_pool
    where = f"in the shared pool too ({pool})" if pool else "there alone while the shared pool is empty"
    return [
        f"{answer.pod.namespace}/{answer.pod.name}/{name} is mixed: it has CPUs "
        f"{answer.decision.containers[name].cpus} for itself and runs {where}."
        for answer in plan.answers
        if answer.admitted
        for name in mixed_containers(plan.kubelet, answer.pod)
    ]
