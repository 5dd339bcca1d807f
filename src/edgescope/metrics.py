"""Every metric once: its name, unit and title, which way is better, and where it is shown. metrics.toml is the table.

Tables, pages, comparisons, constraints and JSON read METRICS, in the file's order, so that a metric is added by one
TOML table (`edgescope docs add-a-metric`). The definitions themselves are in `edgescope docs metrics`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.errors import UsageError
from edgescope.records import Absent, Result, Trust, Verdict
from edgescope.registry import REPLAYED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHOWN = ("list", "table", "compare", "pareto")
MERGED = {
    "rows": "computed from the rows of all workers together: counts, rates, pooled quantiles",
    "sum": "the sum over workers; absent where one of them has none",
    "mean": "the mean over workers, each weighed with its count (units, steps ...)",
    "max": "the largest of the workers",
    "machine": "measured once for the machine that all share",
    "gate": "that of worker 0; the others must give the same outputs",
    "cell": "of a cell's runs or of a trace, not of a run: there is nothing to merge",
    "none": "not measured with several workers",
}
"""How the figures of a trial's workers become one."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that a cell has; without a unit, a word that the pages explain."""

    name: str
    title: str
    """What people call it: `Median latency`."""
    unit: str = ""
    """SI, or samples/s, share (printed in per cent), ratio, 1."""
    better: str = ""
    """lower or higher; '' where neither is."""
    heading: str = ""
    """The head of a narrow column, else the title."""
    meaning: str = ""
    """What a page says of it."""
    of: tuple[str, ...] = ()
    """Metrics of a Result that answer for it, the best first: the name itself where the table says nothing."""
    quantile: float | None = None
    """Of a latency: which quantile, 0.99 for p99."""
    of_mark: str = ""
    """The mark of a query that it is the time of; a * stands for the same as in the metric's name."""
    since: str = ""
    """The mark from which that time runs; '' from when the query was due, as its latency does."""
    mark_quantile: float = 0.5
    """Which quantile of that time over the window's queries, of all workers together."""
    bound: tuple[str, ...] = ()
    """Its words in a constraint, the usual one first; of a metric with an objective, in --objective as well."""
    objective: str = ""
    """Its word for --objective."""
    best: str = ""
    """What an objective asks for: `lowest median latency`."""
    scope: bool = False
    """Whether it means nothing without the scope of its meter."""
    artifact: bool = False
    """Whether the gate tells it: it belongs to the artifact, and does not vary from run to run."""
    measure: bool = False
    """Whether it is a measure of right answers: judged on its value, and bounded relative to fp32's (0.99ref), too."""
    largest: bool = False
    """Whether replicates combine to their largest value, as bytes do, and not to their mean."""
    merge: str = ""
    """How several workers' figures become one, a key of MERGED; without it they do not, and the figure is absent."""
    optional: bool = False
    """Whether only some results have it by nature: it is a column, and missed, only where a result has it."""
    shown: tuple[str, ...] = ()
    """list: a column of results; table: of variants; compare: paired, judged; pareto: an axis without constraints."""
    card: str = ""
    """The line of a result's card that it stands on, before latency and throughput."""
    workloads: tuple[str, ...] = ()
    """The workloads that have it; empty: every one."""
    anchor: str = ""
    """The heading of `edgescope docs metrics` that defines it."""

    @property
    def higher(self) -> bool:
        """Whether more is better."""
        return self.better == "higher"

    @property
    def head(self) -> str:
        """The head of a narrow column."""
        return self.heading or self.title

    def belongs(self, workload: str) -> bool:
        """Return whether results of a workload have this metric."""
        return not self.workloads or workload in self.workloads


KNOWN = {f.name: f.default is MISSING for f in fields(Metric)}
"""Key of a table -> whether it must be given."""
KINDS: dict[str, type] = dict.fromkeys(("of", "bound", "shown", "workloads"), tuple)
KINDS |= dict.fromkeys(("quantile", "mark_quantile"), float)
KINDS |= dict.fromkeys(("scope", "artifact", "measure", "largest", "optional"), bool)


def read(text: str) -> dict[str, Metric]:
    """Return the metrics of a TOML text by name; UsageError for a key or a value that no metric has."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unreadable("the table of metrics", str(error)) from error
    return {name: _metric(name, table) for name, table in tables.items()}


def _metric(name: str, table: Mapping[str, object]) -> Metric:
    keys = {"of": [name], **table, "name": name}
    found = {k: tuple(v) if isinstance(v, list) else v for k, v in keys.items()}
    wrong = [k for k, v in found.items() if k not in KNOWN or not isinstance(v, KINDS.get(k, str))]
    wrong += [k for k, needed in KNOWN.items() if needed and k not in found]
    wrong += [word for word in table.get("shown", ()) if word not in SHOWN]  # type: ignore[attr-defined]
    wrong += _wrong_of_mark(found) if not wrong else []
    wrong += ["merge"] if found.get("merge", "") not in ("", *MERGED) else []
    wrong += ["better"] if found.get("better", "") not in ("", "lower", "higher") else []
    if wrong:
        raise _unreadable(f"the metric {name!r}", f"wrong or missing: {', '.join(wrong)}")
    return Metric(**found)  # type: ignore[arg-type]


def _wrong_of_mark(found: Mapping[str, Any]) -> list[str]:
    """Return the keys that are not clear about a mark: a * stands for the same in each, and its rows are pooled."""
    if "of_mark" not in found:
        return [key for key in ("since", "mark_quantile") if key in found]
    stars = [found[key].count("*") for key in ("name", "of_mark", "since") if found.get(key)]
    checks = {
        "of_mark": set(stars) in ({0}, {1}),
        "mark_quantile": 0 < found.get("mark_quantile", 0.5) < 1,
        "unit": found.get("unit") == "s",
        "merge": found.get("merge") == "rows",
    }
    return [key for key, right in checks.items() if not right]


def _unreadable(what: str, why: str) -> UsageError:
    return UsageError(
        "E-METRIC-1",
        f"{what} cannot be read",
        evidence=why,
        effect="No table would know how to show it",
        fix="edgescope docs add-a-metric",
    )


METRICS: dict[str, Metric] = read(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))


def add(text: str) -> None:
    """Add the metrics of a TOML text to those that every table shows."""
    METRICS.update(read(text))


for (
    _name
) in registry.METRICS:  # of installed packages; one that cannot be read is left out, and `doctor` says why
    add(registry.load(registry.METRICS, _name, "metric"))


def find(name: str) -> Metric | None:
    """Return the metric that a figure of a Result belongs to: by name, as one of `of`, or by a pattern (*_busy_s)."""
    known = METRICS.get(name) or next((m for m in METRICS.values() if name in m.of), None)
    return known or next((m for m in METRICS.values() if "*" in m.name and fnmatchcase(name, m.name)), None)


def shown(where: str, workload: str = "") -> list[Metric]:
    """Return the metrics of one of SHOWN in their order; of one workload's results, where it is given."""
    return [m for m in METRICS.values() if where in m.shown and (not workload or m.belongs(workload))]


def objectives() -> dict[str, Metric]:
    """Return word of --objective -> metric: all words of its constraints too, the objective's own before them."""
    return {word: m for m in METRICS.values() if m.objective for word in (m.objective, *m.bound)}


def bounded() -> dict[str, Metric]:
    """Return word of a constraint -> metric."""
    return {word: m for m in METRICS.values() for word in m.bound}


def quantiles() -> dict[str, float]:
    """Return the latency percentiles: name -> quantile, rising."""
    return {m.name: m.quantile for m in METRICS.values() if m.quantile is not None}


def judged_by(method: str) -> str:
    """Return what people call a method of the gate: `top-1`, `mAP`, `top-1 agreement`, or the user's function."""
    known = next((m.head for m in METRICS.values() if method in (m.name, *m.of)), "")
    return known or method.partition("#")[0].rpartition(":")[2]


def scoped(name: str) -> bool:
    """Return whether a metric means nothing without the scope of its meter."""
    return name in METRICS and METRICS[name].scope


# -- a result whose sensors were a recording: its times are this machine's, its watts another's. Measured here, read
#    from a store, or made by an earlier version: no card, row or figure puts the two together.

RECORDING = "the sensors are a recording"
WATTS = Absent(
    "unsupported: the watts are of a recording, not of this run (edgescope energy shows them alone)"
)


def replayed(result: Result) -> bool:
    """Return whether a recording stood in for the machine's sensors."""
    return bool(result.machine.state.get(REPLAYED))


def told_apart(result: Result) -> Result:
    """Return a replayed result without power and energy, its verdict unknown; any other one unchanged.

    Throttling and other load in the recording are the board's: they stay as evidence, and say nothing of these times.
    """
    if not replayed(result):
        return result
    own = [e for e in result.verdict.evidence if e != RECORDING]
    return replace(
        result,
        meter=None,
        warnings=tuple(w for w in result.warnings if not w.code.startswith("W-PWR")),
        metrics={name: WATTS if scoped(name) else value for name, value in result.metrics.items()},
        verdict=Verdict(Trust.UNKNOWN, (RECORDING, *own)),
    )
