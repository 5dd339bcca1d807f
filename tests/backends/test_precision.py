"""What a count of operators by precision may be called."""

import pytest

from edgescope.backends.base import precision_of


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        ({"fp32": 50}, "fp32"),
        ({"bf16": 50}, "bf16"),
        ({"int8": 48, "fp32": 2}, "int8"),
        ({"int8": 3, "fp32": 1}, "int8"),
        ({"int8": 2, "fp32": 2}, "mixed (2 int8, 2 fp32)"),
        ({"fp32": 51, "bf16": 1}, "mixed (51 fp32, 1 bf16)"),
        ({"int8": 40, "bf16": 2}, "mixed (40 int8, 2 bf16)"),
    ],
)
def test_names(kinds, name):
    assert precision_of(kinds) == name
