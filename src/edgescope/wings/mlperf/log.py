"""Reads LoadGen's logs: a summary for people, a log of `key: value` lines, and the accuracy log.

mlperf_log_summary.txt     what a submission quotes
mlperf_log_detail.txt      `:::MLLOG {"key": "result_validity", "value": "VALID", ...}` a line; parsed here
mlperf_log_accuracy.json   in accuracy mode, the output bytes that LoadGen received for every sample
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import DeviceError
from edgescope.records import Json
from edgescope.verify.closeness import centred_l2

SUMMARY, DETAIL, ACCURACY = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"
MARK = ":::MLLOG "
WANTED = re.compile(r"(result_|early_stopping_|effective_|loadgen_version$|num_(errors|warnings)$)")
ESTIMATED = "early_stopping_{}_percentile_estimate_ns"
ESTIMATE = re.compile(r"Early stopping (\S+)th percentile estimate: (\d+)")


def values(folder: Path) -> dict[str, Json]:
    """Return LoadGen's version, effective settings and results from its log; {} without a log."""
    out: dict[str, Json] = {}
    for line in text(folder / DETAIL).splitlines():
        if not line.startswith(MARK):
            continue
        try:
            entry = json.loads(line.removeprefix(MARK))
        except ValueError:  # cut off by a kill
            continue
        if isinstance(entry, dict) and WANTED.match(str(entry.get("key"))):
            out[entry["key"]] = entry.get("value")
    for percent, estimate in ESTIMATE.findall(text(folder / SUMMARY)):
        out[ESTIMATED.format(percent)] = int(estimate)
    return out


def files(folder: Path, prefix: str = "") -> dict[str, str]:
    """Return the text of a run's log files by name, without the empty ones."""
    found = {name: text(folder / name) for name in (SUMMARY, DETAIL, ACCURACY)}
    return {f"{prefix}{name}": content for name, content in found.items() if content.strip("[] \n")}


def compared(folder: Path, direct: Sequence[NDArray[Any]]) -> dict[str, Json]:
    """Compare the outputs in the accuracy log with the outputs `direct`, each (samples, ...).

    Return the number of `samples`, how many are `in_log`, how many are `identical` to the last bit, and the centred L2
    distance of those in the log. Raises DeviceError if the log is damaged or its outputs have another length.
    """
    logged = answers(folder, direct)
    index = sorted(set(logged) & set(range(len(direct[0]))))
    wanted = tuple(array[index] for array in direct)
    got = tuple(np.stack([logged[i][k] for i in index]) for k in range(len(direct))) if index else wanted
    same = [
        all(a.tobytes() == b.tobytes() for a, b in zip(logged[i], _row(direct, i), strict=True))
        for i in index
    ]
    return {
        "samples": len(direct[0]),
        "in_log": len(index),
        "identical": sum(same),
        "centred_l2": centred_l2(got, wanted) if index else 0.0,
    }


def answers(folder: Path, like: Sequence[NDArray[Any]]) -> dict[int, list[NDArray[Any]]]:
    """Return sample index -> its outputs in the accuracy log, with the types and shapes of `like`."""
    out: dict[int, list[NDArray[Any]]] = {}
    try:
        for entry in json.loads(text(folder / ACCURACY) or "[]"):
            data = bytes.fromhex(entry["data"])
            ends = np.cumsum([0, *(array[0].nbytes for array in like)])
            if ends[-1] != len(data):
                raise ValueError(
                    f"{len(data)} bytes for sample {entry['qsl_idx']}, the outputs have {ends[-1]}"
                )
            out[int(entry["qsl_idx"])] = [
                np.frombuffer(data[a:b], array.dtype).reshape(array.shape[1:])
                for a, b, array in zip(ends, ends[1:], like, strict=False)
            ]
    except (ValueError, KeyError, TypeError) as error:
        raise DeviceError(
            "E-MLPERF-1",
            "LoadGen's accuracy log cannot be read",
            evidence=f"{type(error).__name__}: {error}",
            effect="The outputs that it received are not checked",
        ) from error
    return out


def _row(arrays: Sequence[NDArray[Any]], i: int) -> list[NDArray[Any]]:
    return [array[i] for array in arrays]


def text(path: Path) -> str:
    """Return the file's text, or '' if there is no file."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
