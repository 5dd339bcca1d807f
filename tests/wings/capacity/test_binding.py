"""Which limit is named, on both sides of every threshold."""

import re
from dataclasses import replace

import pytest

from edgescope import units
from edgescope.analysis.run.slowdowns import Hold
from edgescope.analysis.run.usage import Usage
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.wings.capacity.answer import binding, evidence, serving
from edgescope.wings.capacity.question import (
    Compliance,
    Held,
    Point,
    client_constraints,
    judge,
    near,
    words,
)
from making import result

NONE = Absent("not read")


def share(value):
    return Measured(value, "share", n=9)


def used(cpu=None, others=0.0, gpu=None, sm=None, decoder=None, holds=()):
    def field(value):
        return NONE if value is None else share(value)

    return Usage(
        field(cpu), field(others), 2.0, field(gpu), field(sm), field(decoder), NONE, NONE, tuple(holds)
    )


@pytest.mark.parametrize(
    ("parts", "busy", "part", "text"),
    [
        ({"cpu": 0.90}, 1.0, "cpu", "CPU busy 90%"),
        ({"cpu": 0.89}, 1.0, "", "no part is busy throughout (CPU 89%)"),
        ({"cpu": 0.45}, 0.5, "cpu", "CPU busy 45%"),  # busy whenever a query is served
        ({"cpu": 0.44}, 0.5, "", "no part is busy throughout (CPU 44%)"),
        ({"cpu": 0.95}, 1.5, "cpu", "CPU busy 95%"),
        ({"cpu": 0.2, "gpu": 0.9}, 1.0, "gpu", "GPU busy 90%"),
        ({"cpu": 0.2, "gpu": 0.5, "sm": 0.95}, 1.0, "gpu", "GPU's multiprocessors busy 95%"),
        ({"cpu": 0.95, "gpu": 0.95}, 1.0, "", "the figures conflict: CPU busy 95%, GPU busy 95%"),
        ({"decoder": 0.95}, 1.0, "decoder", "decoder busy 95%"),
        ({}, 1.0, "", "not known (not read)"),
        # others count from a tenth of the cores on, and only where both together fill them
        ({"cpu": 0.5, "others": 0.5}, 1.0, "cpu", "CPU busy 100%, 50% of it with other programs"),
        ({"cpu": 0.80, "others": 0.10}, 1.0, "", "no part is busy throughout (CPU 80%)"),
        ({"cpu": 0.80, "others": 0.11}, 1.0, "cpu", "CPU busy 91%, 11% of it with other programs"),
        ({"cpu": 0.60, "others": 0.29}, 1.0, "", "no part is busy throughout (CPU 60%)"),
        ({"cpu": 0.20, "others": 0.75}, 1.0, "", "other programs use 75% of the cores, this one 20%"),
        ({"cpu": 0.25, "others": 0.74}, 1.0, "cpu", "CPU busy 99%, 74% of it with other programs"),
        ({"cpu": 0.5, "others": 0.5, "gpu": 0.95}, 1.0, "gpu", "GPU busy 95%"),
    ],
)
def test_the_part_that_serves_is_the_one_that_is_busy_while_queries_are(parts, busy, part, text):
    assert serving(used(**parts), busy) == (part, text)


def held(text, value, bound=None, kept=Compliance.NO, **keys):
    asked = client_constraints([text])[0]
    top = share(bound if bound is not None else value)
    return Held(asked, Measured(value, asked.metric.unit, n=9), top, kept, **keys)


def a_point(*promises_, busy=0.5, clients=5, status=Status.OK, sustained=True, processes=1, device="cpu"):
    run = result(
        Trial(model="null", backend="null", processes=processes, device=device), status=status, readings=None
    )
    kept = Compliance.NO if promises_ else Compliance.YES
    field = NONE if busy is None else share(busy)
    return Point(
        clients, "search", run, 9.0, 50.0, NONE, field, NONE, promises_, kept, True, "why", sustained
    )


AT = a_point(clients=4)
LATE = held("p99<40ms", 0.1)


@pytest.mark.parametrize(
    ("point", "name"),
    [
        (a_point(LATE, status=Status.OOM), "memory"),
        (a_point(held("memory<1GB", 2e9)), "memory"),
        (a_point(held("memory<1GB", 0.5e9)), "latency"),
        (a_point(held("power<5W", 6.0)), "power"),
        (a_point(held("energy<5mJ", 0.006)), "power"),
        (a_point(held("power<5W", 4.0)), "latency"),
        (a_point(), "not known"),
        (a_point(LATE, busy=None), "not known"),
        (a_point(LATE, busy=0.94), "latency"),
        (a_point(LATE, busy=0.95), "not known"),  # no room, and nothing was read
        (a_point(LATE, busy=0.79, sustained=False), "latency"),
        (a_point(LATE, busy=0.80, sustained=False), "not known"),
    ],
)
def test_the_limit_of_a_run_beside_which_nothing_was_read(point, name):
    assert binding(point, AT).name == name


def test_one_client_that_misses_alone_misses_the_promise_itself():
    assert binding(a_point(LATE, clients=1), None).name == "promise"
    assert binding(a_point(LATE, clients=2), None).name == "latency"
    assert binding(a_point(LATE, clients=1), AT).name == "latency"
    assert binding(None, AT).name == "untried"


@pytest.mark.parametrize(
    ("cause", "name"),
    [
        ("power cap", "power"),
        ("over-current", "power"),
        ("under-voltage", "power"),
        ("thermal", "heat"),
        ("some guard", "latency"),
    ],
)
def test_guards_that_hold_the_clocks_are_power_or_heat(monkeypatch, cause, name):
    hold = Hold("throttled_x", cause, 0.5, 9, 1.0, 0.0)
    monkeypatch.setattr("edgescope.wings.capacity.answer.usage", lambda run: used(holds=[hold]))
    found = binding(a_point(LATE), AT)
    assert found.name == name and f"clocks held down: {hold}" in found.evidence


@pytest.mark.parametrize(
    ("parts", "busy", "processes", "name"),
    [
        ({"cpu": 0.95}, 0.96, 1, "cpu"),
        ({"cpu": 0.3}, 0.96, 1, "servers"),
        ({"cpu": 0.3}, 0.96, 2, "not known"),
        ({"cpu": 0.3, "others": 0.9}, 0.96, 1, "not known"),  # the machine is not idle
        ({"cpu": 0.95}, 0.5, 1, "latency"),
        ({"cpu": 0.95}, 0.5, 2, "cpu"),  # the processes fill it between them
        ({"cpu": 0.94}, 0.5, 2, "latency"),
        ({"gpu": 0.95}, 0.5, 2, "gpu"),
    ],
)
def test_servers_are_short_of_what_is_busy(monkeypatch, parts, busy, processes, name):
    monkeypatch.setattr("edgescope.wings.capacity.answer.usage", lambda run: used(**parts))
    assert binding(a_point(LATE, busy=busy, processes=processes), AT).name == name


def test_what_more_servers_would_do_is_said(monkeypatch):
    monkeypatch.setattr("edgescope.wings.capacity.answer.usage", lambda run: used(cpu=0.3))
    assert re.search(r"\b1 query at .* busy 96%", binding(a_point(LATE, busy=0.96), AT).sentence)
    assert "3 queries at a time" in binding(a_point(LATE, busy=0.96), AT, in_flight=3).sentence


def test_the_evidence_is_a_line_a_figure_and_long_reasons_are_cut():
    long = Absent("no power sensor: " + "x" * 60)
    lines = evidence(a_point(LATE, busy=0.5), replace(used(cpu=0.25), power=long))
    assert lines == (
        "servers had a query: 50%",
        "CPU (of the allowed cores, by this): 25%",
        "CPU (other programs): 0%",
        "memory left: not read",
        "power: no power sensor",
        "decoder: not read",
    )
    full = replace(used(gpu=0.5, sm=0.25), memory_free=Measured(2e9, "bytes"), power=Measured(7.5, "W"))
    on_gpu = evidence(a_point(LATE, device="cuda"), full)
    assert "GPU (any kernel): 50%" in on_gpu and "GPU (SM active): 25%" in on_gpu
    assert "memory left: 2 GB" in on_gpu and "power: 7.5 W" in on_gpu


def test_the_slowest_stage_of_a_pipeline_is_named():
    point = a_point(LATE, busy=0.5)
    busy = {"decode_busy_s": Measured(0.001, "s"), "infer_busy_s": Measured(0.008, "s")}
    run = replace(point.result, metrics={**point.result.metrics, **busy})
    (*_, last) = evidence(replace(point, result=run), used(cpu=0.25))
    assert last == "slowest stage: infer, 8 ms of the 9 ms that a unit takes in all stages"


@pytest.mark.parametrize(
    ("bound", "text", "close"),
    [(0.046, "p99<40ms", True), (0.0461, "p99<40ms", False)],
)
def test_a_bound_a_little_beyond_its_limit_is_near(bound, text, close):
    unsure = held(text, 0.03, bound, Compliance.PERHAPS)
    assert near(replace(a_point(unsure), kept=Compliance.PERHAPS)) is close
    unbounded = replace(unsure, bound=Absent("n/a: have 5, need 459"))
    assert not near(replace(a_point(unbounded), kept=Compliance.PERHAPS))
    assert not near(a_point(unsure))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        *((1.0, "s", "1 s"), (0.999, "s", "999 ms"), (0.0123, "s", "12.3 ms"), (1e-5, "s", "10 us")),
        *((1e9, "bytes", "1 GB"), (9.99e8, "bytes", "999 MB"), (5e5, "bytes", "500 kB")),
        *((1.0, "J", "1 J"), (0.05, "J", "50 mJ"), (7.5, "W", "7.5 W"), (0.5, "W", "500 mW")),
    ],
)
def test_values_are_shown_in_the_unit_people_use(value, unit, text):
    assert units.text(value, unit) == text


def test_a_promise_in_words():
    kept = held("p99<40ms", 0.03, 0.035, Compliance.YES)
    assert words(kept) == "p99 30 ms (bound 35 ms) < 40 ms"
    assert words(held("p99<=40ms", 0.04, 0.041)) == "p99 40 ms (bound 41 ms) > 40 ms"
    assert words(held("p99<=40ms", 0.04, 0.04)) == "p99 40 ms (bound 40 ms) <= 40 ms"
    assert words(held("power<5W", 4.0)) == "power 4 W < 5 W"
    assert words(replace(kept, found=Absent("lost"))) == "p99<40ms cannot be judged: lost"
    few = replace(kept, bound=Absent("n/a: have 20, need 459"), whole=False, kept=Compliance.PERHAPS)
    assert (
        words(few)
        == "the slowest of 9 queries 30 ms < 40 ms, no bound (have 20 independent queries, need 459)"
    )
    late = replace(few, found=Measured(0.05, "s", n=9))
    assert words(late).startswith("the slowest of 9 queries 50 ms > 40 ms, no bound")
    dear = replace(few, likely=False, expected=0.045, whole=True)
    assert words(dear) == "p99 30 ms of 40 ms, and a bound of some 45 ms is to be expected"


def test_a_run_without_rows_says_how_it_ended():
    trial = Trial(model="null", backend="null", max_s=7.0)
    found = judge(
        result(trial, status=Status.TIMEOUT, queries=None, window=None),
        3,
        client_constraints(["p99<40ms"]),
        offered=30.0,
    )
    assert (found.seconds, found.offered, found.why, found.clear) == (
        7.0,
        30.0,
        "the run ended as timeout",
        False,
    )
    assert not found.shown and found.held == ()
