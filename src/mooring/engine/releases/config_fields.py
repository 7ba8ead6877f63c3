"""Fields of KubeletConfiguration that some releases do not have, and defaults that changed.

A kubelet ignores a field that it does not know. Which values a release refuses is a rule of
:mod:`mooring.engine.releases.rules`.

Source: k8s.io/kubelet/config/v1beta1 and pkg/kubelet/apis/config/v1beta1 (defaults) of each release; spec: releases.md
sections 5 to 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mooring.engine.releases.rule import RELEASE_NAMES

FIELDS_SINCE: Mapping[str, str] = {
    "crashLoopBackOff": "1.32",
    "singleProcessOOMKill": "1.32",
    "imagePullCredentialsVerificationPolicy": "1.33",
    "mergeDefaultEvictionSettings": "1.33",
    "preloadedImagesVerificationAllowlist": "1.33",
    "userNamespaces": "1.33",
    "memoryReservationPolicy": "1.36",
    "tlsCurvePreferences": "1.36",
    "defaultPodSysctls": "1.37",
}
"""Field -> the first release that has it. All other fields are in every release."""

DEFAULT_HISTORY: Mapping[str, str] = {
    "failCgroupV1": "1.31 false, 1.35 true",
    "memoryReservationPolicy": "1.36 None",
    "memoryThrottlingFactor": "1.31 0.9, 1.37 none",
    "mergeDefaultEvictionSettings": "1.33 false",
}
"""Defaults that changed, and those of fields that came later (:mod:`mooring.engine.releases.history`)."""


@cache
def later_fields(release: str) -> frozenset[str]:
    """Return the fields that a release does not have yet.

    >>> sorted(later_fields("1.36"))
    ['defaultPodSysctls']
    """
    position = RELEASE_NAMES.index(release)
    return frozenset(name for name, since in FIELDS_SINCE.items() if RELEASE_NAMES.index(since) > position)
