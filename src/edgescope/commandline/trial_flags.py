"""Defines the flags that bench, sweep, optimize and others share: one flag for each key of a Trial."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import registry
from edgescope.command import flag, option_value
from edgescope.errors import UsageError

if TYPE_CHECKING:
    from edgescope.records import Scalar, Trial
    from edgescope.store.results import Store


def seconds(text: str) -> float:
    """Parse `5`, `5s`, `500ms` or `2min`; return seconds."""
    from edgescope import units  # needs numpy, through records

    try:
        return units.seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def words(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(filter(None, text.split(",")))


def seconds_or_auto(text: str) -> float | None:
    """Parse a time; return seconds, or None for `auto`."""
    return None if text == "auto" else seconds(text)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse `name=Nx3x224x224`; return (name, dimensions). N or 1 stands for the batch, which --batch sets."""
    name, _, dims = text.rpartition("=")
    if not name or not re.fullmatch(r"(N|\d+)(x\d+)*", dims):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write name=Nx3x224x224")
    return name, tuple(int(n) for n in dims.replace("N", "1", 1).split("x"))


def size(text: str) -> tuple[int, int]:
    """Parse `640x480`; return width and height."""
    if not re.fullmatch(r"\d{1,5}x\d{1,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 640x480")
    width, height = text.split("x")
    return int(width), int(height)


def option(text: str) -> tuple[str, Scalar]:
    """Parse `key=value`; return (key, value): a number, a boolean or text; a value in double quotes stays text."""
    key, sep, value = text.partition("=")
    if not key or not sep:
        raise argparse.ArgumentTypeError(f"{text!r} is not an option; write key=value")
    return key, option_value(value)


def whole(text: str) -> int:
    """Parse one whole number."""
    return int(_one(text, r"[+-]?\d+", "one whole number"))


def number(text: str) -> float:
    """Parse one number."""
    return float(_one(text, r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|nan", "one number"))


def _one(text: str, pattern: str, what: str) -> str:
    if not re.fullmatch(pattern, text.strip(), re.ASCII | re.IGNORECASE):
        several = "; several make an axis in study.toml (edgescope docs sweeps)" if "," in text else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}{several}")
    return text


def typed(configure: Callable[[argparse.ArgumentParser], None], args: argparse.Namespace) -> set[str]:
    """Return the names of a verb's arguments that are on the command line, even if typed with their defaults."""
    argv, untyped = list(args.argv), object()
    again = argparse.ArgumentParser()
    configure(again)
    again.set_defaults(**{k: untyped for k, v in vars(args).items() if not isinstance(v, list)})
    found = vars(again.parse_args(argv[argv.index(args.verb) + 1 :]))
    return {name for name, value in found.items() if value is not untyped and value != []}


def counted(text: str, name: str = "processes") -> int:
    """Parse a whole number of the flag `name`; UsageError if it is none."""
    if not re.fullmatch(r"\d{1,6}", text.strip(), re.ASCII):
        raise UsageError("E-SWEEP-2", f"--{name} takes whole numbers, not {text!r}", fix=f"--{name} 1,2,4")
    return int(text)


def _colocated(text: str) -> str:
    """Return the colocated work with each of its models pinned by content, as --model is."""
    from edgescope.models import zoo
    from edgescope.records import colocated_with

    return colocated_with(text, zoo.pin)


WHAT: Mapping[str, str] = {
    "backend": "engine, see edgescope backends",
    "precision": "precision, fp32, bf16, int8 ...",
    "batch": "samples in one query",
}
MODEL = "zoo name, timm:NAME, torchvision:NAME, a file (.onnx .tflite .pt2 .pt) or module:callable; NAME@weights.pth"
OWN_BACKEND = "onnxruntime for .onnx, litert for .tflite, else torch_eager"
LONGEST = "longest measured window where --duration is not given (%s)"
AXES: Mapping[str, Callable[[str], Any]] = {
    "backend": str,
    "precision": str,
    "batch": functools.partial(counted, name="batch"),
    "processes": counted,
    "sharing": str,
    "colocated": _colocated,
}
"""Flag for which a sweep takes several values, separated by commas -> the parser of one value."""


def axis(name: str, text: str | None, *, single: bool) -> Any:
    """Return the value of a flag, None if it is not given, or a list of several; UsageError for several if `single`."""
    if text is None:
        return None
    values = [AXES[name](part) for part in text.split(",")]
    if len(values) > 1 and single:
        raise UsageError(
            "E-SWEEP-6",
            f"--{name} takes one value here, not {text!r}",
            effect="Nothing was measured",
            fix=f"edgescope sweep --model MODEL --{name} {shlex.quote(str(text))}",
        )
    return values if len(values) > 1 else values[0]


def add_what(
    sub: argparse._ActionsContainer,
    *,
    lists: bool = False,
    usual: tuple[str | None, str | None, str | None] = ("", "fp32", "1"),
    about: str = "",
    shown: Sequence[str] = (),
) -> None:
    """Add --backend, --precision and --batch, with the defaults `usual`.

    `lists` adds to the help that they are comma-separated, `about` a remark; `shown` replaces the defaults in the help.
    """
    several = ", comma-separated" if lists else ""
    own = (OWN_BACKEND, *usual[1:]) if usual[0] == "" and not about else usual
    defaults = shown or [value or "all" for value in own]
    for (name, text), value, default in zip(WHAT.items(), usual, defaults, strict=True):
        sub.add_argument(
            flag(name), default=value, metavar=name.upper(), help=f"{text}{several}{about} ({default})"
        )


def add_machine(sub: argparse._ActionsContainer, about: str) -> None:
    """Add --machine; `about` says in the help what the machine is for."""
    text = f"machine, as `here`, a board (orin_nano) or the beginning of its id: {about}"
    sub.add_argument("--machine", default="", metavar="ID", help=text)


def add_constraint(sub: argparse._ActionsContainer, examples: str, *, required: bool = False) -> None:
    """Add --constraint, with examples for its help."""
    text = f"bound that must be kept: {examples} ...; may be repeated"
    sub.add_argument(
        "--constraint", action="append", default=[], required=required, metavar="BOUND", help=text
    )


def add_serving(group: argparse._ActionsContainer, several: str = "") -> None:
    """Add --in-flight and --sharing; `several` is added to the help of --sharing."""
    text = "queries in flight at once in each process, with one thread each (1)"
    group.add_argument(flag("in_flight"), type=whole, default=1, help=text)
    text = (
        "how workers share the device: time_slicing, pinned (each on its own CPUs), mps, mps=50 (percent of the GPU)"
        " (time_slicing)"
    )
    group.add_argument(flag("sharing"), default="time_slicing", help=text + several)


def add_warmup(group: argparse._ActionsContainer) -> None:
    """Add --warmup."""
    text = "seconds discarded at the start, or auto: until the latencies are stable (auto)"
    group.add_argument(flag("warmup"), type=seconds_or_auto, default=None, metavar="1s|auto", help=text)


def add_timing(sub: argparse.ArgumentParser) -> None:
    """Add the flags of the measured window and the warm-up."""
    group = sub.add_argument_group("duration")
    text = "seconds measured, or auto: until the mean is known within --rel-width, 1 to 10 s"
    group.add_argument("--duration", type=seconds_or_auto, default=None, metavar="5s|auto", help=text)
    for end, text in (
        ("min_s", "shortest measured window where --duration is not given (1s)"),
        ("max_s", LONGEST % "10s"),
    ):
        group.add_argument(flag(end), type=seconds, default=None, metavar="1s", help=text)
    text = "measure this long; report burst and sustained performance separately once speed is stable"
    group.add_argument("--soak", type=seconds, default=None, metavar="10min", help=text)
    group.add_argument(
        flag("rel_width"),
        type=float,
        default=0.01,
        help="95 %% half-width of the mean at which the run may stop (0.01 = 1 %%)",
    )
    add_warmup(group)
    text = "seconds that the loaded model idles before and after, for idle power and dynamic energy (0)"
    group.add_argument(flag("idle_s"), type=seconds, default=0.0, metavar="10s", help=text)
    group.add_argument(flag("max_queries"), type=int, default=None, help="measure exactly this many queries")


def add_safety(sub: argparse.ArgumentParser) -> None:
    """Add the flags that limit a trial, and those of the store and JSON."""
    group = sub.add_argument_group("limits and results")
    group.add_argument(
        "--timeout",
        type=seconds,
        default=900.0,
        metavar="15min",
        help="longest time a trial may take (15min)",
    )
    group.add_argument(
        "--memory-floor", type=float, default=None, metavar="MB", help="stop a trial if less memory is free"
    )
    add_store(group)
    text = "run stored trials with these statuses again, e.g. oom,timeout,failed"
    group.add_argument("--retry", default="", metavar="STATUS,..", help=text)
    add_json(group)


def add_seconds(sub: argparse._ActionsContainer, about: str, default: float = 0.0) -> None:
    """Add --seconds; `about` says in the help when the watching ends without it."""
    text = f"seconds to watch ({about})"
    sub.add_argument("--seconds", type=seconds, default=default, metavar="10s", help=text)


def add_plain(sub: argparse._ActionsContainer, about: str) -> None:
    """Add --plain; `about` says in the help what each line holds."""
    text = f"print lines: {about}; the default if stdout is no terminal"
    sub.add_argument("--plain", action="store_true", help=text)


def add_learning_rate(sub: argparse._ActionsContainer, default: float | None) -> None:
    """Add --learning-rate."""
    text = "learning rate at the start (0.001)"
    sub.add_argument("--learning-rate", type=float, default=default, metavar="RATE", help=text)


def add_count(sub: argparse._ActionsContainer, things: str, default: int) -> None:
    """Add --count, the number of `things`."""
    text = f"how many to write: {things} ({default})"
    sub.add_argument("--count", type=whole, default=default, metavar="N", help=text)


def add_size(sub: argparse._ActionsContainer, width: int, height: int) -> None:
    """Add --size, with its default."""
    text = f"width and height ({width}x{height})"
    sub.add_argument("--size", type=size, default=(width, height), metavar="WxH", help=text)


def add_log(sub: argparse._ActionsContainer, about: str) -> None:
    """Add --log; `about` says in the help what the file holds."""
    sub.add_argument("--log", type=Path, default=None, metavar="FILE", help=f"log file: {about}")


def add_head(sub: argparse._ActionsContainer) -> None:
    """Add --head."""
    text = "network that scores features: rtfm, mil_ranking, light_head (rtfm)"
    sub.add_argument("--head", default="rtfm", metavar="NAME", help=text)


def add_other_store(sub: argparse._ActionsContainer, what: str) -> None:
    """Add --other-store, which holds `what`; several are read as one."""
    text = f"another store: it holds {what}; may be repeated"
    sub.add_argument("--other-store", action="append", default=[], metavar="DIR", help=text)


def other_store(args: argparse.Namespace) -> Store | None:
    """Return the stores that --other-store names as one, or None."""
    from edgescope.store.several import Stores

    return Stores(args.other_store[0], args.other_store[1:]) if args.other_store else None


def add_run(sub: argparse._ActionsContainer, about: str = "") -> None:
    """Add --run; `about` adds to the help what is measured."""
    sub.add_argument("--run", action="store_true", help=f"measure what the store lacks{about}")


def add_board(sub: argparse._ActionsContainer, about: str = "") -> None:
    """Add --on; `about` adds a remark to the help. A verb that takes one board asks `board` for it."""
    text = f"run on a board over ssh, in its trtexec or PyTorch{about} (edgescope docs remote)"
    sub.add_argument("--on", action="append", default=[], metavar="ssh://USER@HOST[:PORT]", help=text)


def board(args: argparse.Namespace) -> str:
    """Return the board that --on names, or ''; UsageError if it is given twice."""
    if len(args.on) > 1:
        raise UsageError(
            "E-ON-12",
            f"{args.verb} runs on one board, not on {len(args.on)}",
            evidence=", ".join(args.on),
            effect="Nothing was measured",
            fix=f"--on {args.on[0]}, then the same for the next; edgescope study concurrent takes several",
        )
    return str(args.on[0]) if args.on else ""


def price(text: str) -> tuple[str, float]:
    """Parse `baseline=249`; return (name, price)."""
    name, _, amount = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a price; write baseline=249")
    return name, number(amount)


def add_price(group: argparse._ActionsContainer, names: str) -> None:
    """Add --price; `names` shows in the help what may be named."""
    text = f"price of a machine: {names}, in one currency; may be repeated"
    group.add_argument("--price", type=price, action="append", default=[], metavar="NAME=PRICE", help=text)


def add_no_cache(group: argparse._ArgumentGroup) -> None:
    """Add --no-cache."""
    text = "measure again what the store holds; an interrupted --no-cache search continues"
    group.add_argument("--no-cache", action="store_true", help=text)


def add_output(sub: argparse._ActionsContainer, text: str, **how: Any) -> None:
    """Add --output, with `text` as its help."""
    given: dict[str, Any] = {"type": Path, "default": None, "metavar": "FILE"}
    sub.add_argument("--output", "-o", **given | how, help=text)


def add_store(sub: argparse._ActionsContainer) -> None:
    """Add --store."""
    text = "folder of stored results (EDGESCOPE_STORE or ./edgescope-results)"
    sub.add_argument("--store", default=None, metavar="DIR", help=text)


def add_json(sub: argparse._ActionsContainer) -> None:
    """Add --json."""
    sub.add_argument("--json", action="store_true", help="print JSON on stdout; progress goes to stderr")


def add_load(sub: argparse.ArgumentParser, *, lists: bool = False, processes: str = "1") -> None:
    """Add the flags of the load and the engine; `lists` says in the help that some take several values."""
    about = (
        "--processes, --sharing and --colocated take several values, comma-separated; other flags take several values"
        " only in a study.toml"
    )
    group = sub.add_argument_group("load", about if lists else None)
    several = "; comma-separated" if lists else ""
    text = (
        "single_stream, multi_stream, offline; with --rate: fixed_rate, server, burst; trace; idle_gap; mlperf_..."
        " (single_stream)"
    )
    group.add_argument(flag("scenario"), default="single_stream", metavar="NAME", help=text)
    text = "queries/s offered, by an open loop, to each process"
    group.add_argument(flag("rate"), type=number, default=None, help=text)
    text = "option of the scenario, e.g. burst_size=8 for burst, trace=FILE for trace (edgescope docs load)"
    group.add_argument(
        flag("scenario_options"), type=option, action="append", default=[], metavar="K=V", help=text
    )
    add_serving(group, several)
    text = f"worker processes at once, each with its own load; they start and stop together ({processes})"
    group.add_argument(flag("processes"), default=processes, metavar="P", help=text + several)
    text = "other work at the same time, joined by +, one worker each: MODEL, or 'MODEL workload=training batch=32'"
    group.add_argument(flag("colocated"), default="", metavar="MODEL", help=text + several)
    add_work(group)
    add_engine(group)


def add_work(group: argparse._ActionsContainer) -> None:
    """Add --workload, --workload-option and --deadline."""
    text = f"work of one query: {', '.join(registry.WORKLOADS)} (inference)"
    group.add_argument(flag("workload"), default="inference", metavar="NAME", help=text)
    add_workload_option(group, "optimizer=adam for training (`edgescope docs workloads`)")
    text = "time in which a result must come after its query was due or its frame was created; misses are counted"
    group.add_argument(flag("deadline_s"), type=seconds, default=None, metavar="33ms", help=text)


def add_workload_option(group: argparse._ActionsContainer, example: str) -> None:
    """Add --workload-option, with an example for its help."""
    text = f"option of the workload, e.g. {example}"
    group.add_argument(
        flag("workload_options"), type=option, action="append", default=[], metavar="K=V", help=text
    )


def add_option(group: argparse._ActionsContainer) -> None:
    """Add --option."""
    text = "option of the backend, e.g. layout=channels_last (see edgescope backends)"
    group.add_argument(flag("options"), type=option, action="append", default=[], metavar="K=V", help=text)


def add_seed(sub: argparse._ActionsContainer) -> None:
    """Add --seed."""
    sub.add_argument(flag("seed"), type=int, default=0, help="seed of all random choices (0)")


def add_device(
    group: argparse._ActionsContainer, default: str | None = None, usual: str = "the backend's usual device"
) -> None:
    """Add --device; the names are those of the registry, a plug-in's too."""
    text = f"where it computes: cpu, cuda, intel_gpu, intel_npu ... ({usual})"
    group.add_argument(flag("device"), default=default, choices=registry.PLACES, metavar="NAME", help=text)


def add_engine(group: argparse._ArgumentGroup) -> None:
    """Add the flags of the engine: mode, device, threads, options, shapes, accuracy gate, tracer, seed."""
    text = (
        "reversible setting, e.g. 15W, cpus=0-1, quota=0.5, MAXN+jetson_clocks, see edgescope modes (as_is)"
    )
    group.add_argument(flag("mode"), default="as_is", metavar="NAME", help=text)
    text = "let --mode gpu_power=WATTS lower the GPU's power limit (root)"
    group.add_argument("--allow-power-limit", action="store_true", help=text)
    add_device(group)
    text = "where inputs and outputs are: host; on a GPU also pinned or device (host)"
    group.add_argument(flag("io"), default="host", help=text)
    group.add_argument("--threads", type=whole, default=None, help="threads of the engine")
    add_option(group)
    text = "shape of an input whose axes are not fixed, N the batch; may be repeated"
    group.add_argument(
        flag("shapes"), type=shape, action="append", default=[], metavar="name=Nx3x224x224", help=text
    )
    text = "inputs of yours, with labels if you have them: a folder, .csv, .npz, COCO .json, module:callable"
    group.add_argument(flag("data"), default="", metavar="PATH", help=text)
    text = "how pictures become inputs: imagenet, half, unit ..., size=224,mean=0.5,std=0.5, or a file"
    group.add_argument(flag("preprocess"), default="", metavar="HOW", help=text)
    text = "measure of right answers: top1, top5, map, miou, agreement, module:callable (what the labels call for)"
    group.add_argument(flag("metric"), default="", metavar="NAME", help=text)
    text = "share of fp32's value of the measure that a variant must reach (0.99)"
    group.add_argument(flag("min_accuracy"), type=float, default=None, metavar="0..1", help=text)
    text = "lower bound that the agreement with fp32 must reach; it then judges even where there are labels"
    group.add_argument(flag("min_agreement"), type=float, default=None, metavar="0..1", help=text)
    text = "profiler to attach to the process; the traced run is slower and not a measurement (none)"
    group.add_argument(flag("tracer"), default="none", metavar="NAME", help=text)
    add_seed(group)


def _metric(name: str) -> str:
    """Return what a Trial carries for --metric: code is pinned, as models are."""
    if not name:
        return ""
    from edgescope.verify.metric_names import named

    return named(name)


def engine_keys(args: argparse.Namespace) -> dict[str, Any]:
    """Return the Trial keys that the flags of `add_engine` set."""
    options = dict(args.option)
    if args.allow_power_limit:
        os.environ["EDGESCOPE_ALLOW_POWER_LIMIT"] = "1"
    if args.threads is not None:
        options["threads"] = args.threads
    plain = ("mode", "io", "device", "min_accuracy", "data", "preprocess", "min_agreement", "tracer", "seed")
    read = {"options": options, "shapes": dict(args.shapes), "metric": _metric(args.metric)}
    return {name: getattr(args, name) for name in plain} | read


def keys(args: argparse.Namespace, *, single: bool = False, axes: Iterable[str] = AXES) -> dict[str, Any]:
    """Return the Trial keys that these flags set, except the model and the keys of AXES that are not in `axes`.

    A key of AXES is a list if several values are given; UsageError for several values if `single`.
    """
    out = {
        "scenario": args.scenario,
        "rate": args.rate,
        "scenario_options": dict(args.scenario_option),
        "in_flight": args.in_flight,
        **{name: axis(name, getattr(args, name), single=single) for name in axes},
    }
    return engine_keys(args) | work_keys(args) | out | timing_keys(args)


SELECTING = (*AXES, "device", "mode", "io", "scenario", "rate", "in_flight")
"""Flags that select among cells: one that is not typed neither filters the stored ones nor makes an axis."""


def untyped(sub: argparse.ArgumentParser) -> None:
    """Leave the flags of SELECTING that are not typed at None."""
    sub.set_defaults(**dict.fromkeys(SELECTING))


def selected(args: argparse.Namespace) -> dict[str, Any]:
    """Return the Trial keys of the flags that were typed, those of AXES as lists; for a verb with `untyped` flags."""
    out = keys(args)
    out |= {name: out[name] if isinstance(out[name], list) else [out[name]] for name in AXES}
    return {name: v for name, v in out.items() if name not in SELECTING or getattr(args, name) is not None}


def work_keys(args: argparse.Namespace) -> dict[str, Any]:
    """Return the Trial keys that the flags of `add_work` set."""
    options = dict(args.workload_option)
    return {"workload": args.workload, "workload_options": options, "deadline_s": args.deadline}


def timing_keys(args: argparse.Namespace) -> dict[str, Any]:
    """Return the Trial keys that the flags of `add_timing` set."""
    names = {"warmup": args.warmup, "idle_s": args.idle}
    return names | {"rel_width": args.rel_width, "max_queries": args.max_queries} | _window(args)


def _window(args: argparse.Namespace) -> dict[str, float]:
    """Return the shortest and longest length of the measured window that the flags give, in seconds."""
    duration = args.soak or args.duration
    if duration is not None:
        return {"min_s": duration, "max_s": duration}
    ends = {"min_s": args.min_duration, "max_s": args.max_duration}
    return {name: value for name, value in ends.items() if value is not None}


def trials_of(args: argparse.Namespace) -> tuple[Trial, ...]:
    """Return the trials that the flags describe, one for each replicate; UsageError if they contradict each other."""
    from edgescope.models import zoo
    from edgescope.study import grid

    given = keys(args, single=True) | {"model": args.model, "replicates": args.replicates}
    return tuple(grid.pinned(trial, zoo.pin) for trial in grid.grid(given))
