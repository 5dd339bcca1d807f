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
        ({"tf32": 48, "fp32": 2}, "tf32"),
        ({"int8": 40, "bf16": 2}, "int8"),
        ({"int8": 40, "fp16": 5, "tf32": 3, "fp32": 2}, "int8"),
        ({"fp16": 2, "int8": 8}, "int8"),
        ({"int8": 6, "fp16": 4}, "mixed (6 int8, 4 fp16)"),
        ({"fp16": 9, "tf32": 1}, "fp16"),
        ({"bf16": 3, "tf32": 1}, "bf16"),
        ({"fp16": 48, "int8": 2}, "mixed (48 fp16, 2 int8)"),
        ({"fp16": 48, "bf16": 2}, "mixed (48 fp16, 2 bf16)"),
        ({"tf32": 48, "fp16": 2}, "mixed (48 tf32, 2 fp16)"),
        ({"int8": 48, "unknown": 2}, "mixed (48 int8, 2 unknown)"),
    ],
)
def test_names(kinds, name):
    assert precision_of(kinds) == name
