"""Whether each line of docs/how-to/install.md gives a tool that works: fresh environments, no constraints file.

For every Python and every `pip install` line of docs/how-to/install.md: copies the committed files, makes a
virtual environment, runs the line as it stands there, then asks edgescope for what the line promises. Where an engine
is missing, the answer must be a refusal with the command that installs it. `--first` is installed before the line, as
PyTorch's CPU build is on a machine without a GPU. Each combination is published once done, beside the others.

    python benchmarks/install_lines.py --python 3.10 3.11 3.12 3.13 --extras none
    python benchmarks/install_lines.py --python 3.11 --extras torch --first "torch==2.13.0 torchvision==0.28.0"
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from facts import PUBLISHED, commit, publish

ROOT = Path(__file__).parent.parent
NAME = "install_lines"
LIMIT_S = 1800
SHOWN = (
    "torch",
    "torchvision",
    "timm",
    "onnx",
    "onnxruntime",
    "openvino",
    "ai-edge-litert",
    "av",
    "numpy",
    "duckdb",
)
LINE = re.compile(r"^pip install (?:\.|'\.\[(?P<extras>[\w,]+)\]')(?=\s|$)", re.MULTILINE)
NET = """
import timm, torch
def net():
    return timm.create_model("test_efficientnet"), torch.zeros(1, 3, 160, 160)
"""
MAKE_ONNX = """
from onnx import TensorProto, helper, save
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 8]) for n in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "tiny.onnx")
"""


@dataclass(frozen=True)
class Check:
    """A command, the exit status that keeps the line's promise, and what its output must name."""

    command: str
    exit: int = 0
    names: str = ""


def bench(model: str, backend: str) -> Check:
    """Return the check that an engine measures a model."""
    return Check(f"edgescope bench {model} --backend {backend} --duration 1s", names="status")


def refused(model: str, backend: str, fix: str) -> Check:
    """Return the check that edgescope refuses and says which line to run."""
    return Check(f"edgescope bench {model} --backend {backend} --duration 1s", 3, f"Try: pip install '{fix}'")


READING = (
    Check("edgescope --help", names="doctor"),
    Check("edgescope doctor"),
    Check("edgescope models", names="squeezenet1_1"),
    Check("edgescope backends", names="onnxruntime"),
    Check("edgescope bench null --backend null --duration 0.3s", names="ok"),
    Check("edgescope list", names="null"),
    Check("edgescope report -o report.html", names="report.html"),
)
TINY = Check(f"python -c {shlex.quote(MAKE_ONNX)}")
TFLITE = Check(
    "PYTHONPATH=tests/models python -c"
    " 'import pathlib, tiny_tflite; tiny_tflite.write(pathlib.Path(\"tiny.tflite\"))'"
)
SAMPLES = Check("pip install -q --no-deps -r samples.txt")
NO_TORCH = refused("squeezenet1_1", "torch_eager", "edgescope[torch]")
NO_EXPORT = refused("squeezenet1_1", "onnxruntime", "edgescope[torch,onnx]")
TORCH = (bench("squeezenet1_1", "torch_eager"), bench("mynet:net", "torch_eager"))
PROMISED: dict[str, tuple[Check, ...]] = {
    "none": (NO_TORCH, Check("pip install -q --dry-run 'edgescope[onnx]'")),
    "onnx": (TINY, bench("tiny.onnx", "onnxruntime"), NO_EXPORT, NO_TORCH),
    "openvino": (TINY, bench("tiny.onnx", "openvino"), NO_EXPORT, NO_TORCH),
    "litert": (TFLITE, bench("tiny.tflite", "litert"), NO_TORCH),
    "torch": (*TORCH, refused("squeezenet1_1", "onnxruntime", "edgescope[onnx]")),
    "torch,onnx": (*TORCH, bench("squeezenet1_1", "onnxruntime")),
    "all": (
        *TORCH,
        bench("squeezenet1_1", "onnxruntime"),
        bench("squeezenet1_1", "openvino"),
        SAMPLES,
        bench("efficientnet_lite0", "onnxruntime"),
    ),
}


def lines() -> dict[str, str]:
    """Return the install lines of docs/how-to/install.md by their extras, "none" for the line without any."""
    section = (ROOT / "docs/how-to/install.md").read_text()
    return {found["extras"] or "none": found[0] for found in LINE.finditer(section)}


def tried(python: str, extras: str, first: str) -> dict[str, Any]:
    """Return what one line on one Python gave: seconds, bytes, versions, the answers of edgescope."""
    line = lines()[extras]
    with tempfile.TemporaryDirectory(prefix="install-lines-") as name:
        here = Path(name) / "edgescope"
        here.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(here)], input=archive, check=True)
        (here / "mynet.py").write_text(NET)
        subprocess.run([python, "-m", "venv", str(Path(name) / "venv")], check=True)
        environment = clean(Path(name))
        steps = [Check(f"pip install {first}")] if first else []
        row: dict[str, Any] = {"python": version(python), "extras": extras, "first": first, "line": line}
        row["commit"] = commit().get("hash", "unknown")
        row["install"] = [asked(step, here, environment) for step in [*steps, Check(line)]]
        row["seconds"] = round(sum(step["seconds"] for step in row["install"]), 1)
        row["bytes"] = sum(p.lstat().st_size for p in (Path(name) / "venv").rglob("*") if p.is_file())
        row["packages"] = packages(here, environment)
        if all(step["ok"] for step in row["install"]):
            row["checks"] = [asked(check, here, environment) for check in (*READING, *PROMISED[extras])]
    row["works"] = bool(row.get("checks")) and all(answer["ok"] for answer in row["checks"])
    return row


def clean(folder: Path) -> dict[str, str]:
    """Return an environment in which only the new virtual environment is seen, with a cache of its own."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "PIP_CONSTRAINT"))
    }
    path = f"{folder / 'venv' / 'bin'}:{kept['PATH']}"
    return kept | {"PATH": path, "XDG_CACHE_HOME": str(folder / "cache"), "PIP_CACHE_DIR": pip_cache()}


def pip_cache() -> str:
    """Return the folder in which pip keeps what it has downloaded."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or str(Path.home() / ".cache" / "pip")


def version(python: str) -> str:
    """Return the full version of an interpreter."""
    return subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout.split()[1]


def packages(here: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return the versions of what edgescope needs and pip chose."""
    command = ["pip", "list", "--format", "json"]
    found = subprocess.run(
        command, cwd=here, env=environment, capture_output=True, text=True, check=True
    ).stdout
    chosen = {package["name"]: package["version"] for package in json.loads(found)}
    return {name: chosen[name] for name in SHOWN if name in chosen}


def asked(check: Check, here: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run a command in the copied checkout; return its exit status, seconds, whether it is as promised."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        try:
            done = subprocess.run(
                check.command, shell=True, cwd=here, env=environment, stdout=output, stderr=output,
                timeout=LIMIT_S, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            done = None
        output.seek(0)
        text = output.read()
    ok = (done == check.exit or noise(done, text)) and check.names in " ".join(text.split())
    code = re.search(r"\bE-[A-Z]+-\d+: .*", " ".join(text.split()))
    said = code[0][:400] if code else text.strip()[-400:]
    print(
        f"{'ok' if ok else 'NOT OK'}  exit {done}  {check.command.splitlines()[0]}",
        file=sys.stderr,
        flush=True,
    )
    row = {"command": check.command, "exit": done, "seconds": round(time.perf_counter() - start, 1), "ok": ok}
    return row | ({} if ok and done == 0 else {"said": said})


def noise(done: int | None, text: str) -> bool:
    """Return whether a run failed only because the machine was too noisy to measure on: the installation works."""
    return done == 1 and "E-STAT-" in text


def known() -> list[dict[str, Any]]:
    """Return the rows published so far."""
    path = PUBLISHED / f"{NAME}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["figures"]["rows"] if path.exists() else []
    return rows


def merged(rows: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `rows` with `new` in the place of an earlier one of the same question, by Python and line."""
    order = [*PROMISED]

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        minor = tuple(int(part) for part in row["python"].split(".")[:2])
        return order.index(row["extras"]), row["first"], minor

    return sorted([row for row in rows if key(row) != key(new)] + [new], key=key)


def page(rows: list[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    text = [
        "# The lines of docs/how-to/install.md, each in a fresh environment\n",
        "`python benchmarks/install_lines.py`; the figures, the machine and every command with its exit status are in",
        f"[{NAME}.json]({NAME}.json). No constraints file; `works` counts the commands that did what the line",
        "promises, refusals with the command to run among them. Seconds depend on the network and on a cache.\n",
        "| line | Python | works | size | install | versions | commit |",
        "|---|---|---|---:|---:|---|---|",
    ]
    for row in rows:
        first = f"`pip install {row['first']}`, then " if row["first"] else ""
        versions = ", ".join(f"{k} {v}" for k, v in row["packages"].items() if k not in ("numpy", "duckdb"))
        checks = row.get("checks", [])
        works = f"{sum(c['ok'] for c in checks)} of {len(checks)}" if checks else "does not install"
        cells = (
            f"{first}`{row['line']}`", row["python"], works, f"{row['bytes'] / 1e6:,.0f} MB",
            f"{row['seconds']:,.0f} s", versions or "no engine", row["commit"][:12],
        )  # fmt: skip
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", nargs="+", default=["3.11"])
    parser.add_argument("--extras", nargs="+", default=["none"], choices=[*PROMISED])
    parser.add_argument("--first", default="", help="requirements that are installed before the line")
    args = parser.parse_args()
    for minor in args.python:
        python = shutil.which(f"python{minor}")
        if python is None:
            parser.error(f"there is no python{minor} on the PATH")
        for extras in args.extras:
            print(f"Python {minor}: {lines()[extras]}", file=sys.stderr, flush=True)
            row = tried(python, extras, args.first)
            rows = merged(known(), row)  # known() last: another run may have published meanwhile
            publish(NAME, {"rows": rows}, met=all(row["works"] for row in rows))
            (PUBLISHED / f"{NAME}.md").write_text(page(rows))


if __name__ == "__main__":
    main()
