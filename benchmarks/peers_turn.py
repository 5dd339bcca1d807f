"""One answer of benchmarks/peers.py as a process that takes turns: PyTorch eager, or what a tool picked.

It needs numpy and its own engine alone, so it runs in the environment of the tool whose answer it is. It prints a line
of JSON when it has answered the checked pictures (the class of each, and its engine's version), then one for each
`go SECONDS` that it reads: the mean time of a call in that turn.

    python benchmarks/peers_turn.py SPEC DATA     SPEC: JSON, DATA: a folder with gate.npy; started by peers.py
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[np.ndarray], Any]
POOL = 8
WARM_S = 1.0
DROPPED_S = 0.005
"""The first milliseconds of a turn find caches that the other process has filled."""


def torch_run(net: Any, *, dtype: str = "float32", compiled: bool = False) -> Run:
    import torch

    net = net.eval().to(getattr(torch, dtype))
    call = torch.compile(net) if compiled else net

    def run(batch: np.ndarray) -> Any:
        with torch.inference_mode():
            found = call(torch.from_numpy(batch).to(getattr(torch, dtype)))
            return (found[0] if isinstance(found, (tuple, list)) else found).float().numpy()

    return run


def network(**options: Any) -> Run:
    """The zoo's network in PyTorch: the baseline, and what optimum-benchmark runs."""
    from edgescope.models import zoo

    return torch_run(zoo.get("efficientnet_lite0").module(), **options)


def yolo(name: str) -> Run:
    """A network of ultralytics in PyTorch, from its yaml or its file."""
    from ultralytics import YOLO

    return torch_run(YOLO(name).model)


def torchscript(file: str) -> Run:
    """A TorchScript file in PyTorch."""
    import torch

    return torch_run(torch.jit.load(file))


def onnxruntime(file: str, providers: list[str], threads: int = 0) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(file, options, providers=providers)
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})[0]


def openvino(file: str) -> Run:
    import openvino as ov

    compiled = ov.Core().compile_model(file, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    request = compiled.create_infer_request()
    return lambda batch: next(iter(request.infer([batch]).values()))


def litert(file: str) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    found = Interpreter(file, num_threads=2)
    found.allocate_tensors()
    given, out = found.get_input_details()[0], found.get_output_details()[0]

    scale, zero = given["quantization"]

    def run(batch: np.ndarray) -> Any:
        if given["dtype"] == np.int8:  # its user does this, too
            batch = np.clip(np.rint(batch / scale) + zero, -128, 127).astype(np.int8)
        found.set_tensor(given["index"], batch)
        found.invoke()
        return found.get_tensor(out["index"])

    return run


def folder(path: str) -> Run:
    """What `edgescope optimize --save` left: its run.py, as its user would call it."""
    place = Path(path) / "run.py"
    spec = importlib.util.spec_from_file_location("saved_run", place)
    assert spec and spec.loader, f"no {place}"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    name = next(iter(module.INPUTS))
    return lambda batch: np.asarray(module.run({name: batch})[0])


KINDS: dict[str, Callable[..., Run]] = {
    "network": network,
    "yolo": yolo,
    "torchscript": torchscript,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "litert": litert,
    "folder": folder,
}


def mean_s(run: Callable[[Any], Any], pool: Sequence[Any], seconds: float) -> float:
    """Return the mean time of a call over a turn, its first milliseconds left out."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < DROPPED_S:
        run(pool[0])
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or n < 1:
        run(pool[n % len(pool)])
        n += 1
    return (time.perf_counter() - start) / n


def litert_files() -> None:
    """Write a network as three .tflite files with Google's AI Edge tools: fp32, int8 weights alone, int8 throughout.

    Run in their environment, in a folder with weights.pth and calibration.npy.
    """
    import timm
    import torch
    from ai_edge_quantizer import quantizer, recipe
    from litert_torch import convert

    net = timm.create_model("tf_efficientnet_lite0")
    net.load_state_dict(torch.load("weights.pth", weights_only=True))
    convert(net.eval(), (torch.zeros(1, 3, 224, 224),)).export("fp32.tflite")
    pictures = np.load("calibration.npy")
    for name, chosen in (
        ("dynamic_int8", recipe.dynamic_wi8_afp32()),
        ("static_int8", recipe.static_wi8_ai8()),
    ):
        made = quantizer.Quantizer("fp32.tflite", chosen)
        data = {"serving_default": [{"args_0": picture[None]} for picture in pictures]}
        ranges = made.calibrate(data) if made.need_calibration else None
        made.quantize(ranges).export_model(f"{name}.tflite")


def main() -> None:
    if sys.argv[1:] == ["litert"]:
        return litert_files()
    spec, data = json.loads(sys.argv[1]), Path(sys.argv[2])
    out, sys.stdout = sys.stdout, sys.stderr  # engines print; the pipe carries JSON alone
    try:
        count = spec.pop("pictures", None)
        run = KINDS[spec.pop("kind")](**spec)
        pictures = np.load(data / "gate.npy", mmap_mode="r")
        named = pictures[:count]
        classes = [int(np.argmax(run(np.array(named[i : i + 1])))) for i in range(len(named))]
        pool = [np.array(pictures[i : i + 1]) for i in range(POOL)]
        mean_s(run, pool, WARM_S)
        ready: dict[str, Any] = {"classes": classes}
    except Exception as error:
        traceback.print_exc()
        ready = {"absent": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    print(json.dumps(ready), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps({"mean_s": mean_s(run, pool, float(line.split()[1]))}), file=out, flush=True)


if __name__ == "__main__":
    main()
