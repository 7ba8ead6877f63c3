"""Lives of a node whose pods have claims: driver, agent and kubelet under a seed, and what holds of claims."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import ClassVar

from tests.world import calls, claims, files
from tests.world.apiserver import NODES, APIServer
from tests.world.apiserver import RATES as SERVER_RATES
from tests.world.claims import CLAIMS, NODE, Claim, Claims
from tests.world.cluster import node_object
from tests.world.cluster_lives import has_ended
from tests.world.laws import DISK
from tests.world.lives import NodeLife, sizes


class ClaimsLife(NodeLife):
    """One life."""

    STEPS = 30
    RATES: ClassVar = {**files.RATES, **SERVER_RATES, **calls.RATES}

    def __init__(self, root: Path, seed: int, steps: int = 0, left_out: frozenset[str] = frozenset()) -> None:
        super().__init__(root, seed, steps, left_out)
        claims.connect()
        self.server = APIServer(self.faults, lambda _pod, _node: None)
        self.claims = Claims(self.node, self.server)
        self.is_over = False

    def drawn_kind(self) -> str:
        return "claims"

    def leave(self) -> None:
        self.is_over = True
        super().leave()

    def last_words(self) -> tuple[str, ...]:
        return (*super().last_words(), *self.claims.log.lines, *self.claims.process.program.tracebacks)

    # What happens.

    def before_step(self) -> None:
        super().before_step()
        if not self.server.objects[NODES]:
            self.server.put(NODES, node_object(NODE))
        self.claims.process.keep()

    def claim(self, numbers: random.Random) -> None:
        """Let a pod with a claim be scheduled."""
        number = len(self.claims.claims) + 1
        one = Claim(f"c-{number}", f"claim-{number}", numbers.choice([1, 1, 2, 3]))
        self.claims.claims[one.uid] = one
        metadata = {"name": one.name, "namespace": "default", "uid": one.uid}
        self.server.put(CLAIMS, {"metadata": metadata, "spec": {}, "status": {}})
        self.threads.spawn(self.threads.outside, one.name, partial(self.claims.live, one, lambda: self.is_over))
        if numbers.random() < 0.3:
            # Its pod is deleted before it runs.
            self.threads.sleep(numbers.choice([0.0, 0.005, 0.3, 1.0]))
            one.is_wanted = False
        self._rest(numbers)

    def end_claim(self, numbers: random.Random) -> None:
        """Let a pod with a claim end; perhaps one of its containers is stopped only after the claim is unprepared."""
        if wanted := [one for one in self.claims.claims.values() if one.is_wanted]:
            one, runtime = numbers.choice(wanted), self.node.runtime
            for sandbox in [known.id for known in runtime.sandboxes.values() if known.uid == one.pod]:
                if numbers.random() < 0.7:
                    runtime.end_pod(sandbox)
            one.is_wanted = False
            self._rest(numbers)

    def run_user(self, numbers: random.Random) -> None:
        """Run containers that name a claim, whatever has become of that; a few are of a pod for which it is not."""
        runtime, known = self.node.runtime, [*self.claims.claims.values()]
        known = [one for one in known if one.is_wanted] * 4 + known[-3:]
        if not known or len(runtime.sandboxes) >= 6:
            return
        claim = numbers.choice(known)
        self._pods += 1
        uid = claim.pod if numbers.random() < 0.85 else f"x{self._pods}"
        if uid in {one.uid for one in runtime.sandboxes.values()}:
            return
        sandbox = runtime.run_sandbox(uid, f"pod-{uid}", {})
        self.claims.named[sandbox] = claim
        for name in ("main", "c1")[: numbers.choice([1, 1, 2])]:
            self.run_container(numbers, sandbox, name)

    def create(self, numbers: random.Random, sandbox: str, name: str) -> str | None:
        if sandbox not in self.claims.named:
            return super().create(numbers, sandbox, name)
        return self.claims.create(sandbox, name, sizes(numbers.choice([0, 0, 1])))

    def restart_kubelet(self, numbers: random.Random) -> None:
        for one in self.claims.claims.values():
            one.again = True
        self._rest(numbers)

    def kill_driver(self, numbers: random.Random) -> None:
        """Kill the driver, perhaps in the middle of what it does."""
        self.threads.sleep(numbers.choice([0.0, 0.001, 0.01, 1.0]))
        self.claims.process.end(numbers.choice([0.0, 2.0, 20.0]))
        self._rest(numbers)

    def stop_driver(self, numbers: random.Random) -> None:
        self.claims.process.stop.set()
        self._rest(numbers)

    def write_foreign(self, numbers: random.Random) -> None:
        self.claims.written.update(one.id for one in self.node.running())
        super().write_foreign(numbers)

    def be_away(self, numbers: random.Random) -> None:
        self.server.away_until = self.threads.now + numbers.choice([0.5, 5.0, 30.0])
        self._rest(numbers)

    def lose_power(self, numbers: random.Random) -> None:
        self.claims.lose_power()
        super().lose_power(numbers)

    def lose_state(self, _numbers: random.Random) -> None:
        """Remove the agent's state while no pod runs and claims are prepared: the driver has them given again."""
        for sandbox in [*self.node.runtime.sandboxes]:
            self.node.runtime.end_pod(sandbox)
        self._await_killers()
        self.node.forget()
        self.claims.has_lost = self.faults.is_quiet = True
        self.start()
        for _ in range(20):
            self.before_step()
            self.threads.sleep(1.0)
        self.faults.is_quiet = False

    def _rest(self, numbers: random.Random) -> None:
        self.threads.sleep(numbers.choice([0.0, 0.05, 0.5, 2.0, 6.0]))
        self.before_step()

    # Laws.

    def look(self) -> None:
        super().look()
        failures = [*self.claims.process.program.failures, *self.threads.outside.failures]
        self.hold(not failures, f"a thread of the driver or the world has ended: {failures[:1]!r}")
        if self.node.agent is not None:
            for problem in self.claims.broken(may_move=self._may_move()):
                self.hold(False, problem)

    def _may_move(self) -> bool:
        """Tell whether an agent may have come back with an older state, as one that could not write it."""
        return self.claims.has_lost or any(one.partition(":")[0] in DISK for one in self.faults.happened)

    def settle(self) -> None:
        self.server.away_until = 0.0
        super().settle()
        for problem in self.claims.problems(may_move=self._may_move()):
            self.hold(False, problem)

    def _rest_quietly(self) -> None:
        super()._rest_quietly()
        # A killed driver is back after at most 20 s, and releases what is over each minute.
        self.threads.sleep(10.0)

    def end(self) -> None:
        for one in self.claims.claims.values():
            one.is_wanted = False
        super().end()
        self.claims.process.stop.set()
        self.hold(self.threads.wait(lambda: has_ended(self.claims.process), 30.0), "the driver does not end")


ClaimsLife.EVENTS = {
    **NodeLife.EVENTS,
    "foreign write": (5, ClaimsLife.write_foreign),
    "claim": (30, ClaimsLife.claim),
    "run user": (24, ClaimsLife.run_user),
    "end claim": (18, ClaimsLife.end_claim),
    "restart kubelet": (5, ClaimsLife.restart_kubelet),
    "kill driver": (8, ClaimsLife.kill_driver),
    "stop driver": (3, ClaimsLife.stop_driver),
    "server away": (3, ClaimsLife.be_away),
    "power loss": (2, ClaimsLife.lose_power),
    "state lost": (2, ClaimsLife.lose_state),
}
