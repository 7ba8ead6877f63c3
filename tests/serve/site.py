"""A served page for the tests: the real server on a free port of loopback, and requests to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path

from mooring.answers.base.plan import Question
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pod_files import load_pods
from mooring.monitoring.serve.access import Guard, OpenGuard
from mooring.monitoring.serve.app import LIMITS, node_application
from mooring.monitoring.serve.recording import Recording
from mooring.monitoring.serve.snapshot import snapshot_of
from mooring.service.http import Application, HTTPServer, listener_at
from mooring.service.options import Address

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HOSTILE = "<script>window.hacked=1</script>"


@dataclass(frozen=True)
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Site:
    """A served application."""

    port: int

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> Got:
        """Make a request; names of headers have underscores."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body.encode() or None, given)
            answer = connection.getresponse()
            return Got(answer.status, dict(answer.headers), answer.read().decode())


@contextmanager
def served(app: Application) -> Iterator[Site]:
    """Serve an application; a client on a busy machine has a minute for its first request."""
    listener = listener_at(Address("127.0.0.1", 0), "")
    with closing(HTTPServer(listener, app, replace(LIMITS, first=60.0))) as server:
        yield Site(server.address[1])


def question(pods: str = "pods.yaml") -> Question:
    """Return a node with pods."""
    machine = load_machine("epyc-7763-2s-nps4")
    configuration = load_config(str(EXAMPLES / "kubelet.yaml"))
    found = load_pods([str(EXAMPLES / pods)])
    return Question(machine, configuration.kubelet, configuration.mooring, tuple(found))


def recording(asked: Question | None = None) -> Recording:
    """Return a node that is recorded from now on."""
    return Recording(snapshot_of(asked or question()))


def hostile() -> Question:
    """Return a node whose pods have names that would be scripts."""
    asked = question()
    pods = tuple(replace(pod, name=f"{HOSTILE}{place}", namespace=HOSTILE) for place, pod in enumerate(asked.pods))
    return replace(asked, pods=pods)


@contextmanager
def node_site(recorded: Recording, guard: Guard | None = None, *, loopback: bool = True) -> Iterator[Site]:
    """Serve a node."""
    with served(node_application(recorded, guard or OpenGuard(), loopback=loopback)) as site:
        yield site
