"""Options of the topology manager (configuration.md section 4.3)."""

from __future__ import annotations

import pytest
from tests.faults import text_of

from mooring.engine.topologymanager.options import TopologyOptions, parse_options

CLOSEST = "prefer-closest-numa-nodes"
NODES = "max-allowable-numa-nodes"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, TopologyOptions(prefer_closest=False, max_allowable=8)),
        ({CLOSEST: "true"}, TopologyOptions(prefer_closest=True)),
        ({CLOSEST: "F"}, TopologyOptions()),
        ({NODES: "8"}, TopologyOptions()),
        ({NODES: "+64", CLOSEST: "1"}, TopologyOptions(prefer_closest=True, max_allowable=64)),
    ],
)
def test_good_options(options: dict[str, str], expected: TopologyOptions) -> None:
    assert text_of(parse_options(options)) == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fast": "true"}, 'unknown Topology Manager Policy option: "fast"'),
        ({CLOSEST: "yes"}, f'bad value for option "{CLOSEST}": strconv.ParseBool: parsing "yes": invalid syntax'),
        (
            {NODES: "x"},
            f'unable to convert policy option to integer "{NODES}": strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            {NODES: "9223372036854775808"},
            (
                f'unable to convert policy option to integer "{NODES}": '
                'strconv.Atoi: parsing "9223372036854775808": value out of range'
            ),
        ),
        ({NODES: "7"}, f'the minimum value of "{NODES}" should not be less than 8'),
        ({NODES: "-9"}, f'the minimum value of "{NODES}" should not be less than 8'),
    ],
)
def test_bad_options(options: dict[str, str], text: str) -> None:
    assert text_of(parse_options(options)) == text


def test_the_first_bad_option_by_name_is_reported() -> None:
    assert text_of(parse_options({"z": "", NODES: "1"})) == f'the minimum value of "{NODES}" should not be less than 8'
