"""Writes docs/evidence.md from tests/evidence.toml and published/: the claims, and what each rests on.

python tests/evidence_page.py docs/evidence.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests/project")]
import facts  # noqa: E402
import test_claims  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = tomllib.loads((ROOT / "tests/evidence.toml").read_text())
HEAD = """# Evidence

What the README and these pages claim, and what each claim rests on: a script in `benchmarks/`, and a run of it in
[published/](../published/) with its command, commit, machine and day. A script with commands tells them without one.
This page is written by `python tests/evidence_page.py docs/evidence.md`. The tests hold it to the files, compare every
figure of the pages with its file, and find a claim whose rules have changed since it was measured.
"""
COLUMNS = "| claim | target | run, script | commit, machine, day | told on |\n|---|---|---|---|---|"


def claims() -> Iterator[dict[str, Any]]:
    """Yield the claims of all sections."""
    for section in TABLE["section"]:
        yield from section["claim"]


def said(claim: dict[str, Any]) -> str:
    """Return the claim with its figures."""
    it = facts.published(claim["of"][0])["figures"]
    figures = [figure.rpartition(" :") for figure in claim["is"]]
    return claim["says"].format(
        *(format(test_claims.evaluated(value, it=it), form) for value, _, form in figures)
    )


def stale(claim: dict[str, Any], rules: dict[str, str] | None = None) -> list[str]:
    """Return the rules of a claim that are others now than when its figures were made."""
    now = rules or facts.rules()  # which reads the source
    named = [rule for group in claim.get("rules", ()) for rule in TABLE["rules"][group]]
    was = facts.published(claim["of"][0]).get("rules", {})
    return [
        f"{rule.rpartition(':')[2]} was {was.get(rule, 'absent')}, is {now[rule]}"
        for rule in named
        if was.get(rule, "absent") != now[rule]
    ]


@cache
def pages() -> dict[str, str]:
    """Return the pages that may cite, by where they lie: none that is itself an index of runs."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {
        str(p.relative_to(ROOT)): p.read_text() for p in found if p.name not in ("evidence.md", "studies.md")
    }


def told_on(claim: dict[str, Any]) -> list[str]:
    """Return the pages that print a figure of the claim's runs, or link to their file."""
    runs = "|".join(re.escape(re.sub(r"/(.*)", r"['\1']", name)) for name in claim["of"])
    used = {
        c["page"]
        for c in test_claims.CLAIMS
        if re.search(rf"\b({runs})(?!\w)", f"{c['is']} {c.get('each', '')}")
    }
    linked = {page for page, text in pages().items() if any(whole(name, text) for name in claim["of"])}
    return sorted(used | linked)


def whole(name: str, text: str) -> bool:
    """Whether a page links to a file of one run, or to this run of a file by its name."""
    file, _, run = name.partition("/")
    link = rf"{file}\.json(: {run}\]|#{run}\))" if run else rf"published/{file}\.(json|md)\b"
    return bool(re.search(link, text))


def row(claim: dict[str, Any]) -> str:
    """Return a claim's line."""
    first = facts.published(claim["of"][0])
    also = ", ".join(f"`{name}`" for name in claim["of"][1:])
    made = f"`{claim['of'][0]}` by `{first['script'].removeprefix('benchmarks/')}`" + (
        f"; also {also}" if also else ""
    )
    made += "".join(
        f"; [as a table](../published/{file})"
        for name in claim["of"]
        if (facts.PUBLISHED / (file := f"{name.replace('/', '_')}.md")).exists()
    )
    where = f"{first['commit']['hash'][:8]}, {machine(first['machine'])}, {first['measured_at'][:10]}"
    older = f". Made by older rules ({'; '.join(stale(claim))}): {claim['older']}" if "older" in claim else ""
    links = ", ".join(
        f"[{Path(page).stem}]({'../' if not page.startswith('docs/') else ''}{page.removeprefix('docs/')})"
        for page in told_on(claim)
    )
    return f"| {said(claim)}{older} | {'kept' if first['met'] else 'missed'} | {made} | {where} | {links} |"


def machine(facts_of: dict[str, Any]) -> str:
    """Return a machine's processor, its cores and its GPU."""
    cpu, gpus = facts_of["cpu"], (facts_of.get("nvidia") or {}).get("gpus", [])
    name = re.sub(r"\(R\)| Processor", "", cpu["cpu"])
    return f"{cpu['logical_cores']} cores of {name}" + (f", {gpus[0]['name']}" if gpus else "")


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for section in TABLE["section"]:
        parts.append(f"## {section['title']}\n\n{COLUMNS}\n" + "\n".join(map(row, section["claim"])) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
