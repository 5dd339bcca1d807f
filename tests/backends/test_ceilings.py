"""The highest rate of a device: the largest over sizes that end where one product takes too long."""

import pytest

from edgescope.backends.pytorch import ceilings
from edgescope.backends.pytorch.ceilings import ON_HOST, Best, peak


class Timed(Best):
    """Products that take so many seconds for each floating-point operation, whatever is computed."""

    def __init__(self, seconds, each_s):
        super().__init__("cpu", seconds)
        self.each_s, self.sizes = each_s, []

    def of(self, work):
        self.sizes.append(work)
        return 2 * work**3 * self.each_s


@pytest.fixture(autouse=True)
def sizes_alone(monkeypatch):
    monkeypatch.setattr(ceilings, "product", lambda device, name, n: n)


def test_a_quick_product_is_tried_at_every_size():
    best = Timed(0.1, 1e-15)
    assert peak(best, "fp32")["value"] == pytest.approx(1e15) and best.sizes == list(ON_HOST)


def test_sizes_end_with_the_first_that_takes_too_long_and_it_counts():
    best = Timed(0.1, 1e-8)  # seconds for the smallest, minutes for the largest
    found = peak(best, "fp16")
    assert best.sizes == [ON_HOST[0]] and found == {
        "value": pytest.approx(1e8),
        "size": ON_HOST[0],
        "unit": "FLOP/s",
    }
