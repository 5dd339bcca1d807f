"""A program that behaves as trtexec does, by the sources of its samples from TensorRT 8.0 to 11.

It knows the flags, the defaults, the lines and the files of each version; an "engine" is the ONNX file with a header,
and its outputs are ONNX Runtime's. `fault` makes it fail as a real one does. It proves nothing about TensorRT itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

ALWAYS = {
    "onnx saveEngine loadEngine minShapes optShapes maxShapes shapes noTF32 useDLACore allowGPUFallback device help",
    "timingCacheFile iterations duration warmUp exposeDMA noDataTransfers useSpinWait useCudaGraph loadInputs",
    "separateProfileRun avgRuns percentile exportTimes exportOutput exportProfile verbose",
}
#: Version as the banner has it -> flags beyond those that every version has.
VERSIONS = {
    "8001": "fp16 int8 best workspace explicitBatch buildOnly streams nvtxMode=default|verbose|none",
    "8201": "fp16 int8 best workspace explicitBatch buildOnly streams exportLayerInfo "
    "profilingVerbosity=default|verbose|none",
    "8502": "fp16 int8 best workspace memPoolSize buildOnly streams exportLayerInfo "
    "profilingVerbosity=layer_names_only|detailed|none",
    "8601": "fp16 int8 best memPoolSize skipInference infStreams streams exportLayerInfo "
    "profilingVerbosity=layer_names_only|detailed|none",
    "100300": "fp16 bf16 int8 best stronglyTyped memPoolSize skipInference infStreams exportLayerInfo "
    "profilingVerbosity=layer_names_only|detailed|none",
    "110100": "memPoolSize skipInference infStreams exportLayerInfo includeDataTransfers noSpinWait noCudaGraph "
    "profilingVerbosity=layer_names_only|detailed|none",
}
HEADER = b"FAKE ENGINE\n"


def flags_of(version: str) -> set[str]:
    names = " ".join([*ALWAYS, VERSIONS[version]]).split()
    return {name.split("=")[0] for name in names}


class Fake:
    def __init__(self, version: str, fault: str = "", capability: str = "8.7") -> None:
        self.version, self.fault, self.capability = version, fault, capability
        self.major = int(version[:-4] or 0) if len(version) > 4 else int(version[0])
        self.release = (self.major, int(version[1]) if len(version) == 4 else int(version[-4:-2]))
        self.banner = f"[TensorRT v{version}]" + (" [b26]" if self.major >= 10 else "")

    def say(self, text: str, severity: str = "I") -> None:
        stream = sys.stderr if severity == "E" else sys.stdout
        print(f"[01/02/2026-03:04:05] [{severity}] {text}", file=stream, flush=True)

    def mark(self, word: str) -> None:
        print(f"&&&& {word} TensorRT.trtexec {self.banner} # {' '.join(sys.argv)}", flush=True)

    def failed(self, *texts: str) -> int:
        for text in texts:
            self.say(text, "E")
        self.mark("FAILED")
        return 1

    def main(self, argv: list[str]) -> int:
        self.mark("RUNNING")
        given = dict(arg.lstrip("-").partition("=")[::2] for arg in argv)
        if "help" in given:
            return self.help()
        unknown = [name for name in given if name not in flags_of(self.version)]
        if unknown:
            self.help()
            return self.failed(f"Unknown option: --{unknown[0]} {given[unknown[0]]}")
        self.say("=== Device Information ===")
        self.say("Selected Device: Fake Orin")
        self.say(f"Compute Capability: {self.capability}")
        self.say(
            f"TensorRT version: {self.version if self.release == (8, 0) else '.'.join(map(str, self.release))}"
        )
        if self.fault == "hang" and "onnx" in given:
            self.say("[TRT] Some tactics do not have sufficient workspace memory to run.")
            time.sleep(600)
        code = self.build(given) if "onnx" in given else self.load(given)
        return code

    def help(self) -> int:
        for names in (*ALWAYS, VERSIONS[self.version]):
            for name in names.split():
                flag, _, modes = name.partition("=")
                print(f"  --{flag}   mode ::= {modes}" if modes else f"  --{flag}   some words")
        return 0

    def build(self, given: dict[str, str]) -> int:
        content = Path(given["onnx"]).read_bytes()
        self.say("[TRT] Opset version:    13")
        if self.fault == "node":
            return self.unsupported_node()
        if self.fault == "memory":
            return self.failed(
                "Error[1]: [defaultAllocator.cpp::allocate::19] Error Code 1: Cuda Runtime (out of memory)",
                "Engine could not be created from network",
            )
        if self.fault == "slow_fp16" and "fp16" in given:
            text = (
                "[TRT] Half2 support requested on hardware without native FP16 support, performance will be"
            )
            self.say(f"{text} negatively affected.", "W")
        if self.fault == "killed":
            os.kill(os.getpid(), 9)
        names = [name for name in ("fp16", "bf16", "int8") if name in given]
        shapes = given.get("optShapes", "")
        if self.major >= 11 or "stronglyTyped" in given:
            names = self.types_in(content)
        header = {"precision": (names or ["fp32"])[0], "version": self.version, "board": self.capability}
        plan = HEADER + json.dumps(header | {"shapes": shapes}).encode() + b"\n" + content
        self.say("Engine built in 1.25 sec.")
        if self.major >= 10:
            self.say(f"Created engine with size: {len(plan) / (1 << 20):.6f} MiB")
        whole = plan[: len(plan) // 2] if self.fault == "disk" else plan
        if self.fault != "nothing":
            Path(given["saveEngine"]).write_bytes(whole)
        if "timingCacheFile" in given:
            Path(given["timingCacheFile"]).write_bytes(b"times")
        self.mark("PASSED")
        return 0

    def types_in(self, content: bytes) -> list[str]:
        import onnx

        graph = onnx.load_from_string(content).graph
        if any(node.op_type == "QuantizeLinear" for node in graph.node):
            return ["int8"]
        return ["fp16"] if any(t.data_type == onnx.TensorProto.FLOAT16 for t in graph.initializer) else []

    def unsupported_node(self) -> int:
        if self.major >= 10:
            what = "In node 3 with name: /tail/Erf and operator: Erf (parseNode): UNSUPPORTED_NODE: Assertion failed"
            return self.failed(f"[TRT] {what}", "Failed to parse onnx file")
        return self.failed(
            '[TRT] ModelImporter.cpp:773: While parsing node number 3 [Erf -> "y"]:',
            "[TRT] ModelImporter.cpp:779: ERROR: builtin_op_importers.cpp:5 In function importFallbackPluginImporter:",
            '[8] Assertion failed: creator && "Plugin not found"',
            "Failed to parse onnx file",
        )

    def load(self, given: dict[str, str]) -> int:
        path = Path(given["loadEngine"])
        if not path.is_file():
            return self.failed(f"Error opening engine file: {path}", "Engine set up failed")
        content = path.read_bytes()
        if not content.startswith(HEADER):
            return self.failed("Error[1]: Magic tag does not match", "Engine deserialization failed")
        head, _, model = content[len(HEADER) :].partition(b"\n")
        header = json.loads(head)
        if (header["version"], header["board"]) != (self.version, self.capability):
            return self.failed(
                "[TRT] 6: The engine plan file is not compatible with this version of TensorRT"
            )
        if self.fault == "late" and Path.cwd().name == "1":
            time.sleep(0.6)
        if self.fault == "one dies" and Path.cwd().name == "1":
            return self.failed("Error[1]: Cuda Runtime (out of memory)", "Engine set up failed")
        self.say("Engine loaded in 0.25 sec.")
        if self.release >= (8, 4):
            self.say("Engine deserialized in 0.125 sec.")
        session, batch = self.context(model, given)
        if "useCudaGraph" in given and self.fault == "graph":
            words = "The built TensorRT engine contains operations that are not permitted under CUDA graph capture"
            self.say(f"{words} mode.", "W")
        for output in session.get_outputs():
            style = "Created output binding for {} with dimensions 1x1"
            if self.major >= 10:
                style = "Output binding for {} with dimensions 1x1 is created."
            self.say(style.format(output.name))
        if "exportLayerInfo" in given:
            self.export_layers(Path(given["exportLayerInfo"]), header["precision"])
        self.query(session, batch, given)
        if "exportProfile" in given:
            rows = [{"count": 7}, {"name": "conv", "timeMs": 7, "averageMs": 1, "percentage": 100}]
            Path(given["exportProfile"]).write_text(json.dumps(rows))
        self.mark("PASSED")
        return 0

    def context(self, model: bytes, given: dict[str, str]):
        import numpy as np
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        shapes = {n: s for n, _, s in (e.rpartition(":") for e in given.get("shapes", "").split(",") if e)}
        files = {n: f for n, _, f in (e.rpartition(":") for e in given.get("loadInputs", "").split(",") if e)}
        batch = {}
        for one in session.get_inputs():
            fixed = [n if isinstance(n, int) else 1 for n in one.shape]
            shape = [int(n) for n in shapes[one.name].split("x")] if one.name in shapes else fixed
            if one.name in files:
                batch[one.name] = np.fromfile(files[one.name], np.float32).reshape(shape)
            else:
                batch[one.name] = np.zeros(shape, np.float32)
        return session, batch

    def export_layers(self, path: Path, precision: str) -> None:
        if self.release < (8, 4):
            path.write_text(json.dumps({"Layers": ["conv + relu", "fc"], "Bindings": ["x", "y"]}))
            return
        kept = "fp32" if self.fault == "fp32_anyway" else precision
        word = {"fp32": "Float", "fp16": "Half", "bf16": "BFloat16", "int8": "Int8"}[kept]
        layer = {
            "Name": "conv + relu",
            "LayerType": "CaskConvolution",
            "ParameterType": "Convolution",
            "Inputs": [{"Name": "x", "Format/Datatype": f"Row major linear {word} format"}],
            "Weights": {"Type": word, "Count": 72},
            "TacticName": "sm80_xmma_fprop",
        }
        path.write_text(json.dumps({"Layers": [layer], "Bindings": ["x", "y"]}))

    def query(self, session, batch, given: dict[str, str]) -> None:
        """Query for the time asked; in each row the device's times follow the host's as on a real board."""
        transfers = "includeDataTransfers" in given if self.major >= 11 else "noDataTransfers" not in given
        ahead = "exposeDMA" not in given
        warmup, duration = float(given.get("warmUp", 200)), float(given.get("duration", 3)) * 1e3
        iterations = int(given.get("iterations", 10))
        self.say("Starting inference")
        zero, rows, made, previous = time.perf_counter(), [], 0, 0.0
        now = lambda: (time.perf_counter() - zero) * 1e3  # noqa: E731
        outputs = None
        while made < iterations or now() < warmup + duration:
            begun = now()
            outputs = session.run(None, batch)
            ended = now()
            share = (ended - begun) / 10 if transfers else 0.0
            enqueued = max(previous - 0.3 * (ended - begun), 0.0) if ahead and previous else begun + share / 2
            rows.append(
                {
                    "startEnqMs": enqueued,
                    "endEnqMs": enqueued + 0.01,
                    "startH2dMs": begun,
                    "endH2dMs": begun + share,
                    "startComputeMs": begun + share,
                    "endComputeMs": ended - share,
                    "startD2hMs": ended - share,
                    "endD2hMs": ended,
                }
            )
            previous = ended
            made += begun + share >= warmup
        self.report(rows, warmup)
        if "exportTimes" in given:
            self.export_times(Path(given["exportTimes"]), rows, warmup)
        if "exportOutput" in given:
            self.export_outputs(Path(given["exportOutput"]), session, outputs)

    def report(self, rows, warmup: float) -> None:
        measured = [row for row in rows if row["startComputeMs"] >= warmup]
        lasted = measured[-1]["endD2hMs"] - measured[0]["startH2dMs"]
        compute = sorted(row["endComputeMs"] - row["startComputeMs"] for row in measured)
        middle, last = compute[len(compute) // 2], compute[-1]
        shares = (90, 95, 99) if self.release >= (8, 5) else (99,)
        percentiles = ", ".join(f"percentile({p}%) = {last:g} ms" for p in shares)
        self.say(f"Warmup completed {len(rows) - len(measured)} queries over {warmup:g} ms")
        self.say(f"Timing trace has {len(measured)} queries over {lasted / 1e3:g} s")
        self.say("=== Performance summary ===")
        self.say(f"Throughput: {len(measured) / lasted * 1e3:g} qps")
        for name in (
            "Latency",
            *(["End-to-End Host Latency"] if self.release < (8, 4) else []),
            "GPU Compute Time",
        ):
            words = (
                f"min = {compute[0]:g} ms, max = {last:g} ms, mean = {middle:g} ms, median = {middle:g} ms"
            )
            self.say(f"{name}: {words}, {percentiles}")
        self.say(f"Total Host Walltime: {lasted / 1e3:g} s")

    def export_times(self, path: Path, rows, warmup: float) -> None:
        old = self.release < (8, 4)
        kept = rows if old else [row for row in rows if row["startComputeMs"] >= warmup]
        lines = []
        for row in kept:
            h2d, compute, d2h = (row[f"end{n}Ms"] - row[f"start{n}Ms"] for n in ("H2d", "Compute", "D2h"))
            told = dict(row) | {
                "h2dMs": h2d,
                "computeMs": compute,
                "d2hMs": d2h,
                "latencyMs": h2d + compute + d2h,
            }
            if old:
                renamed = {k.replace("H2d", "In").replace("D2h", "Out"): v for k, v in told.items()}
                told = {{"h2dMs": "inMs", "d2hMs": "outMs"}.get(k, k): v for k, v in renamed.items()}
                told["endToEndMs"] = told["endOutMs"] - told["startInMs"]
            lines.append("{ " + ", ".join(f'"{k}" : {v:g}' for k, v in told.items()) + " }")
        text = "[\n  " + "\n, ".join(lines) + "\n]\n"
        path.write_text(text[: len(text) // 2] if self.fault == "truncated" else text)

    def export_outputs(self, path: Path, session, outputs) -> None:
        """Write the outputs backwards: the real program writes them in the order of a hash table."""
        entries = []
        for one, array in reversed(list(zip(session.get_outputs(), outputs, strict=True))):
            values = ", ".join(f"{v:g}" for v in array.ravel().tolist())
            shape = "x".join(map(str, array.shape))
            entries.append(
                f'{{ "name" : "{one.name}"\n  , "dimensions" : "{shape}"\n  , "values" : [ {values} ]\n  }}'
            )
        path.write_text("[\n  " + "\n, ".join(entries) + "\n]\n")
