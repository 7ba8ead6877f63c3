"""The kubelet's side of containerd: as much of the Container Runtime Interface as the tests need, over gRPC.

Messages are made from tables like those of the NRI. Source for numbers and names: k8s.io/cri-api v0.37.0, runtime/v1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from tests.e2e.containerd.images import BUSYBOX
from tests.service.message_tables import build_messages

_RUNTIME = "runtime.v1.RuntimeService"
_NODE_NAMESPACE, _POD_NAMESPACE, _CONTAINER_NAMESPACE = 2, 0, 1
STATES = ("CREATED", "RUNNING", "EXITED", "UNKNOWN")

MESSAGES: Mapping[str, type[Any]] = build_messages(
    "runtime.v1",
    {
        "PodSandboxMetadata": "1 name string\n2 uid string\n3 namespace string\n4 attempt uint32",
        "NamespaceOption": "1 network int32\n2 pid int32\n3 ipc int32",
        "LinuxSandboxSecurityContext": "1 namespace_options NamespaceOption",
        "LinuxContainerResources": """
            1 cpu_period int64
            2 cpu_quota int64
            3 cpu_shares int64
            4 memory_limit_in_bytes int64
            5 oom_score_adj int64
            6 cpuset_cpus string
            7 cpuset_mems string""",
        "LinuxPodSandboxConfig": """
            1 cgroup_parent string
            2 security_context LinuxSandboxSecurityContext
            4 overhead LinuxContainerResources
            5 resources LinuxContainerResources""",
        "PodSandboxConfig": """
            1 metadata PodSandboxMetadata
            2 hostname string
            3 log_directory string
            6 labels map string string
            7 annotations map string string
            8 linux LinuxPodSandboxConfig""",
        "ImageSpec": "1 image string\n18 user_specified_image string",
        "ContainerMetadata": "1 name string\n2 attempt uint32",
        "KeyValue": "1 key string\n2 value bytes",
        "Mount": "1 container_path string\n2 host_path string\n3 readonly bool",
        "Capability": "1 add_capabilities repeated string\n2 drop_capabilities repeated string",
        "Number": "1 value int64",
        "SecurityProfile": "1 profile_type int32\n2 localhost_ref string",
        "LinuxContainerSecurityContext": """
            1 capabilities Capability
            3 namespace_options NamespaceOption
            5 run_as_user Number
            7 readonly_rootfs bool
            11 no_new_privs bool
            13 masked_paths repeated string
            14 readonly_paths repeated string
            15 seccomp SecurityProfile""",
        "LinuxContainerConfig": "1 resources LinuxContainerResources\n2 security_context LinuxContainerSecurityContext",
        "ContainerConfig": """
            1 metadata ContainerMetadata
            2 image ImageSpec
            3 command repeated string
            4 args repeated string
            6 envs repeated KeyValue
            7 mounts repeated Mount
            9 labels map string string
            10 annotations map string string
            11 log_path string
            15 linux LinuxContainerConfig""",
        "Container": "1 id string\n2 pod_sandbox_id string\n3 metadata ContainerMetadata\n6 state int32",
        "PodSandbox": "1 id string\n2 metadata PodSandboxMetadata\n3 state int32",
        "ContainerResources": "1 linux LinuxContainerResources",
        "ContainerStatus": """
            1 id string
            2 metadata ContainerMetadata
            3 state int32
            7 exit_code int32
            10 reason string
            11 message string
            16 resources ContainerResources""",
        "Empty": "",
        "SandboxId": "1 pod_sandbox_id string",
        "ContainerId": "1 container_id string",
        "RunPodSandboxRequest": "1 config PodSandboxConfig\n2 runtime_handler string",
        "CreateContainerRequest": """
            1 pod_sandbox_id string
            2 config ContainerConfig
            3 sandbox_config PodSandboxConfig""",
        "StopContainerRequest": "1 container_id string\n2 timeout int64",
        "ListContainersResponse": "1 containers repeated Container",
        "ListPodSandboxResponse": "1 items repeated PodSandbox",
        "ContainerStatusRequest": "1 container_id string\n2 verbose bool",
        "ContainerStatusResponse": "1 status ContainerStatus\n2 info map string string",
        "UpdateContainerResourcesRequest": "1 container_id string\n2 linux LinuxContainerResources",
        "UpdatePodSandboxResourcesRequest": """
            1 pod_sandbox_id string
            2 overhead LinuxContainerResources
            3 resources LinuxContainerResources""",
        "ExecSyncRequest": "1 container_id string\n2 cmd repeated string\n3 timeout int64",
        "ExecSyncResponse": "1 stdout bytes\n2 stderr bytes\n3 exit_code int32",
        "VersionResponse": "2 runtime_name string\n3 runtime_version string",
    },
)

CRIError = grpc.RpcError
"""What a refused call raises; ``details()`` is its text."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod sandbox that runs."""

    id: str
    cgroup_parent: str
    config: Any = field(repr=False, default=None)


class Client:
    """Calls of the kubelet; thread-safe, since the channel is."""

    def __init__(self, socket: Path, *, timeout: float = 30.0, stops_first: bool = False) -> None:
        """Connect.

        Args:
            socket: of the runtime.
            timeout: seconds that a call may take.
            stops_first: whether containers are stopped before their sandbox: CRI-O waits for each as long as the call
                may take.
        """
        # CRI-O writes a log there for a container without a path of its own.
        self._logs = str(socket.parent)
        self._stops_first = stops_first
        self._timeout = timeout
        # One that was refused while containerd was away must not sit that out when it is back. The option "min" is the
        # time in which a connection must be made, and an emulated machine may need long for that.
        backoff = [(f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "max")]
        options = [("grpc.default_authority", "localhost"), *backoff]
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=options)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: str, request: Any, reply: str) -> Any:
        """Call a method of the RuntimeService and return its reply; raises :data:`CRIError`."""
        invoke: Any = self._channel.unary_unary(
            f"/{_RUNTIME}/{method}",
            request_serializer=lambda message: bytes(message.SerializeToString()),
            response_deserializer=MESSAGES[reply].FromString,
        )
        return invoke(request, timeout=self._timeout)

    def version(self) -> str:
        return str(self.call("Version", MESSAGES["Empty"](), "VersionResponse").runtime_version)

    def run_pod(
        self,
        name: str,
        uid: str,
        cgroup_parent: str,
        *,
        namespace: str = "default",
        resources: Mapping[str, int] | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        handler: str = "",
    ) -> Pod:
        """Run a sandbox in the host's network, labelled as the kubelet does; ``handler`` names another OCI runtime."""
        config = MESSAGES["PodSandboxConfig"](
            log_directory=self._logs,
            labels={
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": namespace,
                "io.kubernetes.pod.uid": uid,
                **(labels or {}),
            },
            annotations=dict(annotations or {}),
        )
        config.metadata.name, config.metadata.uid, config.metadata.namespace = name, uid, namespace
        config.linux.cgroup_parent = cgroup_parent
        config.linux.resources.CopyFrom(MESSAGES["LinuxContainerResources"](**(resources or {})))
        config.linux.security_context.namespace_options.CopyFrom(_namespaces())
        request = MESSAGES["RunPodSandboxRequest"](config=config, runtime_handler=handler)
        reply = self.call("RunPodSandbox", request, "SandboxId")
        return Pod(reply.pod_sandbox_id, cgroup_parent, config)

    def create(
        self,
        pod: Pod,
        name: str,
        *,
        resources: Mapping[str, int] | None = None,
        command: Sequence[str] = (),
        annotations: Mapping[str, str] | None = None,
        attempt: int = 0,
        mounts: Mapping[str, str] | None = None,
        amend: Callable[[Any], None] = lambda _config: None,
    ) -> str:
        """Create a container and return its id.

        ``resources`` are fields of LinuxContainerResources, ``mounts`` paths of the host by those in the container,
        where they can only be read. ``amend`` changes the ContainerConfig before it is sent.
        """
        config = MESSAGES["ContainerConfig"](
            command=list(command),
            labels={
                "io.kubernetes.container.name": name,
                "io.kubernetes.pod.name": pod.config.metadata.name,
                "io.kubernetes.pod.namespace": pod.config.metadata.namespace,
                "io.kubernetes.pod.uid": pod.config.metadata.uid,
            },
            annotations=dict(annotations or {}),
        )
        config.metadata.name, config.metadata.attempt = name, attempt
        config.image.image = config.image.user_specified_image = BUSYBOX
        for there, here in (mounts or {}).items():
            config.mounts.add(container_path=there, host_path=here, readonly=True)
        config.linux.resources.CopyFrom(MESSAGES["LinuxContainerResources"](**(resources or {})))
        config.linux.security_context.namespace_options.CopyFrom(_namespaces())
        amend(config)
        request = MESSAGES["CreateContainerRequest"](pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        return str(self.call("CreateContainer", request, "ContainerId").container_id)

    def start(self, container: str) -> None:
        self.call("StartContainer", MESSAGES["ContainerId"](container_id=container), "Empty")

    def run(self, pod: Pod, name: str, **settings: Any) -> str:
        """Create and start a container."""
        container = self.create(pod, name, **settings)
        self.start(container)
        return container

    def stop(self, container: str) -> None:
        self.call("StopContainer", MESSAGES["StopContainerRequest"](container_id=container), "Empty")

    def remove(self, container: str) -> None:
        self.call("RemoveContainer", MESSAGES["ContainerId"](container_id=container), "Empty")

    def remove_pod(self, pod_id: str) -> None:
        """Stop a sandbox with all that is in it, and remove it after its containers, as a kubelet does."""
        found = self.call("ListContainers", MESSAGES["Empty"](), "ListContainersResponse").containers
        if self._stops_first:
            for container in found:
                if container.pod_sandbox_id == pod_id:
                    self.stop(container.id)
        self.call("StopPodSandbox", MESSAGES["SandboxId"](pod_sandbox_id=pod_id), "Empty")
        for container in found:
            if container.pod_sandbox_id == pod_id:
                self.remove(container.id)
        self.call("RemovePodSandbox", MESSAGES["SandboxId"](pod_sandbox_id=pod_id), "Empty")

    def remove_pod_at_once(self, pod_id: str) -> None:
        """Remove a sandbox with its containers in it, as ``crictl rmp`` does.

        Locks containerd up when a plugin connects meanwhile: test_e2e_containerd_lockup.py.
        """
        self.call("StopPodSandbox", MESSAGES["SandboxId"](pod_sandbox_id=pod_id), "Empty")
        self.call("RemovePodSandbox", MESSAGES["SandboxId"](pod_sandbox_id=pod_id), "Empty")

    def update(self, container: str, **resources: Any) -> None:
        linux = MESSAGES["LinuxContainerResources"](**resources)
        request = MESSAGES["UpdateContainerResourcesRequest"](container_id=container, linux=linux)
        self.call("UpdateContainerResources", request, "Empty")

    def update_pod(self, pod: Pod, **resources: Any) -> None:
        linux = MESSAGES["LinuxContainerResources"](**resources)
        request = MESSAGES["UpdatePodSandboxResourcesRequest"](pod_sandbox_id=pod.id, resources=linux)
        self.call("UpdatePodSandboxResources", request, "Empty")

    def execute(self, container: str, *command: str) -> str:
        """Run a command in a container and return what it printed."""
        request = MESSAGES["ExecSyncRequest"](container_id=container, cmd=list(command), timeout=10)
        return bytes(self.call("ExecSync", request, "ExecSyncResponse").stdout).decode()

    def containers(self) -> dict[str, str]:
        """Return the states of all containers by their ids."""
        found = self.call("ListContainers", MESSAGES["Empty"](), "ListContainersResponse").containers
        return {container.id: STATES[container.state] for container in found}

    def pods(self) -> list[str]:
        found = self.call("ListPodSandbox", MESSAGES["Empty"](), "ListPodSandboxResponse").items
        return [pod.id for pod in found]

    def recorded_cpus(self, container: str) -> str:
        """Return the CPU list of the specification that the runtime has on record; a Synchronize tells the same."""
        request = MESSAGES["ContainerStatusRequest"](container_id=container, verbose=True)
        info = json.loads(self.call("ContainerStatus", request, "ContainerStatusResponse").info["info"])
        return str(info["runtimeSpec"]["linux"]["resources"]["cpu"].get("cpus", ""))

    def status(self, container: str) -> Any:
        request = MESSAGES["ContainerStatusRequest"](container_id=container)
        return self.call("ContainerStatus", request, "ContainerStatusResponse").status


def _namespaces() -> Any:
    return MESSAGES["NamespaceOption"](network=_NODE_NAMESPACE, pid=_CONTAINER_NAMESPACE, ipc=_POD_NAMESPACE)
