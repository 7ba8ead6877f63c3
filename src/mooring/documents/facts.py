"""Facts of the engine as documents: ``{"fact": "HintsMerged", ...}``, one member for each field; and hints.

Hints: all of them, or what is worth saying of very many; their names are those of the conformance recordings
(docs/reference/scenarios.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial
from hashlib import sha256
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, NewType, TypeAlias, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct, defstruct

from mooring.documents.plan import (
    Count,
    CPUList,
    DocumentPart,
    HintDigest,
    HintFamily,
    HintList,
    HintPart,
    NodeList,
    Numbers,
    ResourceHintLists,
    told,
)
from mooring.engine.core.bits import NUMAMask, list_text, members
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager import facts as cpu
from mooring.engine.devicemanager import facts as devices
from mooring.engine.extensions import facts as extensions
from mooring.engine.memorymanager import facts as memory
from mooring.engine.memorymanager.state import Block
from mooring.engine.node import facts as node
from mooring.engine.node.decision import NO_AFFINITY, Decision, HintsAsked
from mooring.engine.plugins import facts as plugins
from mooring.engine.topologymanager import facts as topology
from mooring.engine.topologymanager.hints import Hint, Hints
from mooring.engine.topologymanager.wide import AnyHints, Family, ResourceHints

LONGEST_LIST = 64
"""Longer lists of hints are given as a count and a digest."""

WIDEST_UNIVERSE = 16
"""Up to this many NUMA nodes the order of all their subsets is made once and remembered."""


def hint_part(hint: Hint, score: int | None = None) -> HintPart:
    """Return one hint, with its score where it has one."""
    return HintPart(None if hint.numa is None else list(hint.numa), hint.preferred, UNSET if score is None else score)


def affinity_parts(decision: Decision) -> dict[str, HintPart]:
    """Return the hint that is stored for each container."""
    asked = decision.asked

    def score(name: str, hint: Hint) -> int | None:
        if asked is None:
            return None
        of = asked.get(name, asked.get(""))
        return 0 if of is None or hint == NO_AFFINITY else of.merged(hint)

    return {name: hint_part(hint, score(name, hint)) for name, hint in decision.affinity.items()}


def hint_lists(hints: ResourceHints, asked: HintsAsked | None = None) -> dict[str, HintList]:
    """Return the hints of each resource, with their scores where it is known what they were made of."""
    return {
        resource: hint_list(found, None if asked is None else partial(asked.score, resource))
        for resource, found in hints.items()
    }


def hint_list(hints: AnyHints | None, score: Callable[[NUMAMask], int] | None = None) -> HintList:
    """Return the hints of one resource: null, a list, or for a long list its count and digest."""
    if hints is None:
        return None
    if isinstance(hints, Family):
        if hints.universe.bit_count() > WIDEST_UNIVERSE:
            listed = [list(members(mask)) for mask in hints.listed]
            return HintFamily(list_text(hints.universe), hints.narrowest(), hints.smallest, listed)
        hints = hints.hints()
    if len(hints) <= LONGEST_LIST:
        return [hint_part(one, None if score is None else 0 if one.mask is None else score(one.mask)) for one in hints]
    preferred = len(hints.preferred) + sum(hints.nil)
    return HintDigest(len(hints), preferred, sha256(_digest_text(hints, score).encode()).hexdigest())


def _digest_text(hints: Hints, score: Callable[[NUMAMask], int] | None) -> str:
    """Return ``<nodes>:<true|false>;`` for each hint in order, or ``<nodes>:<true|false>:<score>;``."""
    nil = "" if score is None else ":0"
    words = [f"null:true{nil};" if flag else f"null:false{nil};" for flag in hints.nil]
    flags: dict[int, str] = {**dict.fromkeys(hints.others, "false"), **dict.fromkeys(hints.preferred, "true")}
    if score is not None:
        flags = {mask: f"{flag}:{score(NUMAMask(mask))}" for mask, flag in flags.items()}
    universe = 0
    for mask in flags:
        universe |= mask
    if universe.bit_count() > WIDEST_UNIVERSE:
        ordered = sorted((len(hint.numa or ()), hint.numa or (), hint.mask or 0) for hint in hints if hint.mask)
        words += [f"{','.join(map(str, nodes))}:{flags[mask]};" for _, nodes, mask in ordered]
    else:
        words += [f"{text}:{flags[mask]};" for mask, text in _ordered_sets(universe) if mask in flags]
    return "".join(words)


@lru_cache(maxsize=8)
def _ordered_sets(universe: int) -> tuple[tuple[int, str], ...]:
    """Return all non-empty subsets of a node set with their texts, by size and then lexicographic."""
    sized: list[tuple[int, tuple[int, ...], int]] = []
    subset = universe
    while subset:
        nodes = tuple(members(subset))
        sized.append((len(nodes), nodes, subset))
        subset = (subset - 1) & universe
    return tuple((mask, ",".join(map(str, nodes))) for _, nodes, mask in sorted(sized))


Encoder: TypeAlias = Callable[[Any], Any]

_CPUs = NewType("_CPUs", int)
_Nodes = NewType("_Nodes", int)
_Signed = NewType("_Signed", int)

_UNITS: Final = {"CPUMask": _CPUs, "NUMAMask": _Nodes}
"""The engine's masks are plain integers at run time; here their names mean what they mean to mypy."""
_SIGNED: Final = frozenset({"available", "bound", "group", "rest", "share"})
"""Numbers that are no counts."""

_ELSEWHERE: Final = frozenset({"choices", "declared", "state"})
"""Fields that are not written: pods and states stand elsewhere in a document, and choices follow from the entries."""
_MODULES: Final = (cpu, extensions, plugins, memory, devices, topology, node)
_NO_FACTS: Final = frozenset({plugins.Candidate, node.KubeletStarted})


class BlockPart(DocumentPart):
    """Memory of one kind on some NUMA nodes."""

    numa: Numbers
    type: str
    size: Count


class ScoreLevelPart(DocumentPart):
    """A score, and the CPUs that have it."""

    score: float
    cpus: CPUList


class CandidatePart(DocumentPart):
    """A set of CPUs that was proposed."""

    plugin: Annotated[str, told("What proposed it; empty for the host, by the kubelet's rules.")]
    cpus: CPUList
    hidden: CPUList
    scores: Annotated[dict[str, float], told("Plugin -> its score of the set.")]


class _Form(NamedTuple):
    """How values of a type are written."""

    encode: Encoder
    schema: Any
    """The type of what is written."""


def fact_members(fact: object) -> dict[str, Any]:
    """Return one fact as a document has it.

    >>> fact_members(cpu.CPUsPicked("cores", 0b110011))
    {'fact': 'CPUsPicked', 'rule': 'cores', 'cpus': '0-1,4-5'}
    """
    kind: Any = type(fact)
    found: dict[str, Any] = {"fact": kind.__name__}
    for name, member, form in _forms(kind):
        found[member] = form.encode(getattr(fact, name))
    return found


@cache
def fact_types() -> tuple[type, ...]:
    """Return every fact that a document can have."""
    return tuple(
        found
        for module in _MODULES
        for found in vars(module).values()
        if isinstance(found, type)
        and found.__module__ == module.__name__
        and is_dataclass(found)
        and found not in _NO_FACTS
    )


def fact_structs() -> list[type[Struct]]:
    """Return a struct for each fact, described as the fact itself; what it is called is the member ``fact``."""
    return [_struct(kind) for kind in fact_types()]


def _struct(kind: type) -> type[Struct]:
    # The texts below the fields of a dataclass
    # Only for schemas: documents need none of these.
    import ast  # noqa: PLC0415
    import inspect  # noqa: PLC0415
    import textwrap  # noqa: PLC0415

    [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - for mypy: it is the source of a class
    described = {}
    for one, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(below, ast.Expr):
            described[one.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    members: list[tuple[str, Any]] = []
    for name, _, form in _forms(kind):
        # The text about a mask would be about bits.
        plain = form.schema in (str, bool, int, Count) and name in described
        members.append((name, Annotated[form.schema, Meta(description=described[name])] if plain else form.schema))
    return defstruct(
        kind.__name__,
        members,
        bases=(DocumentPart,),
        namespace={"__doc__": kind.__doc__},
        tag_field="fact",
        tag=kind.__name__,
    )


@cache
def _forms(kind: type) -> tuple[tuple[str, str, _Form], ...]:
    """Return the fields of a fact: their names, those of their members, and how their values are written."""
    hints = get_type_hints(kind, localns=_UNITS)
    found = []
    for name in (one.name for one in fields(kind) if one.name not in _ELSEWHERE):
        first, *others = name.split("_")
        hint = _Signed if name in _SIGNED and hints[name] is int else hints[name]
        found.append((name, first + "".join(other.title() for other in others), _form(hint)))
    return tuple(found)


def _form(hint: Any) -> _Form:
    """Return how values of a type are written."""
    if hint in _FORMS:
        return _FORMS[hint]
    parts = get_args(hint)
    if set(parts) - {NoneType} == {Hints, Family}:
        return _Form(hint_list, HintList)
    if NoneType in parts:
        [inner] = (part for part in parts if part is not NoneType)
        form = _form(inner)
        return _Form(lambda value: None if value is None else form.encode(value), form.schema | None)
    origin = get_origin(hint)
    if origin is tuple:
        form = _form(parts[0])
        return _Form(lambda values: [form.encode(value) for value in values], list[form.schema])  # type: ignore[name-defined]
    if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _mapping_form(*parts)
    raise TypeError(f"no form for {hint}")


def _mapping_form(key: Any, value: Any) -> _Form:
    form = _form(value)
    if key is float:
        return _Form(
            lambda levels: [ScoreLevelPart(score, form.encode(cpus)) for score, cpus in levels.items()],
            Annotated[list[ScoreLevelPart], told("Scores of CPUs, highest first.")],
        )
    return _Form(
        lambda values: {str(name): form.encode(one) for name, one in values.items()},
        dict[str, form.schema],  # type: ignore[name-defined]
    )


def _same(value: Any) -> Any:
    return value


_FORMS: Final[Mapping[Any, _Form]] = {
    str: _Form(_same, str),
    bool: _Form(_same, bool),
    int: _Form(_same, Count),
    _Signed: _Form(_same, int),
    float: _Form(_same, float),
    _CPUs: _Form(list_text, CPUList),
    _Nodes: _Form(list_text, NodeList),
    Hint: _Form(hint_part, HintPart),
    ResourceHints: _Form(hint_lists, ResourceHintLists),
    Block: _Form(lambda block: BlockPart(list(block.numa), block.type, block.size), BlockPart),
    plugins.Candidate: _Form(
        lambda one: CandidatePart(one.plugin, list_text(one.cpus), list_text(one.hidden), dict(one.scores or {})),
        CandidatePart,
    ),
    Pod: _Form(
        lambda pod: {one.name: {name: str(held) for name, held in one.requests.items()} for one in pod.containers},
        Annotated[dict[str, dict[str, str]], told("Container -> resource -> quantity.")],
    ),
}
