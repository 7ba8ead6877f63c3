"""What the page asks the library: a plan with its picture, and the explanation of one of its pods, as JSON."""

from functools import lru_cache

import msgspec

from mooring import MooringError, explain, plan

# The edits of a reader are planned once, and each pod of the plan is explained when it is clicked.
_planned = lru_cache(maxsize=1)(plan)


def answer(machine: str, config: str, pods: str, asked: str) -> str:
    """Return the answer for texts of the page; an error is one sentence under ``error``.

    Args:
        machine: a shipped name, compact text, or the text of a file.
        config: text of the configuration.
        pods: text of the pods.
        asked: the pod to explain; without it, or if it is gone, the first that is refused, else the first.
    """
    try:
        made = _planned(
            machine.strip() or "?", f"{config}\n" if config.strip() else None, f"{pods}\n" if pods.strip() else ()
        )
        answers = {f"{one.pod.namespace}/{one.pod.name}": one for one in made.answers}
        unasked = [f"{pod.namespace}/{pod.name}" for pod in made.unasked]
        refused = [name for name, one in answers.items() if not one.admitted]
        names = [name for name in (asked, *refused, *answers, *unasked) if name in answers or name in unasked]
        explained = msgspec.to_builtins(explain(made, names[0]).document) if names else None
        if explained:
            del explained["facts"]
        found = {
            "pods": [
                {
                    "name": name,
                    "admitted": one.admitted,
                    "reason": one.decision.reason,
                    "code": one.code,
                    "containers": [
                        {"name": container, "cpus": str(placement.cpus), "numa": list(placement.mems)}
                        for container, placement in one.decision.containers.items()
                    ],
                }
                for name, one in answers.items()
            ],
            "unasked": unasked,
            "refusal": getattr(made, "sentence", ""),
            "findings": [{"code": one.code, "text": one.message} for one in made.findings],
            "picture": made._repr_svg_(),
            "explained": explained,
        }
    except MooringError as error:
        found = {"error": str(error)}
    return msgspec.json.encode(found).decode()
