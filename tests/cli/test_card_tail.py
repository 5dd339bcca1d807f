"""What a card says beside p99: its bound with what it rests on, or that there is none."""

import dataclasses

from edgescope.records import Absent, Measured
from making import result, show_card


def shown(capsys, bound):
    latency = {
        name: Measured(0.005, "s", n=2000) for name in ("latency_p50_s", "latency_p90_s", "latency_p99_s")
    }
    show_card(dataclasses.replace(result(), metrics=latency | {"latency_p99_bound_s": bound}))
    return " ".join(capsys.readouterr().out.split())


def test_a_bound_says_the_longest_stall_that_it_covers(capsys):
    said = shown(capsys, Measured(0.007, "s", n=20_000))
    assert "p99 below 7 ms with 99 % confidence, if no stall is longer than 43 queries" in said


def test_a_p99_without_a_bound_says_so(capsys):
    assert "no bound of p99 (have 208, need 459)" in shown(capsys, Absent("n/a: have 208, need 459"))
