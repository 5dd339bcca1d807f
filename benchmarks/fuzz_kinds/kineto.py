"""Kineto traces: events damaged as text or odd in a field, in files as the versions of torch write them."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from fuzz_foreign import Told

from edgescope.errors import UsageError
from edgescope.tracing.read import read

MOST = 300
CATEGORIES = (
    *("cpu_op", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver"),
    *("hip_runtime", "xpu_runtime", "privateuse1_runtime", "overhead", "python_function", "mtia_runtime"),
    *("Operator", "Kernel", "Memcpy", "Memset", "Runtime"),
)
NAMES = (
    *("aten::conv2d", "void gemm<half>(int, float*)", "cudaLaunchKernel", "名前 é😀", "", "ProfilerStep#7"),
    *('{"ph": "X"}', "torch\\nn\\modules(1): forward", "a\tb", "<built-in method ]}, {>"),
)
RUBBISH = ('"', "\\", "}", "]", ",", "{", ":", "\0", "nan", "\\u12", "\ud800", "[[", '{"', "//", "'")
HEADS = (
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
ODD: tuple[dict[str, Any], ...] = (
    *({"dur": -1}, {"dur": "x"}, {"dur": None}, {"dur": 2**64 / 1000}, {"dur": [1]}, {"dur": 1e300}),
    *({"ts": None}, {"ts": "soon"}, {"ts": {}}, {"ts": True}, {"ts": -1e30}, {"cat": None}, {"cat": 7}),
    *({"cat": "unheard of"}, {"ph": "b"}, {"ph": None}, {"ph": 3}),
)
#: Fields that are odd, though the event's times are sound.
STRANGE: tuple[dict[str, Any], ...] = (
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


def attempt(rng: random.Random, folder: Path) -> Told:
    """Write a trace of up to MOST spans, read it; the sound ones must be there with their exact times."""
    parts, sound = zip(*(_event(rng) for _ in range(rng.randint(1, MOST))), strict=True)
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
        event |= rng.choice(ODD)
    elif sound and fate < 0.05:
        event |= rng.choice(STRANGE)
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
            return text[:a] + rng.choice(RUBBISH) + text[a:]
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
        whole = "{" + rng.choice(HEADS) + '"traceEvents": [' + inner + "]" + rng.choice(TAILS) + "}\n"
    else:
        whole = f"[\n{inner}" + rng.choice(("\n]", "", ",\n"))
    data = whole.encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        data = b"\xef\xbb\xbf" + data
    return gzip.compress(data) if rng.random() < 0.1 else data
