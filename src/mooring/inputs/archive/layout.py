"""The layout of a node archive.

Everything is below one folder, so that unpacking makes one; files of the machine keep their paths below ``/``. So the
archive is a snapshot of a machine too, and ``--machine`` takes it.
"""

from __future__ import annotations

import json
from typing import Final

from mooring.engine.node.start import CPU_FILE, MEMORY_FILE

TOP: Final = "mooring-node"
"""The folder around everything."""
ABOUT: Final = "mooring-node.json"
"""What was collected, what was not, and why."""
MACHINE_INFO: Final = "machine.json"
"""The machine as a MachineInfo, of a node whose sysfs was not read."""
KUBELET_CONFIG: Final = "kubelet/config.json"
CPU_STATE: Final = f"kubelet/{CPU_FILE}"
MEMORY_STATE: Final = f"kubelet/{MEMORY_FILE}"
DEVICE_RECORD: Final = "kubelet/kubelet_internal_checkpoint"
ALLOCATABLE: Final = "kubelet/devices.json"
"""The kubelet's healthy devices, as a document of kind NodeDevices."""
CLAIMS: Final = "claims.json"
"""Claims and slices of dynamic resource allocation."""
MOORING_CONFIG: Final = "mooring/config.json"
DEVICES: Final = "mooring/devices.json"
PODS: Final = "pods.json"

CONFIGURATIONS: Final = (KUBELET_CONFIG, MOORING_CONFIG, DEVICES)

MACHINE_PART: Final = "machine"
ISOLATION_PART: Final = "isolation"
CONFIGURATION_PART: Final = "configuration"
STATE_PART: Final = "state files"
DEVICES_PART: Final = "devices"
PODS_PART: Final = "pods"


def json_bytes(document: object) -> bytes:
    """Return a document as an archive has it."""
    return f"{json.dumps(document, indent=1)}\n".encode()
