"""Machines as the recorded boards describe themselves, and made-up results of a study on them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from edgescope.devices import manifest, replay
from edgescope.records import Machine, Measured, Meter, Result, Trial
from edgescope.registry import REPLAYED
from making import result


def described(name: str) -> Machine:
    """The board as itself: the facts of its recording, without the mark of a replay."""
    found = manifest.machine(replay.devices(name))
    return Machine(
        *({k: v for k, v in facts.items() if k != REPLAYED} for facts in (found.stable, found.state))
    )


def figure(value: float, unit: str, spread: float = 0.01) -> Measured:
    return Measured(value, unit, value * (1 - spread), value * (1 + spread), 50)


def ran(
    machine: Machine,
    trial: Trial,
    rate: float,
    watts: float | None = None,
    scope: str = "module",
    **more: float,
) -> Result:
    """One run on a board: samples a second, watts, and other metrics, each with an interval of one per cent."""
    noisy = rate * (1 + 0.001 * (trial.replicate - 1))
    figures: Mapping[str, Measured] = {
        "throughput_sps": figure(noisy, "samples/s"),
        "latency_p50_s": figure(1 / noisy, "s"),
        "peak_rss_bytes": Measured(1e9, "bytes"),
        **{name: figure(value, UNITS.get(name.rpartition("_")[2], "1")) for name, value in more.items()},
    }
    if watts is not None:
        figures = {
            **figures,
            "power_w": figure(watts, "W"),
            "energy_per_sample_j": figure(watts / noisy, "J"),
        }
    meter = Meter("vdd_in", scope, "counter") if watts is not None else None
    made = result(trial, metrics=figures, machine=machine, meter=meter)
    return replace(made, id=f"{trial.id}-20261121T0801{trial.replicate:02d}-abc123")


UNITS = {"s": "s", "bytes": "bytes", "share": "share"}


def saved(store, results: Iterable[Result]) -> None:
    for each in results:
        store.save(each)
