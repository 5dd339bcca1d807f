"""Convert results that an earlier edgescope stored to today's schema: new field names, the same figures.

Schema 1 called `colocated` beside, `min_agreement` gate and `time_slicing` shared, and kept the options of four
scenarios in one text, `arrivals`. A message was one line of text, and codes of workers began with E-CREW.
Whether workers were reused from the trial before was one of the machine's facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from edgescope.errors import Message
from edgescope.records.field import Json

RENAMED = {"beside": "colocated", "gate": "min_agreement"}
METRICS = {
    "beside_throughput_sps": "colocated_throughput_sps",
    "beside_latency_p99_s": "colocated_latency_p99_s",
}
USUAL_GAPS = "0,10,33,100,1000,10000"


def migrated(data: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a stored result's JSON in today's schema; KeyError or ValueError if it is incomplete."""
    return _from_1(data) if data["schema_version"] == 1 else data


def _from_1(data: Mapping[str, Json]) -> Mapping[str, Json]:
    trial = {RENAMED.get(name, name): value for name, value in data["trial"].items()}
    if trial.get("sharing") == "shared":
        trial["sharing"] = "time_slicing"
    arrivals = str(trial.pop("arrivals", ""))
    options = _OPTIONS.get(trial.get("scenario", ""))
    trial["scenario_options"] = options(arrivals) if arrivals and options else {}
    metrics = {METRICS.get(name, name): value for name, value in data["metrics"].items()}
    state = dict(data["machine"]["state"])
    reused = state.pop("warm", False) is True
    return {
        **data,
        "trial": trial,
        "metrics": metrics,
        "reason": vars(message(data["reason"])) if data.get("reason") else None,
        "warnings": [vars(message(text)) for text in data["warnings"]],
        "process": "reused" if reused else "fresh",
        "machine": {**data["machine"], "state": state},
    }


LINE = re.compile(
    r"(?P<code>[EWI]-[A-Z]+(?:-\d+)?): (?P<what>.*?)(?: \((?P<evidence>.*)\))?\.(?: (?P<effect>.*)\.)?",
    re.DOTALL,
)


def message(text: str) -> Message:
    """Return a stored line as a Message that reads the same; a line without a code gets E-OLD-1."""
    body, _, fix = text.partition(" Try: ")
    if (found := LINE.fullmatch(body)) is not None:
        parts = {name: part or "" for name, part in found.groupdict().items()}
        code = parts.pop("code").replace("-CREW-", "-WORKER-")
        return Message(code, fix=fix, **parts)
    return Message("E-OLD-1", text)


def _trace(text: str) -> dict[str, Json]:
    looped = text.startswith("loop:")
    return {"trace": text.removeprefix("loop:")} | ({"loop": True} if looped else {})


_OPTIONS: Mapping[str, Callable[[str], dict[str, Json]]] = {
    "burst": lambda text: {"burst_size": int(text)},
    "trace": _trace,
    "idle_gap": lambda text: {} if text == USUAL_GAPS else {"gaps_ms": text},
    "mlperf_server": lambda text: {"target_latency_ms": float(text.removesuffix("ms"))},
}
"""Scenario -> the option that `arrivals` stood for."""
