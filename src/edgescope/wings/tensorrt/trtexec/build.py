"""Build an engine with trtexec: the settings, the command, and the rule that nothing half-written is kept.

An engine is cached with its sidecar (engine_file.py) under a key of everything that affects it. TensorRT's kernel
timings during a build are kept too (a timing cache for each version and GPU): the next build of a similar network is
faster, and the sidecar's flags show that.

`given_engine` checks an engine that the user gives: it must match the trial's pin, model and precision, and this board.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgescope import cache
from edgescope.artifacts import onnx_export
from edgescope.artifacts.for_precision import onnx_file
from edgescope.backends.base import Spec
from edgescope.errors import StoreError, UnsupportedError, UsageError
from edgescope.models.base import FixedBatch, Model
from edgescope.wings.tensorrt import about, engine_file
from edgescope.wings.tensorrt.engine_file import EngineFacts
from edgescope.wings.tensorrt.trtexec import log, program
from edgescope.wings.tensorrt.trtexec.program import Ran, Tool

BUILD_S = 3600
_CREATED = re.compile(r"Created engine with size: ([\d.]+) MiB")


@dataclass(frozen=True)
class Job:
    """One engine to build."""

    tool: Tool
    spec: Spec
    name: str
    """Digest of the model."""
    digest: str
    """Digest of the model; covers external weights, which the ONNX file's hash leaves out."""
    onnx: Path
    sizes: tuple[Mapping[str, tuple[int, ...]], ...]
    """Smallest, usual and largest shape of each input; empty mappings if the file's axes are all fixed."""
    typed: bool
    """Whether each tensor keeps its type in the ONNX file."""


def job_of(model: Model, spec: Spec, folder: Path, tool: Tool) -> Job:
    """Return the build job for `spec`, with its ONNX file made; UnsupportedError if this TensorRT cannot build it."""
    spec = about.for_tensorrt(model, spec, folder)
    typed = program.strongly_typed(tool) or switched(spec, "typed", False)
    program.precision(tool, spec.precision, typed=typed)  # refuses before an export takes minutes
    if typed and spec.precision == "bf16":
        raise UnsupportedError(
            "E-PREC-1",
            "there is no bf16 ONNX file for a strongly typed TensorRT network",
            effect="It would run in fp32 under this label",
            fix="--precision fp16, or TensorRT 10 without --option typed",
        )
    newest = onnx_export.opset_for(tool.version)
    # Without strong typing TensorRT lowers fp16 and bf16 itself; QDQ pairs are in the file in both cases.
    wanted = spec.precision if typed or spec.precision == "int8" else "fp32"
    recipe = about.int8_recipe(model, spec)
    path = onnx_file(model, "fp32" if wanted == "tf32" else wanted, folder, opset=newest, **recipe)
    _refuse_opset(path, newest, tool)
    return Job(tool, spec, model.info.name, model.info.digest, path, _sizes(model, spec), typed)


def _refuse_opset(path: Path, newest: int | None, tool: Tool) -> None:
    opset = cache.notes(path).get("opset")
    if newest is not None and isinstance(opset, int) and opset > newest:
        raise UnsupportedError(
            "E-TRTX-3",
            f"TensorRT {tool.version} reads ONNX up to opset {newest}, {path.name} has opset {opset}",
            effect="Its parser would refuse a node, or misread one",
            fix=f"export the model at opset {newest}",
        )


def _sizes(model: Model, spec: Spec) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """Return smallest, usual and largest shapes; the largest batch is the gate's if one was requested."""
    if isinstance(model, FixedBatch) and model.closed_batch is not None and not spec.shapes:
        return {}, {}, {}
    largest = max(spec.batch, whole_number(spec, "gate_batch", spec.batch))
    usual, most = (
        {given.name: (batch, *given.shape) for given in model.inputs} for batch in (spec.batch, largest)
    )
    return usual, usual, most


def build(job: Job, folder: Path) -> tuple[Path, EngineFacts]:
    """Return the engine and its facts, built once; an EdgescopeError says why that failed."""
    facts = _facts(job)
    path = cache.made(folder) / engine_file.key(facts)
    known = engine_file.cached(path, **board_of(job.tool))
    if known is None:
        return path, _built(job, path, facts)
    return path, known


def board_of(tool: Tool) -> dict[str, str]:
    """Return the TensorRT version and GPU for which an engine must have been built to run here."""
    return {
        "tensorrt": tool.version,
        "compute_capability": tool.compute_capability,
        "device": tool.gpu,
    }


def _facts(job: Job) -> EngineFacts:
    return EngineFacts(
        model=job.name,
        onnx_sha256=cache.content(job.onnx),
        tensorrt=job.tool.version,
        compute_capability=job.tool.compute_capability,
        program="trtexec",
        precision=job.spec.precision,
        device=job.tool.gpu,
        flags={
            "model_digest": job.digest,
            "flags": _asked(job),
            "typed": job.typed,
            "timing_cache": _kept(job),
        },
        profile=profile(job),
    )


def profile(job: Job) -> dict[str, list[list[int]]]:
    """Return input name -> smallest, usual and largest shape; {} if the file's axes are all fixed."""
    return {name: [list(size[name]) for size in job.sizes] for name in job.sizes[0]}


def _asked(job: Job) -> list[str]:
    """Return the flags that affect the engine."""
    tool, spec = job.tool, job.spec
    workspace = spec.options.get("workspace")
    dla = spec.options.get("dla")
    return [
        *program.spell(tool, "explicit_batch"),
        *program.precision(tool, spec.precision, typed=job.typed),
        *program.profile(job.sizes),
        *(
            []
            if workspace is None
            else program.spell(tool, "workspace", whole_number(spec, "workspace", 0), need="limit")
        ),
        *([] if dla is None else _dla(tool, spec)),
        *program.detail(tool),
    ]


def _dla(tool: Tool, spec: Spec) -> list[str]:
    """Return the flags of a DLA core; layers that it cannot take go to the GPU."""
    core = whole_number(spec, "dla", 0, least=0)
    return program.spell(tool, "dla", core, need="use a DLA") + program.spell(
        tool, "fallback", need="fall back to the GPU"
    )


def command(job: Job, engine: Path, timing: Path) -> list[str]:
    """Return the command that builds the engine; `timing`: the cache of kernel times that it reads and writes."""
    return [
        job.tool.path,
        f"--onnx={job.onnx}",
        f"--saveEngine={engine}",
        *program.spell(job.tool, "build_only", need="build without measuring"),
        *_asked(job),
        *program.spell(job.tool, "timing_cache", timing),
    ]


def _built(job: Job, path: Path, facts: EngineFacts) -> EngineFacts:
    """Build at `path`, completely and with its sidecar, or not at all."""
    with cache.workbench(path) as bench:
        engine, timing = bench / path.name, _timing(job, bench)
        argv = command(job, engine, timing)
        timings = "off" if not _kept(job) else "used" if timing.exists() else "empty"
        doing = f"build {job.name} {job.spec.precision} batch {job.spec.batch}"
        limit = whole_number(job.spec, "build_timeout", BUILD_S)
        ran = job.tool.place.run(argv, cwd=bench, timeout_s=limit, what=f"trtexec: {doing}", quiet=False)
        _check(ran, job, engine, doing)
        _keep_timing(timing, job)
        cache.put(bench, path)
    seconds = ran.log.built_s or ran.seconds
    told = {**facts.flags, "timings": timings, "command": " ".join(argv)}
    return engine_file.adopt(path, replace(facts, flags=told, build_s=seconds))


def _check(ran: Ran, job: Job, engine: Path, doing: str) -> None:
    """Raise an error unless there is a complete engine of the requested precision."""
    slow = log.unsupported_precision(ran.log, job.spec.precision)
    if slow is not None:
        raise slow
    if not ran.passed:
        raise log.failure(ran, job.tool, doing)
    size = engine.stat().st_size if engine.exists() else 0
    created = next((m for _, line in ran.lines if (m := _CREATED.search(line))), None)
    least = 0.9 * float(created[1]) * (1 << 20) if created else 1
    if size < least or size == 0:
        free = shutil.disk_usage(engine.parent).free
        raise StoreError(
            "E-TRTX-11",
            "trtexec reported success, but the file is not whole",
            evidence=f"{size} bytes"
            + (f" of {created[1]} MiB" if created else "")
            + f"; {free / 1e6:.0f} MB free",
            effect="Nothing half-written was kept",
            fix="free some space (df -h), or EDGESCOPE_CACHE=/another/folder",
        )


def _timing(job: Job, scratch: Path) -> Path:
    """Return the path of a copy of the timing cache to build with; no file exists there if there is none yet."""
    target = scratch / "timing.cache"
    if _kept(job):
        with contextlib.suppress(OSError):
            shutil.copyfile(_timing_kept(job), target)
    return target


def _keep_timing(timing: Path, job: Job) -> None:
    if _kept(job) and timing.is_file():
        with contextlib.suppress(StoreError, OSError):  # without it a later build is only slower
            cache.write_bytes(_timing_kept(job), timing.read_bytes())


def _kept(job: Job) -> bool:
    """Return whether kernel timings are kept between builds."""
    return switched(job.spec, "timing_cache", True)


def _timing_kept(job: Job) -> Path:
    board = board_of(job.tool)
    name = f"trtexec-{board['tensorrt']}-sm{board['compute_capability']}-{cache.safe(board['device'])}"
    return cache.folder("timing") / f"{name}.cache"


def switched(spec: Spec, name: str, usual: bool) -> bool:
    """Return an option that is on or off; UsageError if it is neither."""
    value = spec.options.get(name, usual)
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "1", "false", "0"):
        return str(value).lower() in ("true", "1")
    raise UsageError("E-OPT-2", f"{name} must be true or false, not {value!r}")


def whole_number(spec: Spec, name: str, usual: int, *, least: int = 1) -> int:
    """Return an option that is a whole number; UsageError if it is not one, or below `least`."""
    value = spec.options.get(name, usual)
    if isinstance(value, bool) or not str(value).isdigit() or int(value) < least:
        raise UsageError("E-OPT-2", f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


#: Digits of the content that pin a file, as those of a model do.
DIGITS = 12


def given_engine(named: str, model: Model, spec: Spec, tool: Tool) -> tuple[Path, EngineFacts]:
    """Return the engine of `PATH#digest` and its facts.

    UsageError E-TRTX-16 if it is not pinned by content or is not the pinned file, UnsupportedError E-TRTX-17 if it has
    another model or precision, E-ENG-1 and E-ENG-2 as in engine_file.check().
    """
    bare, mark, pin = named.rpartition("#")
    path = Path(bare if mark else named).expanduser().resolve()
    facts = engine_file.check(path, **board_of(tool))
    content = cache.content(path)[:DIGITS]
    if pin != content or not mark:
        raise UsageError(
            "E-TRTX-16",
            f"the engine {path.name} is not pinned by its content"
            if not mark
            else f"{path.name} is not the engine this trial was planned with",
            evidence=f"its content is {content}" + (f", planned {pin}" if mark else ""),
            effect="Two different engines would be filed as one trial",
            fix=f"--option {shlex.quote(f'engine={path}#{content}')}",
        )
    _same(facts, path, model, spec)
    return path, facts


def _same(facts: EngineFacts, path: Path, model: Model, spec: Spec) -> None:
    """Raise UnsupportedError if the engine has another model or precision than the trial."""
    built = (facts.precision, facts.flags.get("model_digest", "not known"))
    requested = (spec.precision, model.info.digest)
    if built == requested:
        return
    raise UnsupportedError(
        "E-TRTX-17",
        f"{path.name} is not an engine of {model.info.name} in {spec.precision}",
        evidence=f"its sidecar says {facts.model} in {built[0]}, model digest {built[1]}; requested {requested[1]}",
        effect="Its number would be filed under another model or precision",
        fix=f"--precision {built[0]}"
        if built[1] == requested[1]
        else "leave --option engine out: one is built from the model",
    )
