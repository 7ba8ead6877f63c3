"""A variant: one machine with one configuration, and how it departs from what was given."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from mooring.engine.core.config import KubeletConfig, MooringConfig, with_defaults
from mooring.engine.core.gotext import GoSyntaxError, parse_bool
from mooring.engine.core.machine import Machine
from mooring.engine.devicemanager.state import Device
from mooring.engine.releases.config_fields import READ_FIELDS, Holds
from mooring.engine.topologymanager.options import MAX_ALLOWABLE


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that departs from the configuration which a variant was made from."""

    field: str
    """The kubelet's name; of a mapping with the key after a dot, such as
    ``cpuManagerPolicyOptions.full-pcpus-only``."""
    before: str
    """Empty where it was not set."""
    after: str
    """Empty where it is not set any more."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the things that are compared."""

    name: str
    """Name of the configuration that was given, or that it was made from."""
    machine: Machine
    config: KubeletConfig
    mooring: MooringConfig = field(default_factory=MooringConfig)
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> devices of the node's device plugins."""
    changes: tuple[SettingChange, ...] = ()
    """What was changed in the configuration that was given; empty for a configuration as it was given."""

    @property
    def is_given(self) -> bool:
        """Tell whether the configuration is one that was given."""
        return not self.changes

    @property
    def shared_by(self) -> Hashable:
        """What variants of one comparison have in common that can share a run: all but the topology manager's settings.

        Plugins may read any setting, so that such variants share nothing.
        """
        if self.mooring.plugins.plugins:
            return id(self)
        config = replace(
            self.config,
            topology_manager_policy="",
            topology_manager_scope="",
            topology_manager_policy_options={},
        )
        return id(self.machine), repr((self.mooring, self.devices, config))


def changes_between(before: KubeletConfig, after: KubeletConfig) -> tuple[SettingChange, ...]:
    """Return the settings in which two configurations depart, by the kubelet's names.

    An option given as false counts as one that is not given.

    >>> one = KubeletConfig(cpu_manager_policy_options={"full-pcpus-only": "true"})
    >>> changes_between(one, KubeletConfig(topology_manager_policy="restricted"))  # doctest: +NORMALIZE_WHITESPACE
    (SettingChange(field='cpuManagerPolicyOptions.full-pcpus-only', before='true', after=''),
     SettingChange(field='topologyManagerPolicy', before='none', after='restricted'))
    """
    left, right = _flat(before), _flat(after)
    return tuple(
        SettingChange(name, left.get(name, ""), right.get(name, ""))
        for name in sorted({*left, *right})
        if left.get(name, "") != right.get(name, "")
    )


def _flat(config: KubeletConfig) -> dict[str, str]:
    config, texts = with_defaults(config), dict[str, str]()
    for name, one in READ_FIELDS.items():
        value = one.of(config)
        if one.holds is Holds.OPTIONS:
            value = options_on(value)
        elif one.holds is Holds.MEMORY:
            value = {f"{entry.numa_node}.{key}": text for entry in value for key, text in entry.limits.items()}
        if isinstance(value, Mapping):
            texts |= {f"{name}.{key}": _text(part) for key, part in value.items()}
        elif value is not None:
            texts[name] = _text(value)
    return texts


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_on(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a policy that do something, in sorted order; every form of true becomes ``true``.

    >>> options_on({"full-pcpus-only": "1", "align-by-socket": "false", "max-allowable-numa-nodes": "12"})
    {'full-pcpus-only': 'true', 'max-allowable-numa-nodes': '12'}
    """
    found = {}
    for name in sorted(options):
        text = options[name]
        if name == MAX_ALLOWABLE:  # the only one that is no boolean
            found[name] = text
            continue
        try:
            if parse_bool(text):
                found[name] = "true"
        except GoSyntaxError:
            # No boolean: the kubelet refuses it, and the answer must show that.
            found[name] = text
    return found
