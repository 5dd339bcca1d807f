"""What somebody would do by hand for a network, with the engines' own tools, and the best of it in turns with a pick.

The arms: PyTorch eager and torch.compile; ONNX Runtime as it comes, on one thread, and with its own quantisers (static
on the calibration inputs, and dynamic); OpenVINO as `benchmark_app -hint latency` sets it (bf16 where the processor has
it), the same with fp32 asked for, both on one thread, and the quantised file in it. int8 is made where inputs of the
user's are there to set ranges. Each arm is a process with a plain loop around the engine's call. All are first run
alone, then the TRIED fastest whose answers are right take turns with the pick's run.py, ABBA, in pairs of fresh
processes (stats/alternation.py). Right is looser than the gate of a pick: the fp32 network's class for 80 % of the
inputs (no interval), or, where the outputs are no classes, or those of an untrained network, outputs that differ by at
most 10 %.

Used by own_models.py. `python benchmarks/by_hand.py FOLDER ARM` is one arm, or `pick FOLDER`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers_turn import mean_s

Run = Callable[[Mapping[str, Any]], Sequence[Any]]
SCREEN_S, TURN_S, WARM_S = 0.5, 0.1, 0.5
BLOCKS, TRIED, JUDGED = 10, 2, 64
FEWEST_RIGHT, MOST_APART, FEWEST_RANKS = 0.80, 0.10, 0.90
"""What the gate asks of int8: of classes, or of the outputs where there are none (edgescope/verify/judge.py)."""
LIMIT_S = 120.0
"""Seconds that an arm may take to be ready, or for a turn."""


def onnxruntime(file: Path, threads: int = 0) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, dict(given))


def openvino(file: Path, threads: int = 0, precision: str = "") -> Run:
    import openvino as ov

    settings = {"PERFORMANCE_HINT": "LATENCY"} | ({"INFERENCE_NUM_THREADS": str(threads)} if threads else {})
    settings |= {"INFERENCE_PRECISION_HINT": precision} if precision else {}
    core = ov.Core()
    model = core.read_model(str(file))
    given = dict(np.load(file.parent / "gate.npz"))
    model.reshape({port: [1, *given[port.any_name].shape[1:]] for port in model.inputs})
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda given: list(request.infer(dict(given)).values())


def torch(folder: Path, *, compiled: bool) -> Run:
    import torch as framework

    from edgescope.bench.parts import HERE
    from edgescope.records import Trial

    net = HERE.model(Trial.from_json(json.loads((folder / "trial.json").read_text()))).module().eval()
    call = framework.compile(net) if compiled else net

    def run(given: Mapping[str, Any]) -> Sequence[Any]:
        with framework.inference_mode():
            found = call(*(framework.from_numpy(given[name]) for name in given))
        found = found.values() if isinstance(found, dict) else found
        return [found.numpy()] if hasattr(found, "numpy") else [one.numpy() for one in found]

    return run


def pick(folder: Path) -> Run:
    """What `edgescope optimize --save` left."""
    spec = importlib.util.spec_from_file_location("saved_run", folder / "run.py")
    assert spec and spec.loader, f"no run.py in {folder}"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Run = module.run
    return run


ARMS: dict[str, Callable[[Path], Run]] = {
    "torch eager": lambda f: torch(f, compiled=False),
    "torch.compile": lambda f: torch(f, compiled=True),
    "onnxruntime fp32": lambda f: onnxruntime(f / "fp32.onnx"),
    "onnxruntime fp32, 1 thread": lambda f: onnxruntime(f / "fp32.onnx", 1),
    "onnxruntime static int8": lambda f: onnxruntime(f / "static.onnx"),
    "onnxruntime static int8, 1 thread": lambda f: onnxruntime(f / "static.onnx", 1),
    "onnxruntime dynamic int8": lambda f: onnxruntime(f / "dynamic.onnx"),
    "openvino, latency hint": lambda f: openvino(f / "fp32.onnx"),
    "openvino, latency hint, 1 thread": lambda f: openvino(f / "fp32.onnx", 1),
    "openvino, latency hint, fp32": lambda f: openvino(f / "fp32.onnx", precision="f32"),
    "openvino, latency hint, fp32, 1 thread": lambda f: openvino(f / "fp32.onnx", 1, "f32"),
    "openvino of static int8": lambda f: openvino(f / "static.onnx"),
}
PICK = "pick"


def made(folder: Path, trial: Mapping[str, Any], judged_on: int, *, calibrated: bool) -> None:
    """Write what the arms need: as many inputs, the fp32 file, and the files of ONNX Runtime's own quantisers."""
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from edgescope.bench.parts import HERE
    from edgescope.models.base import Purpose
    from edgescope.records import Trial

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trial.json").write_text(json.dumps(trial))
    model = HERE.model(Trial.from_json(dict(trial)))
    judged = model.samples(Purpose.GATE, judged_on)
    assert judged is not None
    np.savez(folder / "gate.npz", **{name: np.asarray(a) for name, a in judged.arrays.items()})
    file = folder / "fp32.onnx"
    file.write_bytes(model.onnx(HERE.folder).read_bytes())
    if not calibrated or (inputs := model.samples(Purpose.CALIBRATION, 96)) is None:
        return

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        rows = iter(range(len(inputs)))

        def get_next(self) -> dict[str, Any] | None:
            i = next(self.rows, None)
            return None if i is None else {n: np.asarray(a[i : i + 1]) for n, a in inputs.arrays.items()}

    ready = folder / "ready.onnx"
    for name, make in (
        ("static", lambda to: q.quantize_static(str(ready), str(to), Reader(), per_channel=True)),
        ("dynamic", lambda to: q.quantize_dynamic(str(ready), str(to))),
    ):
        try:
            if not ready.exists():
                quant_pre_process(str(file), str(ready))
            make(folder / f"{name}.onnx")
        except Exception as error:  # the tool may fail on a network: its arm is absent then
            print(f"{name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)


class Side:
    """A process of one arm that takes turns."""

    def __init__(self, folder: Path, arm: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(folder.resolve()), arm],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ready = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], LIMIT_S)[0]:
            self.process.kill()
            return {"absent": f"no answer within {LIMIT_S:g} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"absent": f"the process ended with {self.process.wait()}"}

    @property
    def pid(self) -> int:
        """Return the number of its process."""
        return self.process.pid

    def turn(self, seconds: float) -> float:
        """Return the mean time of a call in a turn; RuntimeError where the process died."""
        assert self.process.stdin
        with contextlib.suppress(OSError):  # it died: reading says so
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        found = self._read()
        if "absent" in found:
            raise RuntimeError(found["absent"])
        return float(found["mean_s"])

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def right(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]], classes: bool) -> dict[str, Any]:
    """Return how an arm's outputs compare with those of fp32, by class or by value, and whether they are right."""
    from edgescope.verify.closeness import centred_l2, rank_agreement

    mine, fp32 = (tuple(map(np.concatenate, zip(*rows, strict=True))) for rows in (ours, theirs))
    shapes = [[output.shape for output in side] for side in (mine, fp32)]
    if shapes[0] != shapes[1]:
        return {"right": False, "why": f"outputs {shapes[0]}, fp32 {shapes[1]}"}
    if classes and fp32[0].ndim == 2:
        same = float((mine[0].argmax(1) == fp32[0].argmax(1)).mean())
        return {"agreement": same, "right": same >= FEWEST_RIGHT}
    apart, ranks = centred_l2(mine, fp32), rank_agreement(mine, fp32)
    return {"apart": apart, "ranks": ranks, "right": apart <= MOST_APART and ranks >= FEWEST_RANKS}


def screened(folder: Path, classes: bool) -> dict[str, dict[str, Any]]:
    """Return what each arm came to alone: its time and whether it is right, or why it is absent."""
    found: dict[str, dict[str, Any]] = {}
    truth = None
    for name in sorted(
        ARMS, key=lambda name: name != "onnxruntime fp32"
    ):  # its answers are what others must give
        with Side(folder, name) as side:
            row = dict(side.ready)
            if "absent" not in row:
                with np.load(row.pop("outputs"), allow_pickle=True) as kept:
                    answers = list(kept["rows"])
                truth = truth or answers
                row |= right(answers, truth, classes)
                try:
                    row["mean_s"] = side.turn(SCREEN_S)
                except RuntimeError as error:
                    row = {"absent": str(error)}
        found[name] = row
    return found


def against(saved: Path, folder: Path, arm: str, count: int) -> dict[str, Any]:
    """Return how many times faster the pick is than an arm, from fresh pairs in turns."""
    import in_turns

    pairs = []
    for _ in range(count):
        with Side(folder, arm) as theirs, Side(saved, PICK) as ours:
            for side in (theirs, ours):
                if "absent" in side.ready:
                    return {"absent": side.ready["absent"]}
            pairs.append(in_turns.turns((theirs, ours), BLOCKS, TURN_S))
    return in_turns.ratio(pairs)


def compared(work: Path, name: str, found: Mapping[str, Any], saved: Path, count: int) -> dict[str, Any]:
    """Return every arm of a network, and how many times faster the pick is than the fastest right ones.

    `found` is the pick: its trial, and the measures that its gate judged it by.
    """
    trial, classes = found["trial"], bool({"accuracy", "agreement"} & set(found["judged"]))
    judged_on = min(JUDGED, max(row["n"] for row in found["judged"].values()))
    folder, before = work / "by_hand" / name, Path.cwd()
    os.chdir(work)
    try:
        made(folder, trial, judged_on, calibrated=bool(trial.get("data")))
        arms = screened(folder, classes)
        able = sorted((row["mean_s"], arm) for arm, row in arms.items() if row.get("right"))[:TRIED]
        ratios = {}
        for _, arm in able:
            try:
                ratios[arm] = against(saved, folder, arm, count)
            except RuntimeError as error:
                ratios[arm] = {"absent": str(error)}
    finally:
        os.chdir(before)
    least = min((r["value"] for r in ratios.values() if "value" in r), default=None)
    return {"arms": arms, "pick_over_by_hand": ratios, "least": least}


def main() -> None:
    folder, arm = Path(sys.argv[1]), sys.argv[2]
    out, sys.stdout = sys.stdout, sys.stderr  # engines print; the pipe carries JSON alone
    try:
        run = pick(folder) if arm == PICK else ARMS[arm](folder)
        inputs = dict(np.load(folder / ("sample.npz" if arm == PICK else "gate.npz")))
        names = [name for name in inputs if not name.startswith("fp32_")]
        pool = [
            {n: np.ascontiguousarray(inputs[n][i : i + 1]) for n in names}
            for i in range(len(inputs[names[0]]))
        ]
        ready: dict[str, Any] = {"inputs": len(pool)}
        if arm != PICK:
            rows = np.empty(len(pool), dtype=object)
            for i, given in enumerate(pool):
                rows[i] = [np.array(output) for output in run(given)]
            ready["outputs"] = str(folder / f"{arm}.npz")
            np.savez(ready["outputs"], rows=rows)
        mean_s(run, pool[:8], WARM_S)
    except Exception as error:  # engines raise anything: the arm is absent then
        traceback.print_exc()
        ready = {"absent": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    print(json.dumps(ready), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps({"mean_s": mean_s(run, pool[:8], float(line))}), file=out, flush=True)


if __name__ == "__main__":
    main()
