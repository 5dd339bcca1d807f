"""The tools of benchmarks/peers.py: what each is asked, as its documentation says, and how its answer is read.

An arm gets a Place (where the model and the data are) and returns an Answer: what it tried, what it would take, and how
that is run. Tools that name no winner have one all the same: their user takes the fastest row that they printed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIMIT_S = 420.0
"""Longest a tool may take for its answer."""
OLIVE_S = 150
"""After this time Olive begins no further point of its search."""
FLOOR = 0.75
"""Least agreement with fp32 of an answer that counts: edgescope's own floor for int8."""
NETWORK = {"kind": "network"}
ONLINE = {
    "OLIVE_DISABLE_TELEMETRY": "1",
    "YOLO_AUTOINSTALL": "false",
    "YOLO_OFFLINE": "true",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class Place:
    """Where an arm works: its own folder, the shared data, its environment."""

    work: Path
    data: Path
    python: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None) -> tuple[str, float]:
        """Return what a command printed and how long it took; RuntimeError with its last words where it fails."""
        begun = time.perf_counter()
        try:
            done = subprocess.run(
                [str(part) for part in command],
                cwd=self.work,
                env=os.environ | ONLINE | self.env | (env or {}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise RuntimeError(f"no answer within {LIMIT_S:.0f} s") from late
        taken = time.perf_counter() - begun
        (self.work / "printed.txt").open("a").write(done.stdout)
        if done.returncode:
            raise RuntimeError(last_words(done.stdout) or f"exit code {done.returncode}")
        return done.stdout, taken

    def tool(self, name: str) -> Path:
        """Return a program of the environment."""
        return self.python.parent / name


@dataclass(frozen=True)
class Answer:
    """What a tool said."""

    command: str
    seconds: float
    tried: Sequence[str]
    """Each format, engine or precision that it measured."""
    failed: Mapping[str, str]
    """Those that it could not, with the reason."""
    pick: str
    run: Mapping[str, Any]
    """How benchmarks/peers_turn.py runs the pick."""
    eager: Mapping[str, Any] = field(default_factory=lambda: dict(NETWORK))
    """How it runs the same network in PyTorch eager fp32."""
    eager_here: bool = True
    """Whether that needs this script's environment, not the tool's."""
    pick_here: bool = False
    said: Mapping[str, Any] = field(default_factory=dict)
    """Its own figures for the pick, as it printed them."""


@dataclass(frozen=True)
class Peer:
    """A tool: how it is installed and asked, and what it does about right outputs and certainty."""

    ask: Callable[[Place], Answer]
    package: str
    """The distribution that carries its version; '' for edgescope itself."""
    packages: Sequence[str]
    checked: str
    interval: str
    same_model: bool = True


def last_words(text: str) -> str:
    """Return the line that says why a program failed: the last one with an error's name, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Refused)\b", line)]
    return " ".join((errors or lines or [""])[-1].split())[:300]


def edgescope(place: Place) -> Answer:
    program = [place.python, "-m", "edgescope.cli.main"]
    known, _ = place.run(*program, "optimize", "--help")
    wanted = {"--data": str(place.data / "pictures"), "--preprocess": "half", "--budget": "90s"}
    given = [
        part for flag, value in wanted.items() if re.search(rf"{flag}\b", known) for part in (flag, value)
    ]
    asked = [
        "optimize",
        str(place.data / "model.onnx"),
        *given,
        "--save",
        "saved",
        "--store",
        "store",
        "--json",
    ]
    before = {"EDGESCOPE_CACHE": str(place.work / "cache")}
    text, seconds = place.run(*program, *asked, env=before)
    begin = re.search(r"^\{$", text, re.MULTILINE)
    if begin is None:
        raise RuntimeError(last_words(text))
    page, _ = json.JSONDecoder().raw_decode(text, begin.start())
    return Answer(
        command=f"edgescope {' '.join(['optimize', 'model.onnx', *(Path(p).name for p in given)])}",
        seconds=seconds,
        tried=sorted({row["label"] for row in (*page["rows"], *page["screened"])}),
        failed={row["label"]: str(row["rejected"]) for row in page["rows"] if row.get("rejected")},
        pick=page["pick"]["reason"].partition(":")[0],
        run={"kind": "folder", "path": str(place.work / "saved")},
        said=next((r["speedup"] for r in page["rows"] if r["cell"] == page["pick"]["cell"]), {}),
    )


def olive_config(data: Path, provider: str) -> dict[str, Any]:
    """Return the workflow: quantisation and session options, searched for latency above a floor of agreement."""

    def arrays(name: str, after: str) -> dict[str, Any]:
        return {
            "name": name,
            "type": "DataContainer",
            "user_script": "user_script.py",
            "load_dataset_config": {"type": "pictures", "params": {"name": name}},
            "pre_process_data_config": {"type": "skip_pre_process"},
            "post_process_data_config": {"type": after},
            "dataloader_config": {"type": "default_dataloader", "params": {"batch_size": 1}},
        }

    right = {
        "name": "accuracy_score",
        "priority": 2,
        "metric_config": {"task": "multiclass", "num_classes": 1000},
        "goal": {"type": "threshold", "value": FLOOR},
    }
    quick = {"name": "avg", "priority": 1, "goal": {"type": "percent-min-improvement", "value": 5}}
    machine = {
        "type": "LocalSystem",
        "accelerators": [{"device": "cpu", "execution_providers": [provider]}],
    }
    return {
        "input_model": {"type": "ONNXModel", "model_path": str(data / "model.onnx")},
        "systems": {"local": machine},
        "data_configs": [arrays("calibration", "skip_post_process"), arrays("gate", "top1")],
        "evaluators": {
            "mine": {
                "metrics": [
                    {"name": "latency", "type": "latency", "data_config": "calibration", "sub_types": [quick]},
                    {"name": "right", "type": "accuracy", "data_config": "gate", "sub_types": [right]},
                ]
            }
        },
        "passes": {
            "quantization": {"type": "OnnxQuantization", "data_config": "calibration"},
            "tuning": {"type": "OrtSessionParamsTuning", "data_config": "calibration", "intra_thread_num_list": 2},
        },
        "search_strategy": {
            "execution_order": "joint", "sampler": "tpe", "max_samples": 6, "seed": 0, "max_time": OLIVE_S,
        },
        "host": "local",
        "target": "local",
        "evaluator": "mine",
        "evaluate_input_model": True,
        "cache_dir": "cache",
        "output_dir": "out",
        "log_severity_level": 1,
    }  # fmt: skip


def olive(place: Place, provider: str = "CPUExecutionProvider") -> Answer:
    """Ask Olive; through another provider of ONNX Runtime where its user has installed and named it."""
    for name in ("calibration", "gate", "calibration_classes", "gate_classes"):
        shutil.copy(place.data / f"{name}.npy", place.work)
    shutil.copy(HERE / "peers_olive.py", place.work / "user_script.py")
    (place.work / "olive.json").write_text(json.dumps(olive_config(place.data, provider), indent=1))
    text, seconds = place.run(place.tool("olive"), "run", "--config", "olive.json")
    kept = json.loads((place.work / "out" / "model_config.json").read_text())["config"]
    settings = kept["inference_settings"] or {}
    points = olive_points(json.loads((place.work / "out" / "footprint.json").read_text()))
    steps = re.findall(r"search point SearchPoint\(\d+, (\{.*\})\) \.\.\.", text)
    return Answer(
        command="olive run --config olive.json",
        seconds=seconds,
        tried=["the input model", *(olive_point(step) for step in steps)],
        failed={},
        pick=f"{provider.removesuffix('ExecutionProvider')} provider, {olive_best(points)}",
        run={
            "kind": "onnxruntime",
            "file": kept["model_path"],
            "providers": list(settings.get("execution_provider") or [provider]),
            "threads": int((settings.get("session_options") or {}).get("intra_op_num_threads") or 0),
        },
        said={"measured": points},
    )


def olive_point(step: str) -> str:
    """Return a point of Olive's search in short: mode, type, ranges, format."""
    names = ("quant_mode", "precision", "calibrate_method", "quant_format", "per_channel")
    found = [re.search(rf"{name}\[\d+\]: (\w+)", step) for name in names]
    words = [(n, m[1]) for n, m in zip(names, found, strict=True) if m and "IGNORED" not in m[1]]
    return " ".join("per channel" if n == "per_channel" else w for n, w in words if w != "False")


def olive_points(footprint: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return agreement and latency of each model that Olive evaluated, in order."""
    nodes = [n for n in footprint.values() if isinstance(n, dict) and (n.get("metrics") or {}).get("value")]
    return [
        {
            "agreement": n["metrics"]["value"]["right-accuracy_score"]["value"],
            "latency_ms": n["metrics"]["value"]["latency-avg"]["value"],
            "input": not n.get("parent_model_id"),
        }
        for n in nodes
    ]


def olive_best(points: Sequence[Mapping[str, float]]) -> str:
    """Return the pick in words: whether quantised, with its own figures."""
    made = [p for p in points if not p["input"]]
    if not made:
        return "no model of its search"
    best = min(made, key=lambda p: (p["agreement"] < FLOOR, p["latency_ms"]))
    return f"int8 (agreement {best['agreement']:.2f}, {best['latency_ms']:.2f} ms by its own clock)"


def optimum(place: Place) -> Answer:
    page = """
defaults: [benchmark, {scenario: inference}, {launcher: inline}, {backend: pytorch}, _self_]
name: timm
backend:
  {device: cpu, library: timm, task: image-classification, model_type: efficientnet, model: tf_efficientnet_lite0,
   autocast_dtype: bfloat16}
scenario: {input_shapes: {batch_size: 1}, duration: 5}
"""
    (place.work / "timm.yaml").write_text(page)
    asked = ["--config-dir", ".", "--config-name", "timm", "--multirun"]
    grid = ["backend.torch_compile=false,true", "backend.autocast_enabled=false,true"]
    program = place.tool("optimum-benchmark")
    _, seconds = place.run(program, *asked, *grid, "hydra.sweep.dir=runs", "hydra.job.chdir=true")
    rows: dict[tuple[bool, bool], float] = {}
    for report in sorted(place.work.glob("runs/*/benchmark_report.json")):
        about = json.loads(report.with_name("benchmark_config.json").read_text())["backend"]
        times = json.loads(report.read_text())["forward"]["latency"]
        rows[about["torch_compile"], about["autocast_enabled"]] = times["mean"]
    best = min(rows, key=lambda key: rows[key])
    dtype = "bfloat16" if best[1] else "float32"
    return Answer(
        command=f"optimum-benchmark {' '.join(asked)} {' '.join(grid)}",
        seconds=seconds,
        tried=[f"pytorch {torch_name(*key)}" for key in rows],
        failed={},
        pick=f"pytorch {torch_name(*best)}",
        run=NETWORK | {"compiled": best[0], "dtype": dtype},
        pick_here=True,
        said={torch_name(*key): {"mean_s": value} for key, value in rows.items()},
    )


def torch_name(compiled: bool, autocast: bool) -> str:
    """Return eager or compile, and the precision, in words."""
    return f"{'compile' if compiled else 'eager'} {'autocast bf16' if autocast else 'fp32'}"


def ultralytics(place: Place) -> Answer:
    place.run(
        place.python, "-c", "import ultralytics; ultralytics.YOLO('yolo11n-cls.yaml').save('yolo11n-cls.pt')"
    )
    asked = ["benchmark", "model=yolo11n-cls.pt", f"data={place.data / 'classes'}", "imgsz=224", "device=cpu"]
    text, seconds = place.run(place.tool("yolo"), *asked)
    reasons = dict(re.findall(r"Benchmark failure for ([^:]+): (.*)", text))
    rows = yolo_rows(text)
    works = {name: row for name, row in rows.items() if row is not None}
    best = max(works, key=lambda name: works[name])
    files = {
        "PyTorch": {"kind": "yolo", "name": str(place.work / "yolo11n-cls.pt")},
        "TorchScript": {"kind": "torchscript", "file": str(place.work / "yolo11n-cls.torchscript")},
        "ONNX": onnx_spec(place.work / "yolo11n-cls.onnx"),
        "OpenVINO": {
            "kind": "openvino",
            "file": str(place.work / "yolo11n-cls_openvino_model/yolo11n-cls.xml"),
        },
    }
    if best not in files:
        raise RuntimeError(f"{best} was fastest, and this script cannot run it")
    return Answer(
        command="yolo benchmark model=yolo11n-cls.pt data=PICTURES imgsz=224 device=cpu",
        seconds=seconds,
        tried=list(works),
        failed={name: reasons.get(name, "no reason given") for name, row in rows.items() if row is None},
        pick=f"{best} fp32",
        run=files[best],
        eager=files["PyTorch"],
        eager_here=False,
        said={name: {"fps": fps} for name, fps in works.items()},
    )


def yolo_rows(text: str) -> dict[str, float | None]:
    """Return format -> FPS of the table that benchmark() prints; None of a format that failed."""
    table = text.rpartition("Benchmarks legend")[2]
    found: dict[str, float | None] = {}
    for line in table.splitlines():
        cells = [c for c in re.split(r"\s*\|\s*|\s{2,}", line.strip().strip("|").strip()) if c]
        if len(cells) >= 4 and cells[0].isdecimal():
            found[cells[1]] = float(cells[-1]) if re.fullmatch(r"[\d.]+", cells[-1]) else None
    return found


def onnx_spec(file: Path) -> dict[str, Any]:
    """Return how peers_turn.py runs a file in ONNX Runtime as it comes."""
    return {"kind": "onnxruntime", "file": str(file), "providers": ["CPUExecutionProvider"]}


def edgelens(place: Place) -> Answer:
    model = place.data / "model.onnx"
    asked = [
        "--model",
        str(model),
        "--input-shape",
        "1x3x224x224",
        "--iterations",
        "1000",
        "--save",
        "run.json",
    ]
    _, first = place.run(place.tool("edgelens"), "benchmark", *asked)
    said, second = place.run(place.tool("edgelens"), "diagnose", "run.json")
    found = json.loads((place.work / "run.json").read_text())
    verdict = re.search(r"\b[A-Z]+(?:_[A-Z]+)+\b", said)
    return Answer(
        command="edgelens benchmark --model model.onnx --iterations 1000; edgelens diagnose run.json",
        seconds=first + second,
        tried=["onnxruntime fp32"],
        failed={},
        pick="onnxruntime fp32 (the file as it is)",
        run=onnx_spec(model),
        said={
            "inference_ms": found["stage_stats_ms"]["inference"],
            "diagnosis": verdict[0] if verdict else None,
        },
    )


def litert(place: Place) -> Answer:
    for name in ("weights.pth", "calibration.npy"):
        shutil.copy(place.data / name, place.work)
    _, seconds = place.run(place.python, HERE / "peers_turn.py", "litert")
    rows: dict[str, float] = {}
    for name in ("fp32", "dynamic_int8", "static_int8"):
        asked = [
            "--model",
            f"{name}.tflite",
            "--num_runs",
            "200",
            "--warmup_runs",
            "20",
            "--num_threads",
            "2",
        ]
        _, taken = place.run(place.tool("litert-benchmark"), *asked, "--result_json", f"{name}.json")
        seconds += taken
        rows[name] = litert_ms(json.loads((place.work / f"{name}.json").read_text()))
    best = min(rows, key=lambda name: rows[name])
    return Answer(
        command="litert_torch.convert, ai_edge_quantizer, litert-benchmark --model of each file",
        seconds=seconds,
        tried=[f"litert {name.replace('_', ' ')}" for name in rows],
        failed={},
        pick=f"litert {best.replace('_', ' ')}",
        run={"kind": "litert", "file": str(place.work / f"{best}.tflite")},
        said={name: {"mean_ms": value} for name, value in rows.items()},
    )


def litert_ms(found: Mapping[str, Any]) -> float:
    """Return the mean latency that litert-benchmark wrote."""
    return float(found["latency"]["avg_ms"])


OLIVE = ("olive-ai==0.13.0", "requests", "psutil", "pydantic<2.13", "torch", "onnx", "onnxscript")
PEERS: dict[str, Peer] = {
    "edgescope": Peer(
        edgescope,
        "",
        (),
        checked="all candidates",
        interval="yes",
    ),
    "olive": Peer(
        olive,
        "olive-ai",
        (*OLIVE, "onnxruntime"),
        checked="own evaluator",
        interval="no",
    ),
    "olive-openvino": Peer(
        partial(olive, provider="OpenVINOExecutionProvider"),
        "olive-ai",
        (*OLIVE, "onnxruntime-openvino"),
        checked="own evaluator",
        interval="no",
    ),
    "optimum-benchmark": Peer(
        optimum,
        "optimum-benchmark",
        ("optimum-benchmark==0.6.0", "transformers<5", "datasets<4.2", "timm", "torch", "torchvision"),
        checked="no",
        interval="no",
    ),
    "ultralytics": Peer(
        ultralytics,
        "ultralytics",
        ("ultralytics==8.4.190", "torch", "torchvision", "onnx", "onnxruntime", "onnxslim", "openvino"),
        checked="task's metric",
        interval="no",
        same_model=False,
    ),
    "edgelens": Peer(
        edgelens,
        "edgelens",
        ("edgelens==0.1.0", "onnxruntime", "pillow"),
        checked="no",
        interval="no",
    ),
    "ai-edge": Peer(
        litert,
        "ai-edge-litert",
        ("ai-edge-litert==2.3.0", "litert-torch==0.10.0", "timm", "torch", "torchvision"),
        checked="no",
        interval="no",
    ),
}
