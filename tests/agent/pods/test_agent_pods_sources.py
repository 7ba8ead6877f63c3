"""The choice between pod sources, and pods that wait to become known."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.agent.pods.runtime_view import containers_of, sandbox_of
from tests.cpumanager.pods import container, guaranteed

from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.api import MOST_REMEMBERED, KnownPods
from mooring.agent.pods.resolve import resolved
from mooring.agent.pods.source import MOST_ANNOTATIONS, PodSources, kept_annotations
from mooring.engine.core.pod import Pod


@dataclass
class Source:
    """Knows some uids and remembers what it was asked."""

    name: str
    uids: tuple[str, ...]
    asked: list[str] = field(default_factory=list)

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        self.asked.append(sandbox.uid)
        return Pod(sandbox.uid, self.name) if sandbox.uid in self.uids else None

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        return {one.uid: pod for one in sandboxes if (pod := self.pod(one)) is not None}

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        return self.pod(sandbox)


def name(sources: PodSources, uid: str, source: str) -> str:
    found = sources.pod(PodSandbox("s", uid, "p", "n", annotations={"kubernetes.io/config.source": source}))
    return found.name if found else "unknown"


def test_static_pods_come_from_the_folder_and_all_others_from_the_api_server() -> None:
    static, api = Source("folder", ("1", "2")), Source("api", ("2", "3"))
    sources = PodSources(static, api)
    assert [name(sources, uid, "file") for uid in "1234"] == ["folder", "folder", "api", "unknown"]
    static.asked.clear()
    assert [name(sources, uid, "api") for uid in "1234"] == ["unknown", "api", "api", "unknown"]
    assert static.asked == []
    assert name(sources, "1", "http") == "folder"


def test_many_pods_are_asked_for_in_the_same_order_of_sources() -> None:
    sources = PodSources(Source("folder", ("1", "2")), Source("api", ("2", "3")))
    for source in ("file", "api"):
        asked = [PodSandbox("s", uid, "p", "n", annotations={"kubernetes.io/config.source": source}) for uid in "1234"]
        one_by_one = {uid: found for uid in "1234" if (found := name(sources, uid, source)) != "unknown"}
        assert {uid: pod.name for uid, pod in sources.known(asked).items()} == one_by_one
    assert PodSources().known(asked) == {}


def test_who_asked_without_patience_takes_nothing_from_the_one_who_waits() -> None:
    known, found = KnownPods(), list[Pod | None]()
    known.replace_all({})
    assert known.find("u") is None
    asking = threading.Thread(target=lambda: found.append(known.find("u", patience=10_000)))
    asking.start()
    known.put(Pod("u", "web"))
    asking.join(60)
    assert [one.name for one in found if one] == ["web"]


def test_either_source_may_be_missing() -> None:
    assert name(PodSources(), "1", "file") == "unknown"
    assert name(PodSources(static=Source("folder", ("1",))), "1", "api") == "unknown"
    assert name(PodSources(api=Source("api", ("1",))), "1", "file") == "api"


def test_a_pod_that_no_source_knows_is_derived_from_all_its_containers() -> None:
    pod = guaranteed("u", container("a", "2"), container("b", "1"))
    first, second = containers_of(pod, pod.containers)
    found = resolved(None, sandbox_of(pod), second, [first])
    assert found.is_derived
    assert [one.name for one in found.pod.containers] == ["a", "b"]


def test_a_pod_of_a_source_is_used_and_held_against_the_runtime() -> None:
    pod = guaranteed("u", container("a", "2"))
    (told,) = containers_of(pod, pod.containers)
    found = resolved(Pod("u", "api"), sandbox_of(pod), told)
    assert not found.is_derived
    assert [re.findall("the (.*) is ", one) for one in found.problems] == [["name"], ["QoS class"], ["name"]]


def test_of_a_pod_with_many_annotations_the_agents_own_are_kept() -> None:
    annotations = {f"example.com/{number}": "x" for number in range(1000)} | {"mooring/opt-out": "true"}
    kept = kept_annotations(annotations)
    assert len(kept) == MOST_ANNOTATIONS
    assert kept["mooring/opt-out"] == "true"


def test_one_who_waits_gets_the_pod_when_it_comes() -> None:
    known = KnownPods()
    known.replace_all({})
    found: list[Pod | None] = []
    asking = threading.Thread(target=lambda: found.append(known.find("u", patience=10_000)))
    asking.start()
    known.put(Pod("u", "web"))
    asking.join(60)
    assert found == [Pod("u", "web")]


def test_one_who_waits_is_let_go_when_the_source_goes_quiet() -> None:
    known = KnownPods()
    known.replace_all({})
    asking = threading.Thread(target=known.find, args=("u", 10_000))
    asking.start()
    known.stale()
    asking.join(60)
    assert not asking.is_alive()


def test_a_uid_that_was_missed_is_not_waited_for_again_until_it_was_found() -> None:
    known = KnownPods()
    known.replace_all({})
    assert known.find("u", patience=0.001) is None
    assert known.find("u", patience=10_000) is None
    known.put(Pod("u", "web"))
    assert known.find("u") is not None


def test_what_was_missed_is_remembered_up_to_a_bound() -> None:
    known = KnownPods()
    for number in range(2 * MOST_REMEMBERED):
        known.find(str(number), patience=10_000)
    known.replace_all({})
    last, found = str(2 * MOST_REMEMBERED - 1), list[Pod | None]()
    assert known.find(last, patience=10_000) is None, "it is not waited for again"
    asking = threading.Thread(target=lambda: found.append(known.find("0", patience=10_000)))
    asking.start()
    known.put(Pod("0", "web"))
    asking.join(60)
    assert [one.name for one in found if one] == ["web"]
