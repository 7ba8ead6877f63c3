"""For how long a pod's containers keep CPUs that a resize takes from them (KEP-6122, extension scale-down-delay).

Source: KEP-6122, draft of September 2026; spec: resize.md section 5.2. The annotation is this project's, for API
servers that do not know the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mooring.core.errors import InputError
from mooring.manifest.fields import count_at, inside
from mooring.manifest.gates import DELAY_GATE, PodGates

FIELD = "scaleDownGracePeriodSeconds"
ANNOTATION = "mooring/scale-down-grace-period-seconds"
LONGEST = 10
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_REMEDY = f"write a whole number of seconds from 0 to {LONGEST}"


def scale_down_grace(
    spec: Mapping[str, Any], annotations: Mapping[str, str], gates: PodGates, *, stored: bool
) -> int | None:
    """Return the seconds that a pod asks for; None when it says nothing. The field comes before the annotation.

    Args:
        spec: of the pod.
        annotations: of the pod.
        gates: without the extension neither is looked at.
        stored: whether the API server has taken the pod already: it refuses the field of new pods only.

    Raises:
        InputError: no such number, or the gate of the field is off.

    >>> scale_down_grace({}, {ANNOTATION: "5"}, PodGates(knows_delay=True), stored=False)
    5
    """
    if not gates.knows_delay:
        return None
    if spec.get(FIELD) is not None:
        try:
            return _of_field(spec, gates, stored=stored)
        except InputError as error:
            raise inside(error, "spec") from None
    text = annotations.get(ANNOTATION)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text) or int(text) > LONGEST:
        raise InputError(f"{text!r:.40} is no delay", field=f"metadata.annotations.{ANNOTATION}", remedy=_REMEDY)
    return int(text)


def _of_field(spec: Mapping[str, Any], gates: PodGates, *, stored: bool) -> int:
    seconds = count_at(spec, FIELD, 0)
    if not 0 <= seconds <= LONGEST:
        raise InputError(f"must be between 0 and {LONGEST}, but is {seconds}", field=FIELD, remedy=_REMEDY)
    if not gates.delay and not stored:
        remedy = f"switch on the feature gate {DELAY_GATE}, or use the annotation {ANNOTATION}"
        raise InputError(f"is forbidden while the feature gate {DELAY_GATE} is off", field=FIELD, remedy=remedy)
    return seconds
