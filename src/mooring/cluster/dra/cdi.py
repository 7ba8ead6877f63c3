"""What is allocated to a claim on this node, prepared claims, and their files of the Container Device Interface.

The files are the driver's memory too: what a claim was given is in its file, so that a driver that was restarted, or an
agent that lost its state, finds it there.

Source: CNCF container-device-interface, specification 0.6.0.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from mooring.cluster.dra.devices import CAPACITY
from mooring.cluster.dra.objects import PreparedShare
from mooring.documents.plan import learn
from mooring.engine.checkpoint.store import write_atomically, write_together
from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.quantity import Quantity

VERSION: Final = "0.6.0"
METADATA: Final = "/var/run/kubernetes.io/dra-device-attributes"
"""Where a container finds the attributes of its devices (KEP-5304)."""
_METADATA_VERSIONS: Final = ("v1beta1", "v1alpha1")
INSIDE: Final = "/run/mooring-claims"
"""Where a container finds the files of its claims: a folder for each request, with the file ``cpuset``."""
FILE: Final = "cpuset"
_READABLE: Final = 0o644
_OPEN: Final = 0o755
CLASS: Final = "claim"
ANNOTATION: Final = "mooring.dev/prepared"


class AllocationResult(msgspec.Struct, frozen=True):
    """One device that a request of a claim got."""

    request: str
    device: str
    count: int
    """CPUs."""
    share: str = ""
    """Id of the share, of a device that others share."""
    numa_nodes: int = 0
    """Number of NUMA nodes over which the CPUs are evenly distributed; 0: by the node's options."""


class PreparedClaim(msgspec.Struct, frozen=True):
    """What a claim has of this driver on this node, and what the agent gave for it."""

    uid: str
    namespace: str
    name: str
    results: tuple[AllocationResult, ...]
    given: tuple[PreparedShare, ...]
    """Nothing until the agent was asked."""
    pods: tuple[str, ...] = ()
    """Uids of the pods for which the claim is reserved, sorted."""
    pod_claim: str = ""
    """The pod's name for a claim that was made from a template."""

    def given_for(self, result: AllocationResult) -> int:
        """Return the number of what a result got in :attr:`given`; results of one request and device share one."""
        return next(
            number
            for number, one in enumerate(self.given)
            if (one.request, one.device) == (result.request, result.device)
        )


@dataclass(frozen=True, slots=True)
class CDISpecs:
    """The folder of specifications."""

    folder: Path
    driver: str

    def device(self, uid: str, number: int) -> str:
        """Return the id of a device as a runtime looks it up."""
        return f"{self.driver}/{CLASS}={uid}-{number}"

    def path(self, uid: str) -> Path:
        """Return the file of a claim."""
        return self.folder / f"{self.driver}-{uid}.json"

    def files(self, uid: str) -> Path:
        """Return the folder of the files for a claim's containers; runtimes look at no folder for devices."""
        return self.folder / f"{self.driver}-{uid}"

    def write(self, prepared: PreparedClaim, pool: str, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the file of a claim, whole or not at all, and before it the files for its containers.

        Args:
            prepared: what it was given.
            pool: name of the node.
            attributes: of the devices, as the API has them.

        Raises:
            InputError: it cannot be written.
        """
        files = self.files(prepared.uid)
        try:
            for request in dict.fromkeys(one.request for one in prepared.given):
                folder = files / name_of(request)
                folder.mkdir(parents=True, exist_ok=True)
                metadata = self._metadata(prepared, request, pool, attributes)
                texts = {FILE: _of_request(prepared, request), self.metadata_file: metadata}
                write_together(folder, texts)
                for name in texts:
                    (folder / name).chmod(_READABLE)
                folder.chmod(_OPEN)
            files.chmod(_OPEN)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=str(self.folder)) from None
        content = specification(prepared, self.driver, files, self.metadata_file)
        write_atomically(self.path(prepared.uid), msgspec.json.encode(content).decode())

    @property
    def metadata_file(self) -> str:
        """Name of the file with the attributes of a request's devices."""
        return f"{self.driver}-metadata.json"

    def _metadata(
        self, prepared: PreparedClaim, request: str, pool: str, attributes: Mapping[str, Mapping[str, Any]]
    ) -> str:
        """Return the attributes of a request's devices: the same object in each version, the newest first.

        Source: k8s.io/dynamic-resource-allocation v0.37.1, api/metadata (doc.go, v1beta1/types.go).
        """
        content = {
            "kind": "DeviceMetadata",
            "metadata": {
                "name": prepared.name,
                "namespace": prepared.namespace,
                "uid": prepared.uid,
                "generation": 1,
            },
            **({"podClaimName": prepared.pod_claim} if prepared.pod_claim else {}),
            "requests": [
                {
                    "name": request,
                    "devices": [
                        {
                            "driver": self.driver,
                            "pool": pool,
                            "name": one.device,
                            "attributes": attributes.get(one.device, {}),
                        }
                        for one in prepared.results
                        if one.request == request
                    ],
                }
            ],
        }
        versions = [{"apiVersion": f"metadata.resource.k8s.io/{one}", **content} for one in _METADATA_VERSIONS]
        return "".join(f"{msgspec.json.encode(one).decode()}\n" for one in versions)

    def read(self, uid: str) -> PreparedClaim | None:
        """Return what a claim was given; None when there is no file, or none of this driver."""
        with suppress(OSError, msgspec.MsgspecError, KeyError, TypeError):
            content = msgspec.json.decode(self.path(uid).read_bytes())
            found = msgspec.json.decode(content["annotations"][ANNOTATION], type=PreparedClaim)
            return found if found.uid == uid else None
        return None

    def all(self) -> Iterator[PreparedClaim]:
        """Yield what was given to all claims that have a file."""
        prefix = f"{self.driver}-"
        for path in sorted(self.folder.glob(f"{prefix}*.json")):
            found = self.read(path.name.removeprefix(prefix).removesuffix(".json"))
            if found is not None:
                yield found

    def remove(self, uid: str) -> None:
        """Remove the file of a claim, if there is one, and then the files for its containers."""
        self.path(uid).unlink(missing_ok=True)
        shutil.rmtree(self.files(uid), ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a driver that was killed in the middle of a write left behind: no claim ever has it removed."""
        with suppress(OSError):
            for left in self.folder.glob(f".{self.driver}-*"):
                left.unlink()
        for left in self.folder.glob(f"{self.driver}-*"):
            if left.is_dir() and not Path(f"{left}.json").exists():
                shutil.rmtree(left, ignore_errors=True)


def specification(prepared: PreparedClaim, driver: str, files: Path, metadata: str) -> dict[str, Any]:
    """Return the content of a file: a device for each request and device of the claim, with variables and mounts.

    One variable tells the agent what the container has; the other, by the name of the request, tells the program its
    CPUs, and so does the file that is mounted. A claim's CPUs stay what they are as long as it is prepared.
    """
    kind, name = (
        ("resourceclaimtemplates", prepared.pod_claim) if prepared.pod_claim else ("resourceclaims", prepared.name)
    )
    return {
        "cdiVersion": VERSION,
        "kind": f"{driver}/{CLASS}",
        "annotations": {ANNOTATION: msgspec.json.encode(prepared).decode()},
        "devices": [
            {
                "name": f"{prepared.uid}-{number}",
                "containerEdits": {
                    "env": [
                        f"{one.variable}={one.cpus}",
                        f"{request_variable(one.request)}={_of_request(prepared, one.request)}",
                    ],
                    "mounts": [
                        {
                            "hostPath": str(files / name_of(one.request) / file),
                            "containerPath": f"{place}/{name_of(one.request)}/{file}".rstrip("/"),
                            "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
                        }
                        for place, file in ((INSIDE, ""), (f"{METADATA}/{kind}/{name}", metadata))
                    ],
                },
            }
            for number, one in enumerate(prepared.given)
        ],
    }


def name_of(request: str) -> str:
    """Return the name of a request, without that of the choice that ``firstAvailable`` made.

    >>> name_of("fast/big")
    'fast'
    """
    return request.partition("/")[0]


def request_variable(request: str) -> str:
    """Return the variable in which a program finds the CPUs of a request.

    >>> request_variable("fast-path")
    'MOORING_REQUEST_FAST_PATH'
    """
    name = name_of(request).upper()
    return f"MOORING_REQUEST_{''.join(letter if letter.isalnum() else '_' for letter in name)}"


def cpus_of(given: Iterable[PreparedShare]) -> str:
    """Return all CPUs of some shares."""
    return str(CPUSet(reduce(or_, (CPUSet.parse(one.cpus).mask for one in given), NO_CPUS)))


def _of_request(prepared: PreparedClaim, request: str) -> str:
    return cpus_of(one for one in prepared.given if one.request == request)


class _Result(msgspec.Struct):
    request: str
    driver: str
    pool: str
    device: str
    consumed_capacity: dict[str, str | int] | None = msgspec.field(name="consumedCapacity", default=None)
    share_id: str | None = msgspec.field(name="shareID", default=None)


class _Parameters(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: Literal["mooring/v1alpha1"]
    kind: Literal["ClaimParameters"]
    numa_nodes: Annotated[int, msgspec.Meta(ge=1)]


class _Opaque(msgspec.Struct):
    driver: str = ""
    parameters: Any = None


class _Configuration(msgspec.Struct):
    requests: list[str] | None = None
    opaque: _Opaque | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None
    config: list[_Configuration] | None = None


class _Allocated(msgspec.Struct):
    devices: _Devices | None = None


class _Consumer(msgspec.Struct):
    uid: str
    resource: str = ""


class _Status(msgspec.Struct):
    allocation: _Allocated | None = None
    reserved_for: list[_Consumer] | None = msgspec.field(name="reservedFor", default=None)


learn(PreparedClaim, _Parameters, _Status)


def allocation_of(claim: Mapping[str, Any], driver: str, pool: str, device_cpus: Callable[[str], int]) -> PreparedClaim:
    """Return the allocation of a ResourceClaim.

    Args:
        claim: the object.
        driver: whose results count.
        pool: name of the node.
        device_cpus: mask of a device's CPUs; 0 for one that is none.

    Raises:
        InputError: nothing is allocated, or what is allocated cannot be understood; the text is for the pod's event.
    """
    metadata = claim["metadata"]
    source = f"claim {metadata['namespace']}/{metadata['name']}"
    try:
        status = msgspec.convert(claim.get("status") or {}, _Status)
    except msgspec.ValidationError as error:
        raise InputError(f"has a status that is none: {error}", source=source) from None
    devices = (status.allocation or _Allocated()).devices or _Devices()
    mine = [one for one in devices.results or () if one.driver == driver]
    if not mine:
        raise InputError(f"nothing of {driver} is allocated", source=source)
    for one in mine:
        if one.pool != pool:
            raise InputError(f"is allocated on {one.pool} and not on {pool}", source=source)
    numa_nodes = dict.fromkeys((one.request for one in mine), 0)
    for configured in devices.config or ():
        if configured.opaque is None or configured.opaque.driver != driver:
            continue
        try:
            wanted = msgspec.convert(configured.opaque.parameters, _Parameters).numa_nodes
        except msgspec.ValidationError as error:
            raise InputError(f"has parameters that this driver does not support: {error}", source=source) from None
        for request in numa_nodes:
            if not configured.requests or not {request, name_of(request)}.isdisjoint(configured.requests):
                numa_nodes[request] = wanted
    results = tuple(_result(one, device_cpus, numa_nodes[one.request], source) for one in mine)
    pods = tuple(sorted({one.uid for one in status.reserved_for or () if one.resource == "pods"}))
    pod_claim = (metadata.get("annotations") or {}).get("resource.kubernetes.io/pod-claim-name", "")
    return PreparedClaim(metadata["uid"], metadata["namespace"], metadata["name"], results, (), pods, pod_claim)


def shares_of(allocated: PreparedClaim) -> dict[tuple[str, str, int], int]:
    """Return the CPUs of each share of an allocation, by request, device and number of NUMA nodes."""
    counts: dict[tuple[str, str, int], int] = {}
    for one in allocated.results:
        key = one.request, one.device, one.numa_nodes
        counts[key] = counts.get(key, 0) + one.count
    return counts


def _result(one: _Result, device_cpus: Callable[[str], int], numa_nodes: int, source: str) -> AllocationResult:
    cpus = device_cpus(one.device)
    if not cpus:
        raise InputError(f"device {one.device} is not on this node", source=source)
    consumed = (one.consumed_capacity or {}).get(CAPACITY)
    milli = 1000 * cpus.bit_count() if consumed is None else Quantity.parse(str(consumed)).milli
    if milli % 1000 or milli <= 0:
        raise InputError(f"consumes {consumed} of {CAPACITY}, which is not a number of CPUs", source=source)
    return AllocationResult(one.request, one.device, milli // 1000, one.share_id or "", numa_nodes)
