"""The memory probe: a child process with a buffer that no cache holds."""

import itertools

import pytest

from edgescope.bench.watch import peak_rss
from edgescope.devices import memory_probe
from edgescope.devices.prober import Prober


def test_the_fastest_walk_counts():
    moments = itertools.accumulate(itertools.chain.from_iterable((0.0, s) for s in (0.03, 0.01, 0.02)))
    assert memory_probe.walk(bytearray(memory_probe.LINE), 3, clock=lambda: next(moments)) == pytest.approx(
        0.01
    )


@pytest.mark.slow
def test_one_child_walks_before_and_after_and_its_memory_is_its_own():
    peak_before = peak_rss().value
    with Prober(memory_probe) as walker:
        found = [walker.seconds(), walker.seconds()]
    assert all(s is not None and s > 0 for s in found)
    assert peak_rss().value - peak_before < memory_probe.LEAST / 2


@pytest.mark.parametrize(
    ("caches", "bytes_"),
    [
        (("32K", "1024K"), memory_probe.LEAST),
        (("32K", "16384K"), 32 << 20),
        (("48K", "260M"), memory_probe.MOST),
        (("many", "16777216", ""), 32 << 20),
        (("20M", "K"), 40 << 20),
        ((), memory_probe.MOST),
    ],
)
def test_the_buffer_is_twice_the_largest_cache_within_bounds(tmp_path, caches, bytes_):
    for i, text in enumerate(caches):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        (folder / "size").write_text(text + "\n")
    assert memory_probe.size(str(tmp_path)) == bytes_
