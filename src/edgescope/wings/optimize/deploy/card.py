"""Makes the card of a deployed model: how it was built, measured and checked, as JSON and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

import edgescope
from edgescope.analysis.cells import variants
from edgescope.analysis.cells.objective import Wanted
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.metrics import METRICS
from edgescope.records import Json, Measured, Result, Verification
from edgescope.records.codec import field_to_json, to_plain


def _figures_shown() -> list[str]:
    """Return the names of a card's metrics: those that compare variants, except the gate's; the speed-up last."""
    known = [m for m in METRICS.values() if {"table", "pareto"} & set(m.shown) and not m.artifact]
    return [m.name for m in sorted(known, key=lambda m: m.name == "speedup")]


def page(table: VariantTable, row: Row, wanted: Wanted, results: Sequence[Result]) -> dict[str, Json]:
    """Return the card as data: trial, figures with intervals, gate, machine, versions, command."""
    newest = max(row.replicates.values(), key=lambda r: r.started_at)
    state = newest.machine.state
    check = newest.verification
    chosen = variants.pick(table, wanted.objective)
    picked = chosen.row is not None and chosen.row.cell == row.cell
    return {
        "model": row.trial.model,
        "label": row.label,
        "trial": row.trial.to_json(),
        "objective": wanted.objective,
        "constraints": [c.text for c in wanted.constraints],
        "reason": chosen.reason if picked else "not the pick",
        "guess": chosen.guess if picked else "",
        "measured": {
            "baseline": table.row(table.baseline).label,
            "processes": len(row.replicates),
            "figures": {name: field_to_json(row[name]) for name in _figures_shown()},
            "power_scope": _scope(newest),
            "verdict": {"trust": row.verdict.trust.value, "evidence": list(row.verdict.evidence)},
            "results": [r.id for r in row.replicates.values()],
            "compared_with": sorted(r.label for r in (*table.rows, *table.screened) if r.cell != row.cell),
            "runs_in_all": len(results),
        },
        "ran_as": to_plain(newest.effective),
        "checked": {"when_measured": checked(check) if check is not None else None},
        "machine": {"id": newest.machine.id, **to_plain(newest.machine.stable)},
        "versions": to_plain(state.get("packages", {})) | {"edgescope": edgescope.__version__},
        "command": to_plain(state.get("command")),
        "written_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def checked(check: Verification) -> dict[str, Json]:
    """Return a Verification as plain JSON."""
    return {
        "passed": check.passed,
        "method": check.method,
        "threshold": check.threshold,
        "detail": check.detail,
        "reference": check.reference,
        "fields": {name: field_to_json(f) for name, f in check.fields.items()},
    }


def _scope(result: Result) -> Json:
    """Return which parts of the machine the power readings cover, or None if there were none."""
    channels = result.readings.channels if result.readings is not None else ()
    return sorted({c.scope for c in channels if c.unit in ("W", "J") and c.status == "measured"}) or None


def markdown(card: dict[str, Json]) -> str:
    """Return the card as Markdown."""
    measured, artifact = card["measured"], card["artifact"]
    lines = [f"# {card['model'].partition('#')[0]}: {card['label']}", "", card["reason"], ""]
    if card["guess"]:
        lines += [f"**A guess**: it is not shown to be better than {card['guess']}.", ""]
    lines += ["## Run it", ""]
    lines += ["    python run.py", "", f"`{artifact['file']}`, {artifact['bytes'] / 1e6:.1f} MB, SHA-256"]
    lines += [f"`{artifact['sha256']}`."]
    lines += [
        f"Its weights: `{place}`, {about['bytes'] / 1e6:.1f} MB, SHA-256 `{about['sha256']}`."
        for place, about in artifact["weights"].items()
    ]
    if artifact["left_out_of_run_py"]:
        lines += [f"run.py leaves out: {', '.join(artifact['left_out_of_run_py'])} (same answers, slower)."]
    if artifact["file"].endswith(".pt2"):
        lines += ["The figures were measured with the module itself; torch.export made this file from it."]
    lines += ["", "## Input", "", *_input(card["preprocess"])]
    lines += ["", "## Measured", "", "| | value | 95 % interval | n |", "|---|---|---|---|"]
    figures = [_figure(METRICS[name].title.lower(), f) for name, f in measured["figures"].items()]
    lines += [figures[0], _loop(measured["run_py"]), *figures[1:]]
    lines += [
        "",
        f"In {measured['processes']} fresh processes, interleaved with {measured['baseline']} (the baseline)",
    ]
    lines += ["and others; run.py in one process after all of them."]
    lines += [f"Verdict: {measured['verdict']['trust']}: {'; '.join(measured['verdict']['evidence'])}."]
    if card["constraints"]:
        lines += [f"Constraints kept: {', '.join(card['constraints'])}."]
    lines += ["", "## Checked", ""]
    words = {"when_measured": "When it was measured", "run_py": "run.py, in a separate process"}
    lines += [
        f"* {words[k]}: {c['detail']} (against {c['reference']})" for k, c in card["checked"].items() if c
    ]
    if "absent" not in card["check"]:
        lines += [
            f"* `python run.py --check DATA` repeats this check on the {card['check']['n']} inputs of your data."
        ]
    lines += ["", "## Holds for", "", f"* {_facts(card['valid_for'])}"]
    lines += [
        "* on another machine run.py says so: run edgescope optimize again there",
        "",
        "## Where",
        "",
        f"* machine `{card['machine']['id']}`: {_facts(card['machine'])}",
    ]
    lines += [f"* {_facts(card['versions'])}", f"* command: `{_command(card['command'])}`", ""]
    return "\n".join(lines)


def _input(prepared: Json) -> list[str]:
    """Return how a picture becomes the input: its size, its channels, its normalisation."""
    if prepared is None:
        return ["Arrays by name, as in `sample.npz`; how a picture becomes one is not known."]
    several = {name: ", ".join(f"{v:g}" for v in prepared[name]) for name in ("mean", "std")}
    return [
        "`python run.py PICTURE` (needs Pillow) prepares a picture like this:",
        "",
        f"* size (width x height), resize, filter: {', '.join(prepared['said'].split(', ')[:3])}",
        f"* channel order: {'grey' if len(prepared['mean']) == 1 else prepared['order'].upper()}",
        f"* normalisation: (pixel / {prepared['divide']:g} - mean) / std, mean {several['mean']}, std {several['std']}",
    ]


def _figure(words: str, field: Json) -> str:
    if "absent" in field:
        return f"| {words} | not measured: {field['absent']} | | |"
    read = Measured(**field)
    shown = variants.show(read).partition(" [")
    return f"| {words} | {shown[0]} | {'[' + shown[2] if shown[2] else ''} | {read.n} |"


def _loop(timed: Json) -> str:
    """Return the table row with run.py's own median time, to print below the median latency of the comparison."""
    return (
        f"| run.py alone, median of its calls | {timed['median_s'] * 1e3:.4g} ms | | {timed['calls']} calls |"
    )


def _facts(facts: Json) -> str:
    """Return facts in one line; absent facts and lists of words are only in the JSON."""
    said = ((k, _fact(v)) for k, v in facts.items() if k != "id")
    return "; ".join(f"{k}: {text}" for k, text in said if text)


def _fact(value: Json) -> str:
    if isinstance(value, dict):
        said = ((k, _fact(v)) for k, v in value.items() if k != "absent")
        return ", ".join(f"{k} {text}" for k, text in said if text)
    if isinstance(value, list):  # the names of a machine's GPUs; their other facts are in the JSON
        return " and ".join(text for v in value if isinstance(v, dict) and (text := _fact(v.get("name", ""))))
    return str(value)


def _command(command: Json) -> str:
    """Return the command as it was typed, without the folder of the program."""
    text = " ".join(command) if isinstance(command, list) else str(command or "not recorded")
    return re.sub(r"^.*?/(edgescope) ", r"\1 ", text)
