"""A machine's files about interrupts, made of plain files: what is written into one is in force at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.agent.devices.made_up_podresources import ClaimDevice, PodResources
from tests.agent.devices.test_agent_devices_whole import DRIVER, slice_object
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.pods.fault_injector import FaultInjector
from tests.agent.whole_agent import NODE, Node, counted, leave, pod, start, until, whole
from tests.cli.command import mooring
from tests.documents.validation import complaints

from mooring.agent.agent import Agent
from mooring.agent.interrupts.files import (
    RETRYING,
    InterruptJournal,
    InterruptTrouble,
    InterruptWriter,
    IRQFiles,
)
from mooring.agent.nri.types import Event, RuntimeContainer
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.interrupts import ANNOTATION, NEW, InterruptCPUs, Kept, Memory, Owner, Step, steer
from mooring.inputs.machines.kernelfiles import mask_text, parse_mask

DEFAULT = "proc/irq/default_smp_affinity"


@dataclass(frozen=True, slots=True)
class MadeUpInterrupts:
    root: Path

    def put(self, path: str, text: str) -> None:
        """Make a file, or put another in its place in one step."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(f"{text}\n")
        new.replace(file)

    def add(self, number: int, name: str, allowed: str = "0-7", device: str = "") -> None:
        """Add an interrupt, of a PCI device or of none."""
        self.put(f"proc/irq/{number}/smp_affinity_list", allowed)
        self.put(f"sys/kernel/irq/{number}/actions", name)
        if device:
            self.put(f"sys/bus/pci/devices/{device}/msi_irqs/{number}", "msix")

    def cpus(self, number: int) -> str:
        """Return what an interrupt may use; empty while it is being written."""
        return (self.root / f"proc/irq/{number}/smp_affinity_list").read_text().strip()

    def move(self, number: int, cpus: str) -> None:
        """Move an interrupt, as an administrator or irqbalance does."""
        self.put(f"proc/irq/{number}/smp_affinity_list", cpus)

    @property
    def beginning(self) -> str:
        """Where new interrupts begin, as a mask."""
        return (self.root / DEFAULT).read_text().strip()


def made_up_interrupts(root: Path, boot: str = "boot-1") -> MadeUpInterrupts:
    """Make a machine of eight CPUs with two interrupts of a network card and one of a disk."""
    made = MadeUpInterrupts(root)
    made.put("sys/devices/system/cpu/online", "0-7")
    made.put("proc/sys/kernel/random/boot_id", boot)
    made.put(DEFAULT, "ff")
    made.add(24, "eth0-rx", device="0000:03:00.1")
    made.add(25, "eth0-tx", "2", device="0000:03:00.1")
    made.add(26, "nvme0q0", "4-5")
    return made


# What the agent reads and writes of interrupts, and what it remembers on the disk.


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


MEMORY = Memory({NEW: Kept("default_smp_affinity", cpus("0-7"), (cpus("0-1"),)), 24: Kept("a", cpus("2"), ())})


@given(st.frozensets(st.integers(0, 200), min_size=1))
def test_masks_are_written_as_they_are_read(ids: frozenset[int]) -> None:
    assert parse_mask(mask_text(CPUSet.from_ids(ids).mask)) == CPUSet.from_ids(ids).mask


def test_interrupts_are_seen_with_their_devices(tmp_path: Path) -> None:
    made_up_interrupts(tmp_path)
    (tmp_path / "proc/irq/26/smp_affinity_list").chmod(0o444)
    files = IRQFiles(str(tmp_path))
    assert [(one.number, one.name, str(one.allowed), one.device, one.managed) for one in files.read()] == [
        (NEW, "default_smp_affinity", "0-7", "", False),
        (24, "eth0-rx", "0-7", "0000:03:00.1", False),
        (25, "eth0-tx", "2", "0000:03:00.1", False),
        (26, "nvme0q0", "4-5", "", True),
    ]
    assert files.online() == cpus("0-7")


def test_the_kernels_own_word_on_a_managed_interrupt_counts(tmp_path: Path) -> None:
    made = made_up_interrupts(tmp_path)
    made.put("sys/kernel/debug/irq/irqs/26", "handler: x\ndstate: 0x1\n  IRQD_AFFINITY_MANAGED")
    made.put("sys/kernel/debug/irq/irqs/24", "handler: x\ndstate: 0x1")
    assert [one.number for one in IRQFiles(str(tmp_path)).read() if one.managed] == [26]


def test_what_is_written_is_in_force(tmp_path: Path) -> None:
    made = made_up_interrupts(tmp_path)
    files = IRQFiles(str(tmp_path))
    assert files.write(24, cpus("0,3-4")) is None
    assert files.write(NEW, cpus("0-1")) is None
    assert (made.cpus(24), made.beginning) == ("0,3-4", "00000003")
    assert (files.shown(24), files.shown(NEW), files.shown(99)) == (cpus("0,3-4"), cpus("0-1"), None)
    assert files.write(99, cpus("0")) is InterruptTrouble.GONE


@pytest.mark.parametrize(
    ("number", "trouble"),
    [
        (errno.EIO, InterruptTrouble.MANAGED),
        (errno.EPERM, InterruptTrouble.MANAGED),
        (errno.EINVAL, InterruptTrouble.REFUSED),
        (errno.ENOSPC, InterruptTrouble.REFUSED),
    ],
)
def test_noes_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, trouble: InterruptTrouble
) -> None:
    made_up_interrupts(tmp_path)

    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "write", refuse)
    found = IRQFiles(str(tmp_path)).write(24, cpus("0"))
    monkeypatch.undo()
    assert found is trouble


def test_files_that_cannot_be_opened_for_writing_are_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)

    def refuse(_path: str, _flags: int) -> int:
        raise OSError(errno.EROFS, "no")

    monkeypatch.setattr(os, "open", refuse)
    found = IRQFiles(str(tmp_path)).write(24, cpus("0"))
    monkeypatch.undo()
    assert found is InterruptTrouble.UNWRITABLE


def test_the_memory_survives_and_a_boot_ends_it(tmp_path: Path) -> None:
    assert InterruptJournal(tmp_path, "b1").read() == Memory()
    assert InterruptJournal(tmp_path, "b1").write(MEMORY)
    assert InterruptJournal(tmp_path, "b1").read() == MEMORY
    assert InterruptJournal(tmp_path, "b2").read() == Memory()


def test_nothing_to_remember_makes_no_file(tmp_path: Path) -> None:
    journal = InterruptJournal(tmp_path / "none", "b1")
    assert journal.write(journal.read())
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "Else", "version": 1, "boot": "b1", "interrupts": {}}', "\udcff", "\0"]
)
def test_a_damaged_memory_is_told_and_nothing_is_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / "interrupts.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    journal = InterruptJournal(tmp_path, "b1")
    assert journal.read() == Memory()
    assert journal.problem.startswith(f"{tmp_path / 'interrupts.json'}: cannot be used")


def written_by(
    root: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    noes: dict[int, InterruptTrouble],
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[InterruptWriter, list[tuple[int, InterruptTrouble | None]], IRQFiles]:
    """Return a writer to whom the kernel says these noes, with what it was told."""
    told: list[tuple[int, InterruptTrouble | None]] = []
    files = IRQFiles(str(root))
    writing = files.write
    monkeypatch.setattr(files, "write", lambda number, cpus: noes.get(number) or writing(number, cpus))

    def tell(step: Step, trouble: InterruptTrouble | None) -> None:
        told.append((step.interrupt.number, trouble))

    return InterruptWriter(files, InterruptJournal(folder, "b1"), tell, clock), told, files


ROOM = InterruptCPUs(cpus("0-7"), cpus("0"))
HELD = (Owner("web", cpus("2-3")),)


def test_what_the_kernel_refuses_is_not_tried_at_once_and_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_up_interrupts(tmp_path)
    noes = {24: InterruptTrouble.MANAGED, 25: InterruptTrouble.REFUSED}
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes)
    memory = Memory()
    for _ in range(3):
        _, memory = writer.carry_out(*steer(writer.known(files.read()), memory, HELD, ROOM))
    assert told == [(NEW, None), (24, InterruptTrouble.MANAGED), (25, InterruptTrouble.REFUSED)]
    assert set(memory.kept) == {NEW}
    other = (Owner("web", cpus("2-4")),)
    made.move(25, "2")
    writer.carry_out(*steer(writer.known(files.read()), memory, other, ROOM))
    assert (26, None) not in told[:3]
    assert [number for number, _ in told[3:]] == [NEW, 26]


def test_a_refusal_is_tried_again_in_minutes_and_a_managed_one_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_interrupts(tmp_path)
    noes, seconds = {24: InterruptTrouble.MANAGED, 25: InterruptTrouble.REFUSED}, [0.0]
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes, lambda: seconds[-1])
    memory = Memory()
    for moment in (0, RETRYING - 1, RETRYING, RETRYING + 1, 2 * RETRYING):
        seconds.append(moment)
        if moment > RETRYING:
            noes.clear()
        _, memory = writer.carry_out(*steer(writer.known(files.read()), memory, HELD, ROOM))
    assert told[2:] == [(25, InterruptTrouble.REFUSED), (25, InterruptTrouble.REFUSED), (25, None)]


def test_an_interrupt_whose_cpu_is_offline_is_given_back_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_up_interrupts(tmp_path)
    noes, seconds = dict[int, InterruptTrouble](), [0.0]
    writer, _, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes, lambda: seconds[-1])
    _, memory = writer.carry_out(*steer(files.read(), Memory(), HELD, ROOM))
    noes[25] = InterruptTrouble.REFUSED
    _, memory = writer.carry_out(*steer(files.read(), memory, (), ROOM))
    assert made.cpus(25) == "0"
    noes.clear()
    seconds.append(RETRYING)
    _, memory = writer.carry_out(*steer(files.read(), memory, (), ROOM))
    assert (made.cpus(25), memory.kept) == ("2", {})


def test_while_a_refusal_lasts_the_journal_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)
    noes = {25: InterruptTrouble.REFUSED}
    writer, _, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes)
    _, memory = writer.carry_out(*steer(writer.known(files.read()), Memory(), HELD, ROOM))
    writes: list[object] = []
    monkeypatch.setattr("mooring.agent.interrupts.files.write_together", lambda *what: writes.append(what))
    writer.carry_out(*steer(writer.known(files.read()), memory, HELD, ROOM))
    assert writes == []


def test_a_write_that_changes_nothing_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)
    seconds = [0.0]
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, {}, lambda: seconds[-1])
    monkeypatch.setattr(files, "write", lambda _number, _cpus: None)
    for moment in (0, 1, RETRYING):
        seconds.append(moment)
        writer.carry_out(*steer(writer.known(files.read()), Memory(), HELD, ROOM))
    assert told == [(number, InterruptTrouble.REFUSED) for number in (NEW, 24, 25)] * 2


def test_another_device_under_a_refused_number_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_up_interrupts(tmp_path)
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, {24: InterruptTrouble.MANAGED})
    writer.carry_out(*steer(writer.known(files.read()), Memory(), HELD, ROOM))
    made.add(24, "eth9")
    monkeypatch.undo()
    told.clear()
    writer.carry_out(*steer(writer.known(files.read()), Memory(), HELD, ROOM))
    assert (24, None) in told


def test_without_a_memory_on_the_disk_nothing_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_up_interrupts(tmp_path)
    (tmp_path / "state").write_text("no folder")
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, {})
    _, memory = writer.carry_out(*steer(files.read(), Memory(), HELD, ROOM))
    assert (made.cpus(24), made.cpus(25), told, memory) == ("0-7", "2", [], Memory())


def test_read_only_files_end_a_look_at_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)
    noes = dict.fromkeys((NEW, 24, 25, 26), InterruptTrouble.UNWRITABLE)
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes)
    _, memory = writer.carry_out(*steer(files.read(), Memory(), HELD, ROOM))
    assert told == [(NEW, InterruptTrouble.UNWRITABLE)]
    assert writer.unwritable
    assert memory == Memory()


@pytest.mark.skipif(not Path("/proc/irq/default_smp_affinity").is_file(), reason="this machine shows no interrupts")
def test_the_interrupts_of_this_machine_can_be_read() -> None:
    found, online = IRQFiles().read(), IRQFiles().online()
    assert online
    assert found[0].number == NEW
    for one in found:
        assert one.allowed
        assert one.effective is None or one.effective <= online
    steps, _ = steer(found, Memory(), (), InterruptCPUs(online, CPUSet()))
    assert not any(step.write for step in steps)


# A whole agent with the extension irq-affinity, on a made-up /proc/irq.


ON = "irqAffinity: on"
EXTENSION = "\n---\nkind: MooringConfiguration\nextensions: [irq-affinity]\n"


@pytest.fixture
def lines(node: Node) -> MadeUpInterrupts:
    return made_up_interrupts(node.folder / "machine")


def agent_with(node: Node, more: str, extension: str = EXTENSION) -> Agent:
    """Start an agent that looks after the made-up interrupts."""
    node.root = str(node.folder / "machine")
    return node.agent(f'{more}\npodResourcesSocket: ""{extension}')


def working(node: Node, more: str = ON, extension: str = EXTENSION) -> tuple[Agent, RuntimeSide, RuntimeContainer]:
    """Run such an agent with a container that has CPUs of its own, and let it look."""
    agent = agent_with(node, more, extension)
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    assert node.cpus(own) == "1-2"
    if extension:
        looked(agent)
    return agent, runtime, own


def looked(agent: Agent) -> Any:
    """Let the agent look, and return what it shows then."""
    before = agent.snapshot.interrupts
    agent.reconcile()
    until(lambda: agent.snapshot.interrupts is not before, "interrupts were looked at")
    return agent.snapshot.interrupts


def test_interrupts_follow_the_pinning_and_come_back_when_cpus_are_free(node: Node, lines: MadeUpInterrupts) -> None:
    agent, runtime, own = working(node)
    assert (lines.cpus(24), lines.cpus(25), lines.cpus(26), lines.beginning) == ("0,3-7", "0", "4-5", "000000f9")
    assert counted(agent, "interrupts_moved_total") == 3
    status = node.status["interrupts"]
    assert [(row["number"], row["original"], row["why"]) for row in status["moved"]] == [
        (-1, "0-7", "kept-away"),
        (24, "0-7", "kept-away"),
        (25, "2", "kept-away"),
    ]
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
    runtime.state_change(Event.REMOVE_POD_SANDBOX, pod("own"))
    looked(agent)
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("0-7", "2", "000000ff")
    assert counted(agent, "interrupts_restored_total") == 3
    assert node.status["interrupts"]["moved"] == []


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(node: Node, lines: MadeUpInterrupts) -> None:
    agent, _, _ = working(node, "")
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("0-7", "2", "ff")
    assert not (node.folder / "state" / "interrupts.json").exists()
    status = node.status["interrupts"]
    assert status["mode"] == "dry-run"
    assert [(row["number"], row["wanted"]) for row in status["pending"]] == [(-1, "0,3-7"), (24, "0,3-7"), (25, "0")]
    assert counted(agent, "interrupts_pending") == 3
    assert "3, dry run: 2 would move" in mooring("status", "--socket", node.folder / "status.sock").out
    assert "would become 0,3-7" in mooring("status", "--socket", node.folder / "status.sock", "-o", "wide").out


def test_what_somebody_else_has_moved_stays_his_and_the_document_is_as_its_schema_says(
    node: Node, lines: MadeUpInterrupts
) -> None:
    agent, _, own = working(node)
    lines.move(24, "1")
    lines.put("proc/90/comm", "irqbalance")
    agent.verify_all()
    agent.interrupts.check(agent.options)  # type: ignore[union-attr]
    document = node.status
    assert document["interrupts"]["moved"]
    assert [row["number"] for row in document["interrupts"]["leftAlone"]] == [24]
    assert complaints("AgentStatus", document) == []
    assert counted(agent, "interrupts_left_alone") == 1
    assert (lines.cpus(24), node.cpus(own)) == ("1", "1-2")


def test_without_the_extension_nobody_looks(node: Node, lines: MadeUpInterrupts) -> None:
    agent, _, _ = working(node, extension="")
    agent.reconcile()
    assert "interrupts" not in node.status
    node.agents.pop().close()
    assert lines.cpus(24) == "0-7"
    assert agent.snapshot.interrupts is UNSET


def test_an_agent_after_a_kill_knows_what_was_there_before(node: Node, lines: MadeUpInterrupts) -> None:
    """Nothing is written at the end of an agent: its end and its death are the same to interrupts."""
    working(node)
    node.agents.pop().close()
    assert lines.cpus(25) == "0"
    looked(agent_with(node, "irqAffinity: dry-run"))
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("0-7", "2", "000000ff")


def test_an_extension_that_was_switched_off_gives_back(node: Node, lines: MadeUpInterrupts) -> None:
    working(node)
    node.agents.pop().close()
    agent_with(node, ON, extension="").reconcile()
    until(lambda: lines.cpus(25) == "2" and lines.beginning == "000000ff", "interrupts are where they were")


def test_after_a_boot_the_memory_is_of_no_use(node: Node, lines: MadeUpInterrupts) -> None:
    working(node)
    node.agents.pop().close()
    lines.put("proc/sys/kernel/random/boot_id", "boot-2")
    agent_with(node, ON, extension="").reconcile()
    node.agents.pop().close()
    assert lines.cpus(25) == "0"


def test_who_leaves_gives_interrupts_back(node: Node, lines: MadeUpInterrupts, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, own = working(node)
    node.agents.pop().close()
    lines.move(24, "1")
    left, _ = leave(node, monkeypatch, own, root=node.root)
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("1", "2", "000000ff")
    assert left[1:] == ["Not restored: interrupt 24 (eth0-rx): another program has moved it; it is left alone"]


def annotated(node: Node, wish: str, more: str = "", extension: str = EXTENSION) -> Agent:
    """Run an agent with a pod that wants something."""
    agent = agent_with(node, ON + more, extension)
    runtime = node.listening.next()
    runtime.synchronize()
    sandbox = replace(pod("own"), annotations={ANNOTATION: wish})
    runtime.state_change(Event.RUN_POD_SANDBOX, sandbox)
    runtime.create(sandbox, whole("own", 2))
    return agent


@pytest.mark.parametrize("by", ["plugin", "driver"])
def test_a_pod_gets_the_interrupts_of_its_devices_with_a_pci_address_as_their_id_or_at_their_driver(
    node: Node, lines: MadeUpInterrupts, kubelet: PodResources, cluster: FaultInjector, by: str
) -> None:
    more, extension = f"\nkubeletPodResourcesSocket: {kubelet.path}", EXTENSION
    gpu = Device("GPU-1")
    if by == "plugin":
        kubelet.pods = {"own": {"own": {"nic": (Device("0000:03:00.1"),), "gpu": (gpu,)}}, "other": {"own": {}}}
    else:
        kubelet.pods = {"own": {"own": {"gpu": (gpu,)}}}
        kubelet.claims = {"own": {"own": (ClaimDevice("nics", DRIVER, NODE, "eth1"),)}}
        cluster.put(slice_object("one", eth1={"resource.kubernetes.io/pciBusID": {"string": "0000:03:00.1"}}))
        more += f"\nkubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}"
        extension = EXTENSION.replace("[", "[device-alignment, ")
    agent = annotated(node, "own", more, extension)
    lines.add(27, "else", "1-3")
    until(lambda: looked(agent) and lines.cpus(24) == "1-2", "the slice is known")
    assert (lines.cpus(24), lines.cpus(25), lines.cpus(27)) == ("1-2", "1-2", "3")


@pytest.mark.parametrize(
    ("wish", "codes", "cpus"),
    [("ignore", [], ("0-7", "2", "ff")), ("sometimes", ["MOOR-622"], ("0,3-7", "0", "000000f9"))],
    ids=["ignored", "no-wish"],
)
def test_wishes_that_name_no_device(
    node: Node, lines: MadeUpInterrupts, wish: str, codes: list[str], cpus: object
) -> None:
    agent = annotated(node, wish)
    assert [finding.code for finding in looked(agent).findings] == codes
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == cpus


def test_irqbalance_is_told_with_the_setting_that_fits(node: Node, lines: MadeUpInterrupts) -> None:
    lines.put("proc/90/comm", "irqbalance")
    agent, _, _ = working(node)
    (finding,) = agent.snapshot.interrupts.findings  # type: ignore[union-attr]
    assert finding.code == "MOOR-604"
    assert "IRQBALANCE_BANNED_CPULIST=1-2 " in finding.message


def test_a_kubelet_that_does_not_answer_is_reported(node: Node, lines: MadeUpInterrupts) -> None:
    agent = annotated(node, "own", more=f"\nkubeletPodResourcesSocket: {node.folder}/none.sock")
    assert [finding.code for finding in looked(agent).findings] == ["MOOR-619"]
    assert lines.cpus(25) == "0"
