"""The image of ``make image`` on a real containerd, with the rights of the manifests: ``make e2e-image``."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.agent_process import pod_on, whole_cpus
from tests.e2e.containerd.cri import MESSAGES
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.image.archive import ROOT, Image, read_image
from tests.e2e.image.containers import output_of, pod_template, printed, start
from tests.patience import until

from mooring.engine.core.errors import InputError
from mooring.service.agent_status import ask_status

_CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
---
apiVersion: mooring/v1alpha1
kind: AgentConfiguration
kubeletConfig: /var/lib/kubelet/config.yaml
metricsAddress: ""
podResourcesSocket: ""
"""
_KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: none\n"
_MACHINE = "sockets=2 numa=2 cores=8 threads=2 memory=64Gi"


def here(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", "mooring", *words], capture_output=True, text=True, check=False).stdout


def build(folder: Path, *words: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "image" / "build.py"), "--folder", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def test_without_root_and_on_a_read_only_root_the_image_says_its_version(node: Runtime, image: Image) -> None:
    assert output_of(node, image.name, "--version") == (0, here("--version"))


def test_a_plan_in_the_image_is_the_plan_of_this_tree(node: Runtime, image: Image) -> None:
    mounts = {"/examples": (ROOT / "examples", False)}
    words = ("plan", "--machine", _MACHINE, "-o", "json")
    code, said = output_of(
        node, image.name, *words, "--config", "/examples/kubelet.yaml", "-f", "/examples/pods.yaml", mounts=mounts
    )
    examples = ROOT / "examples"
    own = here(*words, "--config", str(examples / "kubelet.yaml"), "-f", str(examples / "pods.yaml"))
    assert code in {0, 1}, said
    assert json.loads(said)["pods"] == json.loads(own)["pods"]


def test_the_publisher_needs_no_root_where_it_may_read_the_kubelets_files(
    node: Runtime, image: Image, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    state = {"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}
    (tmp_path / "cpu_manager_state").write_text(json.dumps(state, separators=(",", ":")), encoding="utf-8")
    (tmp_path / "config.yaml").write_text(_KUBELET, encoding="utf-8")
    words = ["publish", "--dry-run", "-o", "json", "--node-name", "n1", "--machine", _MACHINE]
    words += ["--state", "/host/kubelet", "--config", "/host/kubelet/config.yaml"]
    mounts = {"/host/kubelet": (tmp_path, False)}
    code, said = output_of(node, image.name, *words, mounts=mounts)
    assert (code, "NodeState" in said) == (0, True), said


@pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)
def test_the_agent_of_the_image_pins_a_container_with_the_rights_of_its_manifest(node: Runtime, image: Image) -> None:
    spec = pod_template("agent/agent.yaml")
    (agent,) = spec["containers"]
    names = ("configuration", "access", "authority", "tokens", "state-of-agent", "run-of-agent")
    folders = {name: node.folder / name for name in names}
    for folder in folders.values():
        folder.mkdir()
    (folders["configuration"] / "agent.yaml").write_text(_CONFIGURATION, encoding="utf-8")
    (node.folder / "kubelet.yaml").write_text(_KUBELET, encoding="utf-8")
    volumes: dict[str, Path] = {
        **folders,
        "state": folders["state-of-agent"],
        "run": folders["run-of-agent"],
        "kubelet": node.folder / "kubelet.yaml",
        "runtime": node.folder,
        "cgroups": Path("/sys/fs/cgroup"),
    }
    mounts = {
        mount["mountPath"]: (volumes[mount["name"]], not mount.get("readOnly", False))
        for mount in agent["volumeMounts"]
    }
    context = agent["securityContext"]
    container, log = start(node, image.name, agent["args"], context, mounts=mounts, host_pid=spec["hostPID"])
    socket = str(volumes["run"] / "status.sock")

    def status() -> dict[str, Any]:
        with contextlib.suppress(InputError):
            return ask_status(socket)
        return {"ready": False}

    def ended() -> bool:
        return node.cri.containers()[container] == "EXITED"

    until(lambda: ended() or status()["ready"], "the agent is ready", seconds=60)
    assert not ended(), printed(log)[-2000:]
    shared_pod, own_pod = pod_on(node, "shared"), pod_on(node, "own")
    shared = node.cri.run(shared_pod, "a")
    own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
    assert (node.cpus_of(own_pod, own), node.cpus_of(shared_pod, shared)) == ("1", "0")
    assert node.cri.execute(container, "mooring", "status", "--socket", "/run/mooring/status.sock", "-o", "json")
    grace = MESSAGES["StopContainerRequest"](container_id=container, timeout=spec["terminationGracePeriodSeconds"])
    node.cri.call("StopContainer", grace, "Empty")
    assert node.cri.status(container).exit_code == 0, printed(log)[-2000:]
    assert '"level": "error"' not in printed(log)


def test_the_unit_of_the_chart_heals_a_torn_file_by_the_image(node: Runtime, image: Image, tmp_path: Path) -> None:
    kubelet, noted, programs = (tmp_path / name for name in ("kubelet", "noted", "bin"))
    for folder in (kubelet, noted, programs):
        folder.mkdir()
    (kubelet / "config.yaml").write_text(_CONFIGURATION.partition("---")[0], encoding="utf-8")
    state = kubelet / "cpu_manager_state"
    state.write_text('{"policyName":"static"', encoding="utf-8")
    (programs / "ctr").write_text(
        f'#!/bin/sh\nexec nsenter -t {node.holder.pid} -m {node.parts.ctr} -a {node.cri_socket} "$@"\n',
        encoding="utf-8",
    )
    (programs / "kubelet").write_text("#!/bin/sh\necho Kubernetes v1.37.1\n", encoding="utf-8")
    for program in programs.iterdir():
        program.chmod(0o755)
    unit = (ROOT / "charts" / "mooring" / "files" / "mooring-heal.service").read_text("utf-8").replace("\\\n", " ")
    (command,) = (line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart="))
    for name, folder in (("src=/var/lib/kubelet", kubelet), ("src=/var/lib/mooring", noted)):
        assert name in command
        command = command.replace(name, f"src={folder}")
    root = tmp_path / "root"
    for name in ("proc", "sys", "var/lib/kubelet", "var/lib/mooring"):
        (root / name).mkdir(parents=True)
    of_kernel = " ".join(f"--mount type=bind,src=/{name},dst=/host/{name},options=rbind:ro" for name in ("proc", "sys"))
    command = command.replace(
        "--mount type=bind,src=/,dst=/host,options=rbind:ro",
        f"--mount type=bind,src={root},dst=/host,options=rbind:ro {of_kernel}",
    )
    command = command.replace(" IMAGE ", f" {image.name} ").replace("$$", "$")
    path = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(shlex.split(command), env=path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(state.read_text("utf-8"))["policyName"] == "static"
    assert "MOOR-301" in (noted / "heal.json").read_text("utf-8")
    again = subprocess.run(shlex.split(command), env=path, capture_output=True, text=True, check=False, timeout=120)
    assert (again.returncode, "nothing is written" in again.stdout) == (0, True), again.stdout + again.stderr


def test_the_image_is_small_and_belongs_to_no_user(image: Image) -> None:
    assert sum(one.size for one in image.files()) < 120e6
    settings = image.config["config"]
    assert (settings["User"], settings["Entrypoint"]) == ("65532:65532", ["mooring"])
    labels = {name.removeprefix("org.opencontainers.image.") for name in settings["Labels"]}
    assert {"title", "description", "licenses", "version", "revision", "created", "base.name"} <= labels
    assert not [one.name for one in image.files() if one.mode & 0o6000 or one.ischr() or one.isblk()]


def test_the_bill_of_materials_lists_all_that_was_installed(image: Image) -> None:
    listed = json.loads((image.path.parent / "mooring.cdx.json").read_text(encoding="utf-8"))
    assert listed["metadata"]["component"]["hashes"][0]["content"] == image.digest.removeprefix("sha256:")
    names = {one["name"].lower().replace("-", "_").replace(".", "_") for one in listed["components"]}
    paths = [Path(one.name) for one in image.files()]
    packages = {path.parent.name.split("-")[0].lower() for path in paths if path.parts[-1] == "METADATA"}
    debian = {path.parent.name for path in paths if path.name == "copyright" and path.parent.parent.name == "doc"}
    assert len(packages) > 20
    assert packages <= {name.replace(".", "_") for name in names}
    assert {name.replace("-", "_").replace(".", "_") for name in debian} <= names


def test_the_provenance_names_the_image_and_the_digest_of_each_input(image: Image) -> None:
    said = json.loads((image.path.parent / "mooring.provenance.json").read_text(encoding="utf-8"))
    assert said["subject"] == [{"name": image.name, "digest": {"sha256": image.digest.removeprefix("sha256:")}}]
    inputs = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert len(inputs) > 20
    assert all(one["digest"] for one in inputs)


def test_two_builds_give_the_same_bytes(image: Image, tmp_path: Path) -> None:
    build(tmp_path)
    assert (tmp_path / "mooring.tar").read_bytes() == image.path.read_bytes()
    assert (tmp_path / "mooring.cdx.json").read_bytes() == (image.path.parent / "mooring.cdx.json").read_bytes()


@pytest.mark.skipif(os.geteuid() != 0 or os.uname().machine != "x86_64", reason="chroot needs root; built on x86-64")
@pytest.mark.usefixtures("image")  # where one was built
def test_an_image_for_arm64_is_built_here_and_plans_under_an_emulator(tmp_path: Path) -> None:
    fetch = f"cd {tmp_path} && apt-get download -qq qemu-user-static && dpkg-deb -x qemu-user-static_*.deb ."
    fetched = subprocess.run(["/bin/sh", "-c", fetch], check=False, capture_output=True, text=True, timeout=300)
    if fetched.returncode:
        pytest.skip(f"e2e image: no emulator of arm64: {fetched.stderr}")
    build(tmp_path / "built", "--arch", "arm64")
    made, root = read_image(tmp_path / "built" / "mooring.tar"), tmp_path / "root"
    assert (made.config["architecture"], made.config["config"]["Entrypoint"]) == ("arm64", ["mooring"])
    made.unpack(root)
    shutil.copy(tmp_path / "usr" / "bin" / "qemu-aarch64-static", root)
    shutil.copytree(ROOT / "examples", root / "examples", ignore=lambda *_: ["node"])
    program = root / "opt" / "mooring" / "bin" / "mooring"
    assert program.read_text("utf-8").splitlines()[0] == "#!/opt/mooring/bin/python3"
    words = ["plan", "--machine", _MACHINE, "-o", "json"]
    emulated = ["/qemu-aarch64-static", "/opt/mooring/bin/python3", "/opt/mooring/bin/mooring", *words]
    emulated += ["--config", "/examples/kubelet.yaml", "-f", "/examples/pods.yaml"]
    done = subprocess.run(["/usr/sbin/chroot", str(root), *emulated], capture_output=True, check=False, timeout=300)
    own = here(*words, "--config", f"{ROOT}/examples/kubelet.yaml", "-f", f"{ROOT}/examples/pods.yaml")
    assert json.loads(done.stdout)["pods"] == json.loads(own)["pods"]
