"""An offload answer as a page, as CSV (the curve) or as JSON (everything): the file's suffix says which."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from edgescope.analysis.offload.model import Option
from edgescope.analysis.offload.question import Question
from edgescope.plots.break_even import break_even
from edgescope.report import offload_words as words
from edgescope.report import writable
from edgescope.report.figures import plotted
from edgescope.report.html import shell
from edgescope.report.markup import Markup, join, tag
from edgescope.report.numbers import Format, joules, rates, times
from edgescope.report.offload_json import facts
from edgescope.report.page_table import cell
from edgescope.store import whole_file

SUFFIXES = (".html", ".csv", ".json")
CAPTION = (
    "Above a line the cloud is better, or good enough; a line ends where no bandwidth helps, because round trip and "
    "remote service alone take too long. Bandwidth down moves in proportion."
)


def write(found: Question, path: Path, command: str = "") -> Path:
    """Write the answer in the format of the suffix and return the path."""
    render = {".html": page, ".csv": lambda f, c: table(f), ".json": plain}[writable(path, SUFFIXES)]
    return whole_file.write_text(path, render(found, command))


def table(found: Question) -> str:
    """Return the curve as CSV; an empty cell says that no bandwidth is enough, 0 that any is."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("rtt_s", f"equal_{found.curve.quantity}_up_bps", "keeps_constraints_up_bps"))
    rows.writerows((p.rtt_s, p.equal_bps, p.fits_bps) for p in found.curve.points)
    return out.getvalue()


def plain(found: Question, command: str) -> str:
    """Return the answer as JSON: what `--json` prints."""
    return json.dumps(facts(found, command), indent=1) + "\n"


def page(found: Question, command: str) -> str:
    """Return the answer as one self-contained HTML page."""
    trial = found.model.local.row.trial
    title = f"Edge or cloud: {trial.model}"
    body = join(
        tag("header", tag("h1", title)),
        _answer(found),
        plotted("break-even", "Break-even", CAPTION, break_even(found)),
        _options(found),
        _rests_on(found),
        tag("section", tag("h3", "Made by"), tag("pre", tag("code", command))) if command else None,
    )
    return shell(title, body, plots=True)


def _answer(found: Question) -> Markup:
    lines = [*words.flips(found), *words.borders(found)]
    return tag(
        "section",
        tag("p", "Answer", class_="eyebrow"),
        tag("p", words.pick(found), class_="pick"),
        tag("p", found.answer.reason, class_="reason"),
        tag("ul", [tag("li", line) for line in lines], class_="missing"),
        class_="answer" if found.answer.pick else "answer none",
    )


COLUMNS = (
    ("p50", "p50_s", times),
    ("p99", "p99_s", times),
    ("Throughput", "throughput_sps", rates),
    ("Energy a sample, at the edge", "energy_per_sample_j", joules),
)


def _options(found: Question) -> Markup:
    options = found.answer.options
    looks = [(name, column, form(o.figures[column] for o in options)) for name, column, form in COLUMNS]
    head = [tag("th", "Answered", scope="col")]
    head += [
        tag("th", n, tag("span", look.unit, class_="unit"), class_="num", scope="col") for n, _, look in looks
    ]
    rows = [_row(found, o, looks) for o in options]
    inner = tag("table", tag("thead", tag("tr", head)), tag("tbody", rows), class_="variants stack")
    return tag("section", tag("h3", "What was weighed"), tag("div", inner, class_="scroll"))


def _row(found: Question, option: Option, looks: list[tuple[str, str, Format]]) -> Markup:
    busy = ", ".join(f"{what} busy {share:.0%}" for what, share in option.busy)
    why = [tag("div", text, class_="why") for text in (*option.broken, busy) if text]
    how = "modelled from measured rows" if option.modelled else "measured"
    cells = [cell(option.figures[column], look, name) for name, column, look in looks]
    kind = "picked" if option is found.answer.pick else "rejected" if option.broken else None
    return tag(
        "tr", tag("th", option.words, tag("div", how, class_="why"), why, scope="row"), cells, class_=kind
    )


def _rests_on(found: Question) -> Markup:
    sides = (("edge", found.model.local), ("cloud", found.model.remote))
    places = [f"{side}: {p.row.trial.label} on {p.machine}, {p.service.n:,} queries" for side, p in sides]
    lines = [*places, f"network: {words.network(found.network)}", *words.absences(found), *found.notes]
    return tag(
        "section",
        tag("h3", "What this rests on"),
        tag("ul", [tag("li", line) for line in lines], class_="missing"),
    )
