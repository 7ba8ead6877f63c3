"""How CPUs are to be taken: the policy options, reduced to what the algorithms ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TakeRules:
    """The rules of taking, from the CPU manager policy options."""

    spread: bool = False
    """distribute-cpus-across-cores: single CPUs are taken across cores instead of filling cores."""
    distribute: bool = False
    """distribute-cpus-across-numa."""
    whole_cores: bool = False
    """full-pcpus-only: distribution hands out whole cores."""
    align_by_socket: bool = False
    uncore: bool = False
    """prefer-align-cpus-by-uncorecache."""
    fixed_defects: frozenset[str] = frozenset()
    """Defects of v1.37.1 that are not to be reproduced (spec: README.md section 5)."""


@dataclass(frozen=True, slots=True)
class TakeError:
    """Why no CPUs could be taken; the text is the kubelet's."""

    message: str
