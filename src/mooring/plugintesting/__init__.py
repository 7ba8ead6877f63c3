"""For authors of plugins: run one through random machines, pods and courses, and hear the first rule that it breaks.

It needs hypothesis, which Mooring does not bring along; nothing else of Mooring imports this room.

>>> from mooring.engine.plugins import CPURequest, CPUSet, hookimpl
>>> class OneTooFew:
...     def __init__(self, settings): pass
...     @hookimpl
...     def select_cpus(self, request: CPURequest) -> CPUSet:
...         return CPUSet.from_ids(list(request.available)[: request.need - 1])
>>> try:
...     check_plugin(OneTooFew, examples=20)
... except BrokenRuleError as broken:
...     print(broken.rule)
every answer counts: select_cpus: it selected 0 CPUs where 1 are wanted
"""

from __future__ import annotations

from mooring.plugintesting.checking import BrokenRuleError, check_plugin
from mooring.plugintesting.courses import MACHINES

__all__ = ["MACHINES", "BrokenRuleError", "check_plugin"]
