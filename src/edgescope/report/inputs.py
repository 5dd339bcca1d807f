"""What the user's data are and what the network sees of them: facts, and the first few inputs as pictures.

They are not in a result, which would carry them as often as there are replicates. The process that prepares leaves them
in the cache (data/dataset_model.py); where they are gone, the page says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edgescope import cache, units
from edgescope.records import Result, Trial, digest
from edgescope.report import document as doc
from edgescope.report.chapter import Chapter

AT_CHANCE = "W-LABEL-1"
"""The warning that stands before everything else: fp32 is no better than chance on the labels."""
NAMED = 3
"""Number of files that an answer names."""


def place(trial: Trial) -> Path:
    """Return where the facts and pictures of a trial's data lie."""
    shapes = {name: shape[1:] for name, shape in trial.shapes.items()}
    return cache.root() / "shown" / f"{digest([trial.model, trial.data, trial.preprocess, shapes])}.json"


def doubts(results: Iterable[Result]) -> list[doc.Part]:
    """Return the first lines of an answer where labels are not those of the network; [] where nothing says so."""
    found = dict.fromkeys(str(w) for r in results for w in r.warnings if w.code == AT_CHANCE)
    return [doc.Text(doc.Mark(text, "warn")) for text in found]


def unread(trial: Trial) -> str:
    """Return how many files of a trial's data could not be read, and the first names; '' if all could."""
    names = (cache.read_json(place(trial)) or {}).get("unread", []) if trial.data else []
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    which = f"{', '.join(names[:NAMED])}{more}"
    return f"{units.counted(len(names), 'input')} of {trial.data.partition('#')[0]} cannot be read: {which}"


def section(chapter: Chapter) -> doc.Section | None:
    """Return the section on a chapter's data; None for a model's own inputs."""
    trial = chapter.results[0].trial
    if not trial.data:
        return None
    about = cache.read_json(place(trial))
    ways = dict.fromkeys(r.model.prepared for r in chapter.results if r.model and r.model.prepared)
    prepared = doc.Pairs(tuple(("prepared", way) for way in ways), level=doc.DETAIL) if ways else None
    if about is None:
        gone = f"{trial.data}: its pictures are no longer in the cache of this machine."
        return doc.Section("Your data", (prepared, doc.Text(gone, "lead", doc.PAGE)), level=doc.DETAIL)
    facts = doc.Pairs(tuple((key, value) for key, value in about["facts"]), level=doc.DETAIL)
    pictures = doc.Pictures(tuple((one["png"], one["caption"]) for one in about["pictures"]))
    return doc.Section(
        "Your data", (facts, prepared, pictures if about["pictures"] else None), level=doc.DETAIL
    )
