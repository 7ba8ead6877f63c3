"""Pods that are computed from fields of another kind: KubeVirt's launchers of virtual machines, and Spark's.

Sources of KubeVirt: KubeVirt v1 API; ``virt-controller`` (``services/template.go``, ``services/renderresources.go``,
``services/serialconsolelog.go``, ``services/virtiofs.go``, ``hypervisor/kvm/launcherhypervisorresources.go``,
``container-disk/container-disk.go``) and ``virt-api`` (defaults of a VirtualMachineInstance) of its main branch in
2026; user guide, "Dedicated CPU resources". What a cluster sets otherwise is not known here: the ratios of CPU
allocation (10), memory overcommitment (100 %) and additional overhead (1), resources of support containers, and
namespaces with quotas. The devices of KubeVirt itself (``devices.kubevirt.io/kvm``) are left out: every node has
plenty, of no NUMA node. So are those that a network attachment requests.

Sources of Spark: Spark operator of Kubeflow, v1beta2 (docs/api-docs.md; defaults.go, submission.go); Spark 3.5,
running-on-kubernetes.md, configuration.md (BasicDriverFeatureStep, BasicExecutorFeatureStep).
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.quantity import Quantity
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import Document, count_at, flag_at, list_at, mapping_at, part_at, text_at, within
from mooring.inputs.decoding.quantities import resource_list
from mooring.inputs.pods.claims import objects_of
from mooring.lazy import dataclass, replace

KUBEVIRT = "kubevirt.io"
"""Its API group, or the end of it."""
TYPE_FIELD = "spec.instancetype"
"""Field of a virtual machine, not of the template of its instances."""
_CPU_ALLOCATION_RATIO = 10
_EVEN = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
_SIDECARS = "hooks.kubevirt.io/hookSidecars"
_OF_TYPE = {"dedicatedCPUPlacement": "dedicatedCpuPlacement", "guest": "sockets"}
"""Field of an instance type's CPUs -> field of a domain's; KubeVirt's default gives each guest CPU a socket."""


_INSTANCE_TYPES = frozenset({"VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"})


def with_instance_types(documents: Sequence[Document]) -> list[Document]:
    """Return documents in which virtual machines have what the instance types beside them say.

    Source: KubeVirt, instancetype.kubevirt.io/v1beta1 (VirtualMachineInstancetypeSpec).
    """
    types = {
        (str(one.get("kind")), str(part_at(one, "metadata").get("name"))): one.get("spec")
        for document in documents
        for _, one in objects_of(document.content, _INSTANCE_TYPES)
        if str(one.get("apiVersion")).startswith("instancetype.kubevirt.io/")
    }

    def expanded(content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        if isinstance(content.get("items"), list):
            return {**content, "items": [expanded(item) for item in content["items"]]}
        spec = part_at(content, "spec")
        template = part_at(spec, "template")
        inner = part_at(template, "spec")
        named, domain = part_at(spec, "instancetype"), part_at(inner, "domain")
        found = types.get((str(named.get("kind", "VirtualMachineClusterInstancetype")), str(named.get("name"))))
        if not named or not isinstance(found, dict) or "domain" not in inner:
            return content
        devices = {key: found[key] for key in ("gpus", "hostDevices") if key in found}
        made = {
            **domain,
            "cpu": {_OF_TYPE.get(name, name): value for name, value in part_at(found, "cpu").items()},
            "memory": part_at(found, "memory"),
            **({"devices": {**part_at(domain, "devices"), **devices}} if devices else {}),
        }
        rest = {key: value for key, value in spec.items() if key != "instancetype"}
        return {**content, "spec": {**rest, "template": {**template, "spec": {**inner, "domain": made}}}}

    return [replace(one, content=expanded(one.content)) for one in documents] if types else list(documents)


def is_virtual_machine(content: Mapping[str, Any], _path: str = "") -> bool:
    """Tell whether a mapping is a VirtualMachineInstance or a template of one: its spec has a domain."""
    spec = content.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("domain"), dict)


def launcher_pod(owner: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the v1 Pod that runs a virtual machine; KubeVirt ends its name with random characters.

    Args:
        owner: the object that is named.
        template: the VirtualMachineInstance, or the template of one.

    Raises:
        InputError: what the machine needs is not there or cannot be understood.
    """
    # An instance type holds CPUs and memory in another object.
    kind = mapping_at(mapping_at(owner, "spec"), "instancetype")
    if kind:
        name = str(mapping_at(owner, "metadata").get("name", ""))
        problem = f"CPUs and memory are in the instance type {kind.get('name', '')}"
        remedy = f"give the instance, which has them: {shlex.join(['kubectl', 'get', 'vmi', name, '-o', 'yaml'])}"
        raise InputError(problem, field=TYPE_FIELD, remedy=remedy)
    metadata, spec = mapping_at(template, "metadata"), mapping_at(template, "spec")
    name = text_at(mapping_at(owner, "metadata"), "name") or text_at(mapping_at(owner, "metadata"), "generateName")
    annotations = mapping_at(metadata, "annotations")
    with within("spec"):
        machine = _Machine.of(spec, annotations)
    containers = [{"name": "compute", "resources": machine.resources()}, *machine.support_containers(annotations)]
    return {
        "metadata": {
            "name": f"virt-launcher-{name}",
            "namespace": mapping_at(owner, "metadata").get("namespace"),
            "annotations": annotations,
        },
        "spec": {
            "containers": containers,
            "initContainers": list(machine.init_containers()),
            **{key: spec[key] for key in ("priorityClassName", "nodeName", "resourceClaims") if key in spec},
        },
    }


@dataclass(frozen=True, slots=True)
class _Machine:
    """What a VirtualMachineInstance asks for, with KubeVirt's defaults."""

    spec: Mapping[str, Any]
    domain: Mapping[str, Any]
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    cpus: int
    """CPUs of the guest."""
    guest: int
    """Bytes of the guest."""
    page: str
    """Size of its huge pages, such as ``1Gi``; empty for none."""
    is_dedicated: bool
    emulator_cpus: int
    """CPUs that its emulator thread has to itself."""
    io_cpus: int
    """Threads of a supplemental pool for input and output."""

    @staticmethod
    def of(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> _Machine:
        """Return what the spec of an instance asks for.

        Raises:
            InputError: an amount is missing or cannot be understood.
        """
        domain = mapping_at(spec, "domain")
        with within("domain"):
            resources, cpu = mapping_at(domain, "resources"), mapping_at(domain, "cpu")
            limits = resource_list(resources, "limits")
            requests = {**limits, **resource_list(resources, "requests")}
            # Return the product of cores, sockets and threads, else the CPUs of limits or requests, else one
            counts = [count for field in ("cores", "sockets", "threads") if (count := count_at(cpu, field, 0)) > 0]
            amount = limits.get("cpu") or requests.get("cpu")
            cpus = math.prod(counts) if counts or amount is None else max(amount.units, 1)
            memory = mapping_at(domain, "memory")
            pages = mapping_at(memory, "hugepages")
            page = text_at(pages, "pageSize")
            told, of_page = _amount(memory, "guest", "memory"), _amount(pages, "pageSize", "memory.hugepages")
            sizes = told, requests.get("memory"), of_page
            guest = next((size.units for size in sizes if size is not None and size.units > 0), 0)
            if not guest:
                raise InputError(
                    "must not be empty", field="memory.guest", remedy="write how much memory the guest has"
                )
            requests.setdefault("memory", Quantity.of_bytes(guest))
            dedicated = flag_at(cpu, "dedicatedCpuPlacement", default=False)
            isolated = dedicated and flag_at(cpu, "isolateEmulatorThread", default=False)
            threads = count_at(mapping_at(domain, "ioThreads"), "supplementalPoolThreadCount", 0)
            even = isolated and _EVEN in annotations and (cpus + threads) % 2 == 0
            emulator = int(isolated) + int(even)
            return _Machine(spec, domain, requests, limits, cpus, guest, page, dedicated, emulator, threads)

    @property
    def is_guaranteed(self) -> bool:
        """Whether KubeVirt makes the pod Guaranteed: with dedicated CPUs, or because requests are limits."""
        equal = all(name in self.limits and self.requests.get(name) == self.limits[name] for name in ("cpu", "memory"))
        return self.is_dedicated or equal

    @property
    def devices(self) -> Mapping[str, Any]:
        """The devices of the domain."""
        return mapping_at(self.domain, "devices")

    @property
    def volumes(self) -> list[Mapping[str, Any]]:
        """The volumes that are mappings."""
        return [one for one in list_at(self.spec, "volumes") if isinstance(one, dict)]

    def resources(self) -> dict[str, dict[str, str]]:
        """Return the resources of the container that runs the guest."""
        requests = {name: amount for name, amount in self.requests.items() if name != "ephemeral-storage"}
        limits = {name: amount for name, amount in self.limits.items() if name != "ephemeral-storage"}
        threads = self.cpus + self.io_cpus
        if self.is_dedicated:
            requests["cpu"] = limits["cpu"] = Quantity.of_milli((threads + self.emulator_cpus) * 1000)
            limits["memory"] = requests["memory"]
        else:
            requests.setdefault("cpu", Quantity.of_milli(threads * 1000 // _CPU_ALLOCATION_RATIO))
        self._add_overhead(requests, limits)
        passed = (one for field in ("gpus", "hostDevices") for one in list_at(self.devices, field))
        plain = [one.get("deviceName") for one in passed if isinstance(one, dict) and not one.get("claimName")]
        for resource, count in Counter(name for name in plain if isinstance(name, str) and name).items():
            requests[resource] = limits[resource] = Quantity.parse(str(count))
        amounts = {"requests": requests, "limits": limits}
        return {part: {name: str(amount) for name, amount in given.items()} for part, given in amounts.items()}

    def _add_overhead(self, requests: dict[str, Quantity], limits: dict[str, Quantity]) -> None:
        """Add the overhead; with huge pages it is all the memory that is not of them."""
        # What KubeVirt adds in MiB for its processes and devices, and for page tables.
        devices, security = self.devices, mapping_at(self.domain, "launchSecurity")
        interfaces = [one for one in list_at(devices, "interfaces") if isinstance(one, dict)]
        passed = devices.get("gpus") or devices.get("hostDevices") or any("sriov" in one for one in interfaces)
        tpm = devices.get("tpm")
        probes = sum("exec" in mapping_at(self.spec, field) for field in ("livenessProbe", "readinessProbe"))
        additions = (
            (25 + 100 + 25 + 40 + 30, True),  # virt-launcher-monitor, virt-launcher, virtlogd, virtqemud, qemu
            (8 * max(self.cpus, 1) + 8, True),  # threads of CPUs, and one for input and output
            (32, flag_at(devices, "autoattachGraphicsDevice", default=True)),
            (128, text_at(self.spec, "architecture") == "arm64"),  # firmware
            (1024, passed),
            (1, any("downwardMetrics" in one for one in self.volumes)),
            (256, "sev" in security or "snp" in security),
            (53, isinstance(tpm, dict) and tpm.get("enabled") is not False),
            (100, self.is_guaranteed),
            (100 + 10 * probes, probes),
        )
        page_tables = -(-self.requests["memory"].units // 1000) * 1000 // 512
        overhead = page_tables + sum(amount for amount, is_needed in additions if is_needed) * 1024**2
        if self.page:
            pool = f"hugepages-{self.page}"
            pages = min(self.guest, requests["memory"].units)
            requests[pool] = limits[pool] = Quantity.of_bytes(pages)
            for amounts in (requests, limits):
                if "memory" in amounts:
                    amounts["memory"] = Quantity.of_bytes(max(amounts["memory"].units - self.guest, 0) + overhead)
            return
        if not flag_at(mapping_at(self.domain, "resources"), "overcommitGuestOverhead", default=False):
            requests["memory"] = Quantity.of_bytes(requests["memory"].units + overhead)
        if "memory" in limits:
            limits["memory"] = Quantity.of_bytes(limits["memory"].units + overhead)

    def support_containers(self, annotations: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the containers beside the guest's: disks in images, shared file systems, hooks."""
        for volume in self.volumes:
            if "containerDisk" in volume:
                yield self._container(f"volume{volume.get('name')}", ("10m", "100m"), ("1M", "40M"), cpu="10m")
        shared = {str(one.get("name")) for one in list_at(self.devices, "filesystems") if isinstance(one, dict)}
        for volume in self.volumes:
            if str(volume.get("name")) in shared:
                yield self._container(f"virtiofs-{volume.get('name')}", ("10m", "100m"), ("1M", "80M"))
        text = annotations.get(_SIDECARS)
        try:
            hooks = json.loads(text) if isinstance(text, str) else []
        except ValueError:
            hooks = []
        sidecar = {"cpu": "200m", "memory": "64M"} if self.is_guaranteed else {}
        for index in range(len(hooks) if isinstance(hooks, list) else 0):
            yield {"name": f"hook-sidecar-{index}", "resources": {"requests": sidecar, "limits": sidecar}}

    def init_containers(self) -> Iterator[dict[str, Any]]:
        """Yield the init containers: the sidecar that prints the serial console, and those that prepare disks."""
        devices = self.devices
        logged = flag_at(devices, "logSerialConsole", default=True)
        if logged and flag_at(devices, "autoattachSerialConsole", default=True):
            console = self._container("guest-console-log", ("5m", "15m"), ("35M", "60M"))
            yield {**console, "restartPolicy": "Always"}
        disks = [f"volume{volume.get('name')}-init" for volume in self.volumes if "containerDisk" in volume]
        for name in ["container-disk-binary", *disks] if disks else []:
            yield self._container(name, ("10m", "100m"), ("1M", "40M"), cpu="10m")

    def _container(self, name: str, cpus: tuple[str, str], memory: tuple[str, str], cpu: str = "") -> dict[str, Any]:
        """Return a support container: its limits are its requests in a Guaranteed pod, where ``cpu`` is its limit."""
        limits = {"cpu": cpus[1], "memory": memory[1]}
        requests = {"cpu": cpus[0], "memory": memory[0]}
        if self.is_guaranteed:
            limits = requests = {**limits, "cpu": cpu or cpus[1]}
        return {"name": name, "resources": {"requests": requests, "limits": limits}}


def _amount(holder: Mapping[str, Any], field: str, place: str) -> Quantity | None:
    if holder.get(field) is None:
        return None
    try:
        return resource_list({"of": {field: holder[field]}}, "of")[field]
    except InputError as error:
        raise InputError(error.problem, field=f"{place}.{field}", remedy=error.remedy) from None


_SIZE: Final = re.compile(r"(\d+)(b|[kmgtp]b?|)", re.IGNORECASE)
_UNITS: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def spark_pods(spec: Mapping[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield driver and executors of a SparkApplication's spec, each as role, number of pods and template.

    Fields of the operator win over ``sparkConf``. Requests are cores, or ``coreRequest``; a CPU limit is set for
    ``coreLimit`` alone. Memory is requested and limited: the heap and an overhead of a tenth (Python and R: four
    tenths), at least 384 MiB, or ``memoryOverhead``.

    Raises:
        InputError: a size or a number cannot be understood.
    """
    conf = {str(name): str(value) for name, value in mapping_at(spec, "sparkConf").items()}
    is_script = text_at(spec, "type") in ("Python", "R")
    factor = conf.get("spark.kubernetes.memoryOverheadFactor", "0.4" if is_script else "0.1")
    factor = spec.get("memoryOverheadFactor", factor)
    for role in ("driver", "executor"):
        given = mapping_at(spec, role)
        told = {**_below(conf, f"spark.{role}."), **given}
        heap = _mebibytes(told.get("memory", "1g"), f"{role}.memory")
        extra = told.get("memoryOverhead")
        if extra is None:
            least = _mebibytes(conf.get(f"spark.{role}.minMemoryOverhead", "384m"), "sparkConf")
            share = str(conf.get(f"spark.{role}.memoryOverheadFactor", factor))
            if not re.fullmatch(r"\d*\.?\d+", share):
                raise InputError(f"{share!r:.40} is no number", field="memoryOverheadFactor", remedy="write it as 0.1")
            extra = max(int(float(share) * heap), least)
        memory = heap + _mebibytes(extra, f"{role}.memoryOverhead")
        if role == "executor" and is_script:
            memory += _mebibytes(conf.get("spark.executor.pyspark.memory", "0"), "sparkConf")
        if role == "executor" and conf.get("spark.memory.offHeap.enabled") == "true":
            size = conf.get("spark.memory.offHeap.size", "0")
            memory += _mebibytes(f"{size}b" if size.isdecimal() else size, "sparkConf")
        template, gpu = mapping_at(given, "template"), mapping_at(given, "gpu")
        [base, *others] = list_at(mapping_at(template, "spec"), "containers") or [{}]
        resources = mapping_at(reading.as_mapping(base), "resources")
        in_cluster = _below(conf, f"spark.kubernetes.{role}.")
        cores = given.get("coreRequest", in_cluster.get("request.cores", told.get("cores", 1)))
        requests = {**mapping_at(resources, "requests"), "cpu": str(cores), "memory": f"{memory}Mi"}
        limits = {**mapping_at(resources, "limits"), "memory": f"{memory}Mi"}
        if (limit := given.get("coreLimit", in_cluster.get("limit.cores"))) is not None:
            limits["cpu"] = str(limit)
        if "memoryLimit" in given:
            limits["memory"] = f"{_mebibytes(given['memoryLimit'], f'{role}.memoryLimit')}Mi"
        if gpu:
            limits[text_at(gpu, "name")] = str(gpu.get("quantity"))
        container: dict[str, Any] = {
            "name": f"spark-kubernetes-{role}",
            **base,
            "resources": {"requests": requests, "limits": limits},
        }
        containers = [container, *others, *list_at(given, "sidecars")]
        metadata = mapping_at(template, "metadata") | {
            key: given[key] for key in ("labels", "annotations") if key in given
        }
        pods = 1 if role == "driver" else _executors(spec, conf, told.get("instances"))
        inner = {"containers": containers, "initContainers": list_at(given, "initContainers")}
        yield role, pods, {"metadata": metadata, "spec": mapping_at(template, "spec") | inner}


def _executors(spec: Mapping[str, Any], conf: Mapping[str, str], instances: Any) -> int:
    """Return the executors at the start."""
    told = {**_below(conf, "spark.dynamicAllocation."), **mapping_at(spec, "dynamicAllocation")}
    is_dynamic = str(told.get("enabled")).lower() == "true"
    counts: dict[str, Any] = {name: told.get(name) for name in ("minExecutors", "initialExecutors") if is_dynamic}
    counts["instances"] = instances
    whole = {name: int(text) if str(text).isdecimal() else text for name, text in counts.items()}
    return max(count_at(whole, name, 0 if is_dynamic else 1, least=0) for name in whole)


def _below(conf: Mapping[str, str], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): text for name, text in conf.items() if name.startswith(prefix)}


def _mebibytes(size: Any, field: str) -> int:
    """Return a size of Spark in MiB; a bare number is one already.

    >>> _mebibytes("2g", "driver.memory"), _mebibytes(512, "driver.memory")
    (2048, 512)
    """
    match = _SIZE.fullmatch(str(size).strip())
    if match is None:
        remedy = "write it as Spark reads it, such as 4g or 512m"
        raise InputError(f"{size!r:.40} is no size of Spark", field=field, remedy=remedy)
    return int(match[1]) << _UNITS[match[2][:1].lower() or "m"] >> 20
