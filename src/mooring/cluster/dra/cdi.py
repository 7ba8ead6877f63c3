"""Files of the Container Device Interface, one for each prepared claim.

They are the driver's memory too: what a claim was given is in its file, so that a driver that was restarted, or an
agent that lost its state, finds it there.

Source: CNCF container-device-interface, specification 0.6.0.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.cluster.dra.allocation import AllocationResult
from mooring.cluster.dra.objects import PreparedShare
from mooring.engine.checkpoint.store import write_atomically, write_together
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError

VERSION: Final = "0.6.0"
INSIDE: Final = "/run/mooring-claims"
"""Where a container finds the files of its claims: a folder for each request, with the file ``cpuset``."""
FILE: Final = "cpuset"
_READABLE: Final = 0o644
_OPEN: Final = 0o755
CLASS: Final = "claim"
ANNOTATION: Final = "mooring.dev/prepared"


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim that was prepared."""

    uid: str
    namespace: str
    name: str
    results: tuple[AllocationResult, ...]
    given: tuple[PreparedShare, ...]
    pods: tuple[str, ...] = ()

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

    def write(self, prepared: PreparedClaim) -> None:
        """Write the file of a claim, whole or not at all, and before it the files for its containers.

        Raises:
            InputError: it cannot be written.
        """
        files = self.files(prepared.uid)
        try:
            for request in dict.fromkeys(one.request for one in prepared.given):
                folder = files / name_of(request)
                folder.mkdir(parents=True, exist_ok=True)
                write_together(folder, {FILE: _of_request(prepared, request)})
                (folder / FILE).chmod(_READABLE)
                folder.chmod(_OPEN)
            files.chmod(_OPEN)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=str(self.folder)) from None
        content = specification(prepared, self.driver, files)
        write_atomically(self.path(prepared.uid), msgspec.json.encode(content).decode())

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


def specification(prepared: PreparedClaim, driver: str, files: Path) -> dict[str, Any]:
    """Return the content of a file: a device for each request and device of the claim, with two variables and a mount.

    One variable tells the agent what the container has; the other, by the name of the request, tells the program its
    CPUs, and so does the file that is mounted. A claim's CPUs stay what they are as long as it is prepared.
    """
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
                            "hostPath": str(files / name_of(one.request)),
                            "containerPath": f"{INSIDE}/{name_of(one.request)}",
                            "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
                        }
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


def _of_request(prepared: PreparedClaim, request: str) -> str:
    cpus = CPUSet()
    for one in prepared.given:
        if one.request == request:
            cpus |= CPUSet.parse(one.cpus)
    return str(cpus)
