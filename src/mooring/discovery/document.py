"""A machine as one JSON document: the kubelet's view, the hardware, and where the two differ."""

from __future__ import annotations

from typing import Final

from mooring.core.machine import Machine
from mooring.discovery.hardware_document import hardware_document
from mooring.discovery.machineinfo_json import machine_info_document

API_VERSION: Final = "mooring/v1alpha1"
"""Version of the document."""


def machine_document(machine: Machine) -> dict[str, object]:
    """Return the document of a machine; it holds nothing but dicts, lists, texts, numbers and None.

    ``kubelet`` is cAdvisor's MachineInfo, ``kubeletError`` its error where a kubelet would not start ("" otherwise),
    ``hardware`` null where the source tells only the kubelet's view.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "Machine",
        "name": machine.name,
        "kubelet": machine_info_document(machine.info, info_error=machine.info_error),
        "kubeletError": machine.info_error,
        "hardware": hardware_document(machine.hardware) if machine.hardware else None,
        "findings": [
            {"severity": finding.severity, "subject": finding.subject, "message": finding.message}
            for finding in machine.findings
        ],
    }
