"""Every network of the zoo built by the real TensorRT-RTX, in every precision, with an open batch, without a GPU.

    make test-rtx                                      # publishes published/rtx_builds.json with the commit
    python benchmarks/rtx_builds.py --no-publish lenet5 mobilenet_v2

Each engine is built for a named GPU by the way that a trial takes, its size and the types of its heavy layers are
read back, and it is removed; none is run. Then the tests marked rtx: what the parser and the builder refuse, limits,
kernel timings. ONNX files are made first and kept in the cache; their time is told apart, for it is not TensorRT's.
Exit status: 0 all built in time and no test failed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import facts
import gpu_suite
import pytest

from edgescope import cache
from edgescope.backends.base import Spec
from edgescope.errors import EdgescopeError
from edgescope.models import zoo

GPU, MOST = "8.6", 4
"""Compute capability built for, and the largest batch; the smallest is 1."""
CALIBRATION = 2
"""Inputs that int8 ranges are found on: their number changes the scales in the file, and not what is built of it."""
PRECISIONS = ("fp32", "fp16", "int8")
CPU_GOAL_S = 360.0
WING = "src/edgescope/wings/tensorrt"
CODE = tuple(f"{WING}/{name}.py" for name in ("api_types", "build", "library", "network"))
"""What these figures show of: a test fails when it has changed since."""


def build_code() -> dict[str, str]:
    """Return {file: digest of its statements}; docstrings and comments do not count."""
    return {name: _digest((facts.ROOT / name).read_text()) for name in CODE}


def _digest(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def built(name: str) -> list[dict[str, Any]]:
    """Return one row a precision of a network; it runs in a process of its own, which takes its memory along."""
    return [_row(name, precision) for precision in PRECISIONS]


def _row(name: str, precision: str) -> dict[str, Any]:
    from edgescope.artifacts import int8
    from edgescope.artifacts.for_precision import onnx_file
    from edgescope.wings.tensorrt import about, backend, engine_file

    int8.IMAGES = CALIBRATION
    model, folder = zoo.get(name, {}, 1), cache.folder("artifacts")
    asked = Spec(precision, 1, options={"compute_capability": GPU, "profile_max": MOST}, device="cuda")
    row: dict[str, Any] = {"network": name, "precision": precision, "built": False}
    start = time.process_time()
    try:
        onnx_file(model, precision, folder, **about.int8_recipe(model, asked) if precision == "int8" else {})
    except EdgescopeError as error:
        return row | {"no_file": f"{error.code}: {error.what}"[:200]}
    row["file_cpu_s"] = round(time.process_time() - start, 1)
    start, wall = time.process_time(), time.perf_counter()
    try:
        made = backend.TensorRt().prepare(model, asked, folder)
    except EdgescopeError as error:
        return row | {"why": f"{error.code}: {error.what}"[:300]}
    took = {"cpu_s": round(time.process_time() - start, 2), "s": round(time.perf_counter() - wall, 2)}
    assert made.path is not None
    known = engine_file.read(made.path)
    engine_file.remove(made.path)
    return row | {"built": True, **took, "bytes": known.bytes, "heavy": known.flags["heavy"]}


def as_asked(row: dict[str, Any]) -> bool:
    """Return whether the heavy layers have the precision: int8 leaves the first ones, and what it cannot, in fp32."""
    heavy, precision = row["heavy"], row["precision"]
    return bool(heavy.get(precision)) and set(heavy) <= {
        precision,
        *(["fp32"] if precision == "int8" else []),
    }


def tests() -> dict[str, int]:
    """Run the tests marked rtx; return how many had each outcome."""
    found = gpu_suite.Outcomes()
    words = [
        "-q",
        "-m",
        "rtx",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:rerunfailures",
        "--rootdir",
        str(facts.ROOT),
    ]
    pytest.main([*words, str(facts.ROOT / "tests/wings/tensorrt")], plugins=[found])
    outcomes = [row["outcome"] for row in found.rows.values()]
    return {outcome: outcomes.count(outcome) for outcome in gpu_suite.OUTCOMES}


def summed(rows: list[dict[str, Any]], outcomes: dict[str, int]) -> dict[str, Any]:
    """Return the figures of all rows."""
    with_file = [row for row in rows if "no_file" not in row]
    done = [row for row in with_file if row["built"]]
    return {
        "gpu": GPU,
        "batch": [1, MOST],
        "calibration_inputs": CALIBRATION,
        "networks": len({row["network"] for row in rows}),
        "engines": len(done),
        "failed": [row for row in with_file if not row["built"]],
        "without_a_file": [row for row in rows if "no_file" in row],
        "other_types": [row for row in done if not as_asked(row)],
        "cpu_s": round(sum(row["cpu_s"] for row in done), 1),
        "file_cpu_s": round(sum(row["file_cpu_s"] for row in with_file), 1),
        "tests": outcomes,
        "rows": rows,
        "code": build_code(),
    }


def main() -> int:
    """Build, print a line each, test, and publish."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help="only these, which is not published")
    parser.add_argument("--no-publish", action="store_true", help="print only")
    args = parser.parse_args()
    from edgescope.wings.tensorrt import library

    if not library.IS_RTX:
        sys.exit(
            f"TensorRT {library.FULL_VERSION} is taken here, not TensorRT-RTX: use an environment without it"
        )
    rows: list[dict[str, Any]] = []
    for name in args.networks or zoo.names():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            rows += pool.submit(built, name).result()
        for row in rows[-len(PRECISIONS) :]:
            print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    found = {"tensorrt": library.FULL_VERSION} | summed(rows, tests())
    met = not found["failed"] and not found["tests"]["failed"] and found["cpu_s"] <= CPU_GOAL_S
    if args.networks or args.no_publish:
        print({key: value for key, value in found.items() if key != "rows"})
    else:
        facts.publish(Path(__file__).stem, found, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
