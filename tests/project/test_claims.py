"""Every measured figure in README.md and docs/ is what its published page says, and none stands there without one."""

import functools
import json
import math
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parents[1]
ROOT = HERE.parent
TABLE = tomllib.loads((HERE / "claims.toml").read_text())
CLAIMS = TABLE["claim"]
NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNIT = r"(?:x(?![\w\d])|\s?%|\s?(?:ms|us|s|mJ|J|W|MB|GB|TFLOP/s|GB/s|samples/s|queries/s|bytes)\b)"
FIGURE = re.compile(rf"(?<![\w.,/#^=<>-]){NUMBER}(?:{UNIT}|x? \[{NUMBER}%?, {NUMBER}%?\])")
"""What looks measured: a number with a unit, or one with an interval."""


@functools.cache
def published(name: str):
    page = json.loads((ROOT / "published" / f"{name}.json").read_text())
    return {run: one["figures"] for run, one in page["runs"].items()} if "runs" in page else page["figures"]


class Pages(dict):
    """Names of a claim's figures: any published page's by its name, read when asked for."""

    def __missing__(self, name: str):
        if not (ROOT / "published" / f"{name}.json").exists():
            raise KeyError(name)
        return published(name)


def mps_gains(cells):
    """Return throughput under MPS over time slicing, by (model, precision, batch, processes)."""
    rates = {}
    for cell in cells:
        asked = cell["trial"]
        key = tuple(asked[name] for name in ("model", "precision", "batch", "processes"))
        rate = cell["metrics"].get("throughput_sps")
        if rate:
            rates.setdefault(asked["sharing"], {})[key] = sum(rate) / len(rate)
    return {
        key: rate / rates["time_slicing"][key]
        for key, rate in rates["mps"].items()
        if key in rates["time_slicing"]
    }


PAGES = Pages(
    mps_gains=mps_gains,
    len=len,
    gmean=lambda values: math.exp(sum(map(math.log, values := list(values))) / len(values)),
    mean=lambda values: sum(values := list(values)) / len(values),
    min=min,
    max=max,
    float=float,
    round=round,
    sum=sum,
    zip=zip,
)


def evaluated(code: str, **names):
    return eval(code, Pages(PAGES, __builtins__={}, **names))


def printed(claim) -> list[re.Pattern]:
    """Return the claim's sentence with the published figures in it, one of each element of `each`."""
    found = []
    for it in evaluated(claim["each"]) if "each" in claim else [None]:
        figures = [figure.rpartition(" :") for figure in claim["is"]]
        texts = [format(evaluated(value, it=it), form) for value, _, form in figures]
        parts = re.split(r"\s*…\s*", flat(claim["says"].format(*texts)))
        found.append(re.compile("[^\n]*?".join(map(re.escape, parts)).replace("\\ ", r"\s+")))
    return found


def flat(text: str) -> str:
    return " ".join(text.split())


def prose(page: str) -> str:
    """Return a page without its code blocks and the targets of its links."""
    text = re.sub(r"```.*?```", " ", (ROOT / page).read_text(), flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


def without(text: str, patterns: list[re.Pattern]) -> str:
    for pattern in patterns:
        text = pattern.sub(" . ", text)
    return text


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: f"{c['page']}: {c['says'][:50]}")
def test_a_figure_is_the_published_one(claim):
    text = prose(claim["page"])
    for pattern in printed(claim):
        assert pattern.search(text), pattern.pattern


@pytest.mark.parametrize("page", TABLE["complete"])
def test_no_figure_stands_on_a_page_without_its_source(page):
    text = prose(page)
    for claim in CLAIMS:
        if claim["page"] == page:
            text = without(text, printed(claim))
    for other in TABLE["not_measured"]:
        if other["page"] == page:
            assert other["why"]
            text = without(text, [said(other)])
    text = re.sub(r"`[^`]*`", " ", text)
    left = [flat(text[max(0, m.start() - 60) : m.end() + 30]) for m in FIGURE.finditer(text)]
    assert not left, "\n".join(left)


def said(other) -> re.Pattern:
    return re.compile(r"\s+".join(map(re.escape, other["says"].split())))


@pytest.mark.parametrize("other", TABLE["not_measured"], ids=lambda o: f"{o['page']}: {o['says'][:50]}")
def test_what_is_no_measurement_still_stands_there(other):
    assert said(other).search(prose(other["page"]))


def test_a_figure_without_a_source_is_found():
    assert FIGURE.findall("about 3.1x faster, 0.98 [0.97, 0.99], 12 ms, 5 %") == [
        "3.1x",
        "0.98 [0.97, 0.99]",
        "12 ms",
        "5 %",
    ]
