"""The watch of CPUs: the kernel's events are heard, those of others pass, and without any the list is read anyway."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import until

from mooring.agent.reconcile import ONLINE, CPUWatch, is_about_cpus, online_cpus, open_uevents

OFFLINE = (
    b"offline@/devices/system/cpu/cpu3\0ACTION=offline\0DEVPATH=/devices/system/cpu/cpu3\0SUBSYSTEM=cpu\0SEQNUM=9\0"
)
NETWORK = b"add@/devices/net/x\0ACTION=add\0SUBSYSTEM=net\0"
NEVER = 3600.0


@contextmanager
def watching(interval: float, heard: socket.socket | None) -> Iterator[list[int]]:
    """Watch, and give a list that grows with every look."""
    looks: list[int] = []
    watch = CPUWatch(lambda: looks.append(1), interval, lambda: heard)
    assert watch.has_events == (heard is not None)
    watch.start()
    try:
        until(lambda: bool(looks), "the first look")
        yield looks
    finally:
        watch.stop(20.0)
    assert not [one for one in threading.enumerate() if one.name == "mooring-cpus"]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()


def test_an_event_of_a_cpu_is_a_reason_to_look(pair: tuple[socket.socket, socket.socket]) -> None:
    kernel, heard = pair
    with watching(NEVER, heard) as looks:
        kernel.send(OFFLINE)
        until(lambda: len(looks) == 2, "a look after the event")


def test_events_of_others_are_not_and_many_at_once_are_one(pair: tuple[socket.socket, socket.socket]) -> None:
    kernel, heard = pair
    with watching(NEVER, heard) as looks:
        for _ in range(20):
            kernel.send(NETWORK)
        kernel.send(OFFLINE)
        until(lambda: len(looks) >= 2, "a look after the event")
        kernel.send(NETWORK)
        kernel.send(OFFLINE)
        until(lambda: len(looks) >= 3, "a look after the next")
    assert len(looks) <= 3


def test_where_nothing_is_heard_the_list_is_read_now_and_then() -> None:
    with watching(0.01, None) as looks:
        until(lambda: len(looks) > 3, "some looks")


def test_an_event_names_its_subsystem() -> None:
    assert is_about_cpus(OFFLINE)
    assert not is_about_cpus(NETWORK)
    assert not is_about_cpus(b"")


def test_the_kernels_socket_can_be_had_or_there_is_none() -> None:
    found = open_uevents()
    if found is not None:
        assert (found.family, found.getblocking()) == (socket.AF_NETLINK, False)
        found.close()


def test_the_list_is_read_below_a_root_and_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / ONLINE
    assert online_cpus(str(tmp_path)) is None
    file.parent.mkdir(parents=True)
    for text, found in (("0-2,5\n", "0-2,5"), ("", "None"), ("0-\n", "None")):
        file.write_text(text, encoding="ascii")
        assert str(online_cpus(str(tmp_path))) == found
