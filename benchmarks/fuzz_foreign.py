"""Files that other programs wrote, damaged or oddly varied: nothing is lost without a note, no foreign exception.

A kind of file is one function, found by its name; nothing else lists it:

    KIND_attempt(rng, folder) -> Told    write one file of a few hundred records at most into the folder, spoil it by
                                         `rng`, read it as a user would, say how many records there were and what
                                         became of them

`rng` alone decides, so a case can be made again. What the function must do itself is compare values that it knows
(an AssertionError says what was wrong); what is checked here is the same for all kinds:

- no exception but edgescope's own leaves `attempt`; one of edgescope's own means that the whole file was refused with
  a reason, which is no loss. A kind that may not refuse a certain file catches it and asserts.
- records written <= records read + records that a note counts: nothing is lost without a word.
- undamaged records written <= records read: damage costs itself.

    python benchmarks/fuzz_foreign.py                            # 10^6 records of each kind
    python benchmarks/fuzz_foreign.py --kind kineto --records 20000 --no-publish
    python benchmarks/fuzz_foreign.py --only kineto:0:3:17       # one case again, with its traceback
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from facts import publish
from PIL import Image

from edgescope.errors import EdgescopeError, UsageError
from edgescope.wings import datasets
from edgescope.wings.energy import meter_log
from edgescope.wings.trace.imported import read


@dataclass(frozen=True)
class Told:
    """What became of the records of one file."""

    written: int
    """Records in the file, the damaged ones among them."""
    read: int
    """Records that were read."""
    noted: int = 0
    """Records that notes count as left out."""
    good: int | None = None
    """Records that nothing was done to, which must all be read; None where that is not known."""


COCO_MOST, COCO_FILES = 60, 6
KINDS = (1, 3, 7, 90)
#: Fields with which an annotation cannot be used.
BAD: tuple[dict[str, Any], ...] = (
    *({"category_id": 8}, {"category_id": None}, {"category_id": [1]}, {"category_id": "cat"}),
    *({"image_id": 10**9}, {"image_id": None}, {"image_id": {}}, {"image_id": True}, {"image_id": "x"}),
    *({"bbox": None}, {"bbox": []}, {"bbox": [1, 2, 3]}, {"bbox": [1, 2, 0, 4]}, {"bbox": [1, 2, -3, 4]}),
    *({"bbox": "1 2 3 4"}, {"bbox": [1, 2, "x", 4]}, {"bbox": {"x": 1}}, {"bbox": [1, 2, float("nan"), 4]}),
    *(
        {"bbox": [1e308, 2, float("inf"), 4]},
        {"bbox": 7},
        {"bbox": [[1], 2, 3, 4]},
        {"bbox": [1, 2, 10**400, 4]},
    ),
)
#: Fields that are odd, and take nothing from the annotation.
COCO_STRANGE: tuple[dict[str, Any], ...] = (
    *({"iscrowd": 1}, {"iscrowd": "0"}, {"iscrowd": None}, {"ignore": 1}, {"difficult": True}),
    *({"area": "many"}, {"id": None}, {"id": [1]}, {"segmentation": 5}, {"segmentation": []}, {"score": "é"}),
)
COCO_RUBBISH = ('"', "\\", "}", "]", ",", "{", ":", "\0", "nan", "\ud800")


def coco_attempt(rng: random.Random, folder: Path) -> Told:
    """Write annotations of up to MOST boxes, read them; the sound ones must be there with their corners."""
    images = [
        {"id": i * 7, "file_name": f"{rng.randrange(COCO_FILES)}.png"} for i in range(rng.randint(1, 12))
    ]
    rows, sound = list[dict[str, Any]](), list[tuple[float, ...]]()
    for number in range(rng.randint(1, COCO_MOST)):
        row, corners = _row(rng, number, len(images))
        rows.append(row)
        sound += [corners] if corners else []
    kinds = [{"id": _spelt(rng, kind), "name": str(kind)} for kind in KINDS]
    text = json.dumps({"images": images, "annotations": rows, "categories": kinds})
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(COCO_RUBBISH) + text[at + 1 :]
        sound = []  # whatever was hit
    path = folder / "a.json"
    path.write_bytes(text.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16")), "surrogatepass"))
    _files(folder)
    found = datasets.read_coco(str(path))
    got = sorted(tuple(box[:5]) for record in found.records for box in record.boxes.tolist())
    for corners in sound:
        assert corners in got, f"{corners} is not among {got[:5]}"
    left_out = re.search(r"of \d+ annotations? left out: (.*?)(?:;|$)", " ".join(found.notes))
    noted = sum(map(int, re.findall(r"(\d+) (?:of|without)", left_out[1]))) if left_out else 0
    return Told(len(rows) if sound else 0, len(got), noted, len(sound))


def _row(rng: random.Random, number: int, images: int) -> tuple[dict[str, Any], tuple[float, ...] | None]:
    """Return an annotation, and its corners and class if it can be used."""
    x, y, wide, high = (rng.randint(0, 8), rng.randint(0, 8), rng.randint(1, 9), rng.randint(1, 9))
    kind = rng.choice(KINDS)
    row: dict[str, Any] = {"id": number, "bbox": [x, y, wide, high]}
    row |= {"image_id": _spelt(rng, rng.randrange(images) * 7), "category_id": _spelt(rng, kind)}
    if rng.random() < 0.3:
        row |= rng.choice(COCO_STRANGE)
    if rng.random() < 0.1:
        return row | rng.choice(BAD), None
    if rng.random() < 0.1:
        del row["bbox"]
        row["segmentation"] = [[x, y, x + wide, y, x + wide, y + high], [x, y + high, x, y, x + wide, y]]
    return row, (x, y, x + wide, y + high, KINDS.index(kind))


def _spelt(rng: random.Random, number: int) -> int | str | float:
    return rng.choice((number, number, str(number), float(number), f" {number}", f"{number:03}"))


def _files(folder: Path) -> None:
    for i in range(COCO_FILES):
        if not (folder / f"{i}.png").exists():
            Image.fromarray(np.full((4, 4), i, np.uint8)).save(folder / f"{i}.png")


CSV_MOST, CSV_FILES = 60, 8
CSV_HEADS = (None, ("file", "label"), ("Filename", "Class"), ("image path", "category_id"), ("id", "breed"))
NOTHING = ("", "NaN", "NA", "null")
CSV_RUBBISH = ('"', "\0", ",", ";", "\n", "\r", "\t", "é", "\ud800", "/", "../", "'")


def csv_attempt(rng: random.Random, folder: Path) -> Told:
    """Write a table of up to MOST lines, read it; every label must be the number that was meant."""
    for i in range(CSV_FILES):
        (folder / f"{i}.png").write_bytes(b"")
    rows = [(f"{rng.randrange(CSV_FILES)}.png", _label(rng)) for _ in range(rng.randint(1, CSV_MOST))]
    text = _text(rng, rows)
    damaged = rng.random() < 0.1
    if damaged:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(CSV_RUBBISH) + text[at + rng.randint(0, 2) :]
    path = folder / "a.csv"
    path.write_bytes(text.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16", "utf-32")), "surrogatepass"))
    try:
        found = datasets.read_csv(str(path))
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
    more, head = rng.choice((0, 0, 1)), rng.choice(CSV_HEADS)
    lines = [[f"{quote}{cell}{quote}" for cell in row] + [""] * more for row in rows]
    if head is not None:
        lines.insert(0, [f"{quote}{word}{quote}" for word in head])
    for _ in range(rng.choice((0, 0, 1, 3))):
        lines.insert(rng.randint(1, len(lines)), rng.choice(([""], ["", ""], ["", "", " "])))
    return end.join(separator.join(line) for line in lines) + rng.choice(("", end))


KINETO_MOST = 300
CATEGORIES = (
    *("cpu_op", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver"),
    *("hip_runtime", "xpu_runtime", "privateuse1_runtime", "overhead", "python_function", "mtia_runtime"),
    *("Operator", "Kernel", "Memcpy", "Memset", "Runtime"),
)
NAMES = (
    *("aten::conv2d", "void gemm<half>(int, float*)", "cudaLaunchKernel", "名前 é😀", "", "ProfilerStep#7"),
    *('{"ph": "X"}', "torch\\nn\\modules(1): forward", "a\tb", "<built-in method ]}, {>"),
)
KINETO_RUBBISH = ('"', "\\", "}", "]", ",", "{", ":", "\0", "nan", "\\u12", "\ud800", "[[", '{"', "//", "'")
KINETO_HEADS = (
    "",
    '"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "X", "numSms": 9}], ',
    '"displayTimeUnit": "ms", "baseTimeNanoseconds": 1759309000000000000, ',
)
TAILS = ("", ', "traceName": "t.json"', ', "INFO": ["x", "y"], "ERROR": []', ', "x": {"a": [{}]}, "y": [{}]')
OTHERS = (
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 5, "cat": "ac2g", "name": "ac2g"},
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 7},
    {
        "ph": "X",
        "cat": "Trace",
        "name": "PyTorch Profiler (0)",
        "ts": 1,
        "dur": 9,
        "pid": "Spans",
        "tid": "x",
    },
    {"ph": "X", "cat": "gpu_user_annotation", "name": "x", "ts": 1, "dur": 9, "pid": 0, "tid": 7},
)
#: Fields that are odd: with them the event cannot be read, or only in part.
KINETO_ODD: tuple[dict[str, Any], ...] = (
    *({"dur": -1}, {"dur": "x"}, {"dur": None}, {"dur": 2**64 / 1000}, {"dur": [1]}, {"dur": 1e300}),
    *({"ts": None}, {"ts": "soon"}, {"ts": {}}, {"ts": True}, {"ts": -1e30}, {"cat": None}, {"cat": 7}),
    *({"cat": "unheard of"}, {"ph": "b"}, {"ph": None}, {"ph": 3}),
)
#: Fields that are odd, though the event's times are sound.
KINETO_STRANGE: tuple[dict[str, Any], ...] = (
    *(
        {"args": None},
        {"args": []},
        {"args": "x"},
        {"args": {"device": 10**30, "stream": -5, "bytes": "many"}},
    ),
    *({"args": {"correlation": "12", "device": [0]}}, {"pid": 10**12}, {"tid": "thread 0x7f"}, {"pid": None}),
    *(
        {"name": None},
        {"name": 5},
        {"name": ["a"]},
        {"pid": -1},
        {"tid": 2**64},
        {"args": {"context": 2**40}},
    ),
)


def kineto_attempt(rng: random.Random, folder: Path) -> Told:
    """Write a trace of up to MOST spans, read it; the sound ones must be there with their exact times."""
    parts, sound = zip(*(_event(rng) for _ in range(rng.randint(1, KINETO_MOST))), strict=True)
    texts = list(parts)
    for _ in range(rng.randrange(5)):
        texts.insert(rng.randrange(len(texts) + 1), json.dumps(rng.choice(OTHERS)))
    data = _file(rng, texts)
    path = folder / "trace.json"
    path.write_bytes(data)
    expected = Counter(times for times in sound if times)
    try:
        trace = read(path)
    except UsageError as error:
        assert not expected, f"{len(expected)} sound spans were refused: {error}"
        raise
    start, end = (trace.spans.columns[k].tolist() for k in ("start_ns", "end_ns"))
    missing = expected - Counter((a, b - a) for a, b in zip(start, end, strict=True))
    assert not missing, f"{missing.total()} of {expected.total()} sound spans are missing or have other times"
    noted = sum(trace.facts.get("left_out", {}).values())
    assert (noted > 0) <= bool(trace.notes)
    return Told(len(parts), len(trace.spans), noted, good=expected.total())


def _event(rng: random.Random) -> tuple[str, tuple[int, int] | None]:
    """Return the text of a span, and its exact start and length if they must be read."""
    base = rng.choice((0, 10**6, 10**12, 1_682_725_898_082_228))
    start, length = base * 1000 + rng.randrange(10**9), rng.choice((0, 1, 999, 1000, rng.randrange(10**10)))
    event: dict[str, Any] = {
        **{"ph": "X", "cat": rng.choice(CATEGORIES), "name": rng.choice(NAMES), "pid": rng.randrange(9)},
        **{"tid": rng.randrange(2**33), "ts": "START", "dur": "LENGTH"},
        "args": {"correlation": rng.randrange(99), "device": 0, "stream": 7, "Input Dims": [[1, 2], []]},
    }
    fate = rng.random()
    sound = fate < 0.9
    if not sound and fate < 0.95:
        event |= rng.choice(KINETO_ODD)
    elif sound and fate < 0.05:
        event |= rng.choice(KINETO_STRANGE)
    text = json.dumps(event, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, 2)))
    text = text.replace('"START"', _number(rng, start)).replace('"LENGTH"', _number(rng, length))
    return (text, (start, length)) if sound else (_damaged(rng, text) if fate >= 0.95 else text, None)


def _number(rng: random.Random, ns: int) -> str:
    """Return microseconds as one of the ways to write them."""
    us = Decimal(ns) / 1000
    ways: tuple[Callable[[], str], ...] = (
        lambda: f"{us:.3f}",
        lambda: f"{us:f}",
        lambda: f'"{us:f}"',
        lambda: str(ns // 1000) if ns % 1000 == 0 else f"{us:f}",
    )
    return rng.choice(ways)()


def _damaged(rng: random.Random, text: str) -> str:
    a = rng.randrange(1, len(text))
    match rng.randrange(4):
        case 0:
            return text[:a] + rng.choice(KINETO_RUBBISH) + text[a:]
        case 1:
            return text[:a] + text[a + rng.randint(1, 9) :]
        case 2:
            return text[: max(a, 16)]  # cut before its first key, nobody can say that it was an event
        case _:
            return text.replace('"name": "', '"name": "{"device": "cpu"}(12): ', 1)


def _file(rng: random.Random, texts: list[str]) -> bytes:
    """Return the file: an object or an array alone, whole or without its end, packed or not."""
    inner = rng.choice((",\n", ",", " ,\n  ")).join(texts)
    if rng.random() < 0.8:
        whole = "{" + rng.choice(KINETO_HEADS) + '"traceEvents": [' + inner + "]" + rng.choice(TAILS) + "}\n"
    else:
        whole = f"[\n{inner}" + rng.choice(("\n]", "", ",\n"))
    data = whole.encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        data = b"\xef\xbb\xbf" + data
    return gzip.compress(data) if rng.random() < 0.1 else data


START = datetime(2026, 12, 31, 23, 59, 30)
UNITS = (("W", 1.0), ("mW", 1e3), ("µW", 1e6), ("kW", 1e-3))
TIMES = (
    lambda d, t: f"{t:.3f}",
    lambda d, t: f"{1.7e9 + t:.3f}",
    lambda d, t: f"{1.7e12 + t * 1e3:.0f}",
    lambda d, t: f"{d:%Y/%m/%d %H:%M:%S}.{d.microsecond // 1000:03d}",
    lambda d, t: f"{d:%d.%m.%Y %H:%M:%S},{d.microsecond // 1000:03d}",
    lambda d, t: f"{d:%m/%d/%Y %I:%M:%S}.{d.microsecond // 1000:03d} {d:%p}",
    lambda d, t: f"{d:%H:%M:%S}.{d.microsecond // 1000:03d}",
    lambda d, t: f"{d:%Y-%m-%dT%H:%M:%S}.{d.microsecond // 1000:03d}Z",
)
METER_ODD = (
    "[N/A]",
    "ERR!",
    "[Not Supported]",
    "nan",
    "-",
    "OL",
    "1e999",
    "--",
    "0x10",
    "1_000",
    "inf",
    "-7",
    "9e9",
    "",
)


def meter_attempt(rng: random.Random, folder: Path) -> Told:
    """Write a log, spoil some rows, read it; what was read must be what was written."""
    rows = rng.randrange(20, 200)
    unit, size = rng.choice(UNITS)
    mark = rng.choice(";\t,|")
    point = rng.choice(".,") if mark != "," else "."
    step, time, tail = rng.choice((0.1, 0.5, 1.0)), rng.choice(TIMES), rng.choice(("", f" {unit}"))
    watts = [round(rng.uniform(2, 60), 2) for _ in range(rows)]
    body, good = [], []
    for i, w in enumerate(watts):
        t = i * step
        cell = f"{w * size:.6f}".replace(".", point)
        moment = time(START + timedelta(seconds=t), t)
        if mark == ",":
            moment = moment.replace(",", ".")  # without quotes it would be two cells
        line = mark.join((moment, f"{cell}{tail}", "x"))
        damaged = _spoilt(rng, line, mark) if rng.random() < 0.08 else line
        body.append(damaged)
        good += [w] if damaged == line else []
    head = mark.join(("time", f"power [{unit}]", "note"))
    path = folder / "meter.csv"
    path.write_text("\n".join([*(["a meter", ""] * rng.randrange(2)), head, *body]) + "\n")
    try:
        log = meter_log.read(path)
    except UsageError:
        assert len(good) < rows, f"a faultless log was refused: {head}"
        raise
    left = [w for w in good if np.abs(log.watts - w).min() > 1e-4]
    # damage may move a row to the time of another: the log holds their mean, and counts such times
    assert len(left) <= _lines(log), f"{len(left)} good rows are not in the log: {left[:3]}, {log.columns}"
    assert len(log.watts) >= 2 and np.all(np.diff(log.t_s) > 0) and np.isfinite(log.watts).all()
    said = sum(int(n) for note in log.notes for n in re.findall(r"^(\d+) (?:of|rows|times)", note.what))
    assert said >= log.skipped, f"{log.skipped} rows skipped, {said} named: {[n.what for n in log.notes]}"
    return Told(rows, len(log.watts), log.skipped + _lines(log), len(good))


def _lines(log: meter_log.MeterLog) -> int:
    """Return the rows that are in the log as part of another: rows of one time, and repeated headings."""
    return sum(
        int(n)
        for note in log.notes
        for n in re.findall(r"^(\d+) times|heading (\d+)", note.what)
        for n in n
        if n
    )


def _spoilt(rng: random.Random, line: str, mark: str) -> str:
    cells = line.split(mark)
    how = rng.randrange(5)
    if how == 0:
        cells[rng.randrange(2)] = rng.choice(METER_ODD)
        return mark.join(cells)
    if how == 1:
        return line[: rng.randrange(1, len(line))]  # an empty line is no row
    if how == 2:
        return line + mark + "7"
    if how == 3:
        at = rng.randrange(1, len(line))  # a sign in front makes a row a comment
        return line[:at] + chr(rng.randrange(33, 0x300)) + line[at + 1 :]
    return mark.join(["", cells[1], cells[2]])


#: Records of one chunk: a chunk is the work of one process, and its number is part of a case's name.
CHUNK, MOST_TOLD = 10_000, 20


@dataclass(frozen=True)
class Tried:
    """The sums of some cases."""

    cases: int = 0
    records: int = 0
    read: int = 0
    noted: int = 0
    refused: int = 0
    """Files that edgescope refused with an error of its own."""
    failed: tuple[tuple[str, str], ...] = ()
    """Name of a case that found a fault, its traceback."""

    def __add__(self, other: Tried) -> Tried:
        return Tried(*(getattr(self, k) + getattr(other, k) for k in self.__dataclass_fields__))


Attempt = Callable[[random.Random, Path], Told]


def kinds() -> list[str]:
    """Return the names of the kinds."""
    return sorted(n.removesuffix("_attempt") for n in globals() if n.endswith("_attempt"))


def of(kind: str) -> Attempt:
    """Return the function of a kind."""
    found: Attempt = globals()[f"{kind}_attempt"]
    return found


def check(told: Told) -> None:
    """Raise AssertionError if records are gone without a word, or good ones with the bad."""
    lost = told.written - told.read - told.noted
    assert lost <= 0, f"{lost} of {told.written} records were lost without a note: {told}"
    assert told.good is None or told.read >= told.good, f"damage took good records with it: {told}"


def case(kind: str, name: str, folder: Path) -> Tried:
    """Try one case; `name` seeds it."""
    try:
        told = of(kind)(random.Random(name), folder)
        check(told)
    except EdgescopeError as error:
        assert str(error).startswith(f"{error.code}: ")
        return Tried(cases=1, records=1, refused=1)
    except Exception:  # whatever comes out is what this looks for
        return Tried(cases=1, records=1, failed=((name, traceback.format_exc(limit=-6)),))
    return Tried(1, max(told.written, 1), told.read, told.noted)


def chunk(kind: str, seed: int, number: int, records: int) -> Tried:
    """Try cases of one chunk until they have had this many records."""
    shm, total = Path("/dev/shm"), Tried()
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        while total.records < records:
            total += case(kind, f"{kind}:{seed}:{number}:{total.cases}", Path(folder))
    return total


def _chunks(records: int) -> Iterator[tuple[int, int]]:
    for number, at in enumerate(range(0, records, CHUNK)):
        yield number, min(CHUNK, records - at)


def fuzz(kind: str, seed: int, records: int, jobs: int) -> dict[str, Any]:
    """Try `records` records in `jobs` processes (1: in this one); return figures and what failed."""
    start = time.monotonic()
    numbers, sizes = zip(*_chunks(records), strict=True)
    one = partial(chunk, kind, seed)
    if jobs == 1:
        total = sum(map(one, numbers, sizes), Tried())
    else:
        with ProcessPoolExecutor(jobs) as pool:
            total = sum(pool.map(one, numbers, sizes), Tried())
    for name, trace in total.failed[:MOST_TOLD]:
        print(f"{name}\n{trace}", file=sys.stderr)
    told = [{"case": name, "error": t.strip().splitlines()[-1]} for name, t in total.failed[:MOST_TOLD]]
    return {
        **{k: getattr(total, k) for k in ("cases", "records", "read", "noted", "refused")},
        **{"seed": seed, "seconds": round(time.monotonic() - start, 1)},
        **{"failures": len(total.failed), "first": told},
    }


def foreign_main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=kinds(), action="append", help="of these kinds only")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="KIND:SEED:CHUNK:NUMBER", help="try one case again")
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args()
    if args.only:
        with tempfile.TemporaryDirectory() as folder:
            found = case(args.only.partition(":")[0], args.only, Path(folder))
        print(found.failed[0][1] if found.failed else f"{args.only}: nothing is wrong")
        return len(found.failed)
    figures = {kind: fuzz(kind, args.seed, args.records, args.jobs) for kind in args.kind or kinds()}
    for kind, got in figures.items():
        print(f"{kind}: {got['records']} records, {got['failures']} failures, {got['seconds']} s")
    met = not any(got["failures"] for got in figures.values())
    if not args.no_publish:
        publish("fuzz_foreign", figures, met=met)
    return 0 if met else 1
