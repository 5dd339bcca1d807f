"""The parts that the window's own units noted: a line of a card that -v shows."""

from edgescope.records import Absent, Measured
from edgescope.report import terminal
from edgescope.report.result import document
from making import result

PARTS = {
    "decode_part_p50_s": Measured(0.002, "s", n=200),
    "decode_part_p99_s": Measured(0.009, "s", n=200),
    "infer_part_p50_s": Measured(0.005, "s", n=40),
    "infer_part_p99_s": Absent("n/a: have 40, need 100"),
}


def drawn(of, **keys) -> str:
    return "\n".join("".join(text for text, _ in line) for line in terminal.lines(document(of), 120, **keys))


def test_each_part_has_its_median_and_its_p99_where_there_is_one():
    one = result(metrics={**result().metrics, **PARTS})
    assert "in the window  decode 2 ms (p99 9 ms)   infer 5 ms" in drawn(one, verbose=True)
    assert "in the window" not in drawn(one)
    assert "in the window" not in drawn(result(), verbose=True)
