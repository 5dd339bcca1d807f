"""Tables of files and labels: separators, quotes, headings, encodings, labels spelt in other ways, empty lines."""

from __future__ import annotations

import random
import re
from pathlib import Path

from fuzz_foreign import Told

from edgescope.data import csv
from edgescope.errors import UsageError

MOST, FILES = 60, 8
HEADS = (None, ("file", "label"), ("Filename", "Class"), ("image path", "category_id"), ("id", "breed"))
NOTHING = ("", "NaN", "NA", "null")
RUBBISH = ('"', "\0", ",", ";", "\n", "\r", "\t", "é", "\ud800", "/", "../", "'")


def attempt(rng: random.Random, folder: Path) -> Told:
    """Write a table of up to MOST lines, read it; every label must be the number that was meant."""
    for i in range(FILES):
        (folder / f"{i}.png").write_bytes(b"")
    rows = [(f"{rng.randrange(FILES)}.png", _label(rng)) for _ in range(rng.randint(1, MOST))]
    text = _text(rng, rows)
    damaged = rng.random() < 0.1
    if damaged:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(RUBBISH) + text[at + rng.randint(0, 2) :]
    path = folder / "a.csv"
    path.write_bytes(text.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16", "utf-32")), "surrogatepass"))
    try:
        found = csv.read(str(path))
    except UsageError:
        assert damaged, f"a sound table was refused: {text[:200]!r}"
        raise
    noted = sum(int(n) for n in re.findall(r"(\d+) of \d+ files have no label", " ".join(found.notes)))
    if damaged:
        return Told(0, len(found.records), noted)
    meant = [(file, None if label in NOTHING else int(float(label))) for file, label in rows]
    assert [(record.name, record.label) for record in found.records] == meant, text[:200]
    return Told(len(rows), len(found.records), noted, len(rows))


def _label(rng: random.Random) -> str:
    number = rng.randrange(13)
    forms = (f"{number}", f"{number}.0", f" {number}", f"{number:03}", f"{number}.", rng.choice(NOTHING))
    return rng.choice(forms)


def _text(rng: random.Random, rows: list[tuple[str, str]]) -> str:
    """Return the lines, with what other programs add to them."""
    separator, end, quote = rng.choice(",;\t"), rng.choice(("\n", "\r\n", "\r")), rng.choice(('"', ""))
    more, head = rng.choice((0, 0, 1)), rng.choice(HEADS)
    lines = [[f"{quote}{cell}{quote}" for cell in row] + [""] * more for row in rows]
    if head is not None:
        lines.insert(0, [f"{quote}{word}{quote}" for word in head])
    for _ in range(rng.choice((0, 0, 1, 3))):
        lines.insert(rng.randint(1, len(lines)), rng.choice(([""], ["", ""], ["", "", " "])))
    return end.join(separator.join(line) for line in lines) + rng.choice(("", end))
