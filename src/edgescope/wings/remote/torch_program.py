#!/usr/bin/env python3
"""Runs a network in a board's own PyTorch: the host sends this file, the operators of a network, and what to do.

One file, standard library and torch alone, Python 3.6 or newer and torch 1.10 or newer (JetPack 4.6 has both). It knows
nothing of edgescope. The network is no pickle and no TorchScript, whose formats an old torch may not read: it is the
list of operators that it calls, with their arguments, and its numbers. They become one Python function that
calls torch operator by operator, as the modules of the network would, without the Python of the modules around them.

    python3 torch_program.py job.json

`job.json` says what to do: measure queries (they are timed here, on time.monotonic()), or answer given inputs. The
answer is `report.json` and a file of numbers. What cannot be done is one line, `edgescope: {"code": ...}`, and exit
code 3.
"""

import array
import ctypes
import gc
import json
import math
import mmap
import os
import platform
import re
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

#: The oldest torch: the first with frombuffer.
OLDEST = (1, 10)
REFUSED = 3
#: Variables with the number of this process among those started at once, and how many they are; the file in which
#: they agree, what they say there, and the seconds from the last one's word to the start, in which all can read it.
PLACES, AGREED, STEPS, START_S = (
    ("EDGESCOPE_PROGRAM", "EDGESCOPE_PROGRAMS"),
    "../agreed",
    ("loaded", "warm"),
    0.02,
)
#: Seconds after which a warm-up that has not settled ends, and seconds before its first check.
LONGEST_WARMUP_S, FIRST_LOOK_S = 10.0, 0.05
#: The times between two checks of the stop rule grow by this.
GROWTH = 1.3
#: Blocks whose means give the interval of the mean, and Student's t for them (95 %, 19 degrees of freedom).
BLOCKS, STUDENT = 20, 2.093
#: Shares by which medians of a warm-up may differ, and queries in a window of it.
SETTLED, LEAST_WINDOW = 0.02, 5
#: Why a measurement ended for which nothing is left.
OVER = "no input left"
#: Operators whose outputs show the precision that a network runs in.
HEAVY: Tuple[str, ...] = ("convolution", "_convolution", "linear", "matmul", "bmm", "addmm", "mm")
HEAVY += tuple(kind + dims for kind in ("conv", "conv_transpose") for dims in ("1d", "2d", "3d"))
HEAVY += ("scaled_dot_product_attention", "lstm", "gru")


class Refused(Exception):
    """What cannot be done: `code` is one of edgescope's, the texts are for people."""

    def __init__(self, code: str, what: str, evidence: str = "") -> None:
        super().__init__(what)
        self.code, self.what, self.evidence = code, what, evidence


def torch_of(oldest: Tuple[int, ...] = OLDEST) -> Any:
    """Return the torch module; Refused if there is none, it does not load, or it is too old."""
    try:
        import torch
    except Exception as error:  # a broken installation raises anything
        found = f"{type(error).__name__}: {error}"
        raise Refused("E-ON-3", "PyTorch cannot be imported", f"{sys.executable}: {found}"[:300]) from None
    version = tuple(int(n) for n in re.findall("[0-9]+", torch.__version__)[:2])
    if version < oldest:
        least = ".".join(str(n) for n in oldest)
        raise Refused(
            "E-ON-4", f"PyTorch is older than {least}", f"torch {torch.__version__} of {sys.executable}"
        )
    return torch


# ---- a network as one function ------------------------------------------------------------------------------


class Writer:
    """Writes the function of a network: Python text, and the names that it uses."""

    def __init__(self, torch: Any, graph: Dict[str, Any], device: Any) -> None:
        self.torch, self.graph, self.device = torch, graph, device
        self.known: Dict[str, Any] = {"DEVICE": device, "inf": math.inf, "nan": math.nan}
        self.dropout = True
        """Whether to drop anything; two runs that shall give the same do not."""
        self.lines: List[str] = []

    def function(self, noted: Optional[Callable[[str, Any], Any]] = None) -> Callable[..., List[Any]]:
        """Return the function from the inputs to the outputs; `noted` sees the output of each heavy operator."""
        self.lines = [f"def forward({', '.join(self.graph['inputs'])}):"]
        last = self.last_uses()
        for index, node in enumerate(self.graph["nodes"]):
            text = self.call(node)
            if noted is not None and node["op"].split(".")[0] in HEAVY:
                text = f"NOTED({node['op']!r}, {text})"
            self.lines.append(f"    {node['name']} = {text}")
            if last.get(index):
                self.lines.append(f"    {' = '.join(last[index])} = None")
        self.lines.append(f"    return [{', '.join(self.graph['outputs'])}]")
        space = dict(self.known, NOTED=noted)
        exec(compile("\n".join(self.lines), "network", "exec"), space)
        return space["forward"]  # type: ignore[no-any-return]

    def last_uses(self) -> Dict[int, List[str]]:
        """Return which values are used last by each node: their memory is free then, as in a module's code."""
        kept = set(self.graph["outputs"]) | {p["name"] for p in self.graph["tensors"]}
        last: Dict[str, int] = {}
        for index, node in enumerate(self.graph["nodes"]):
            for name in [node["name"], *names_in([node["args"], node["kwargs"]])]:
                last[name] = index
        ends: Dict[int, List[str]] = {}
        for name, index in last.items():
            if name not in kept:
                ends.setdefault(index, []).append(name)
        return ends

    def call(self, node: Dict[str, Any]) -> str:
        """Return the text of one call."""
        name, _, overload = node["op"].partition(".")
        args = [self.text(a) for a in node["args"]]
        kwargs = {k: self.text(v) for k, v in node["kwargs"].items()}
        if "dropout" in name and not self.dropout:
            return args[0]
        own = getattr(self, "as_" + name, None)
        if own is not None:
            written = own(node["args"], args, kwargs)
            if written is not None:
                return str(written)
        given = ", ".join(args + [f"{k}={v}" for k, v in kwargs.items()])
        for prefix, place in (("torch_", self.torch), ("nn_", self.torch._C._nn)):
            if hasattr(place, name):
                self.known[prefix + name] = getattr(place, name)
                return f"{prefix}{name}({given})"
        if hasattr(self.torch.Tensor, name) and args:
            return f"{args[0]}.{name}({', '.join(args[1:] + [f'{k}={v}' for k, v in kwargs.items()])})"
        self.known["aten_" + name] = self.aten(name, overload)
        return f"aten_{name}({given})"

    def aten(self, name: str, overload: str) -> Any:
        """Return an operator by its name alone; Refused if this torch does not have it."""
        try:
            return getattr(self.torch.ops.aten, name)
        except (AttributeError, RuntimeError):
            raise Refused(
                "E-ON-5",
                f"PyTorch there has no operator {name}.{overload}",
                f"torch {self.torch.__version__}",
            ) from None

    def text(self, value: Any) -> str:
        """Return the Python text of an argument."""
        if isinstance(value, list):
            return "[" + ", ".join(self.text(v) for v in value) + "]"
        if not isinstance(value, dict):
            return repr(value)
        kind, word = next(iter(value.items()))
        if kind == "value":
            return str(word)
        if kind == "device":
            return "DEVICE"
        if kind == "number":
            return str(word)  # inf, -inf, nan
        text = f"{kind}_{word}"  # dtype, layout, memory
        self.known[text] = getattr(self.torch, word)
        return text

    # Operators that Python spells otherwise, or that an old torch does not have. Each gets the arguments as they were
    # written and as text, and returns the text of a call, or None for the usual one.

    def as_getitem(self, raw: List[Any], args: List[str], kwargs: Dict[str, str]) -> str:
        return f"{args[0]}[{args[1]}]"

    def as_slice(self, raw: List[Any], args: List[str], kwargs: Dict[str, str]) -> Optional[str]:
        dim, start, stop, step = ([*args, *["0", "None", "None", "1"][len(args) - 1 :]])[1:5]
        if kwargs or not dim.isdigit():
            return None
        return f"{args[0]}[{':, ' * int(dim)}{start}:{'' if stop == str(2**63 - 1) else stop}:{step}]"

    def as_index(self, raw: List[Any], args: List[str], kwargs: Dict[str, str]) -> str:
        return f"{args[0]}[{', '.join(':' if v is None else self.text(v) for v in raw[1])},]"

    def as_to(self, raw: List[Any], args: List[str], kwargs: Dict[str, str]) -> str:
        kept = {k: v for k, v in kwargs.items() if k not in ("layout", "pin_memory")}
        return f"{args[0]}.to({', '.join(args[1:] + [f'{k}={v}' for k, v in kept.items()])})"

    def as_pad(self, raw: List[Any], args: List[str], kwargs: Dict[str, str]) -> str:
        self.known["pad"] = self.torch.nn.functional.pad
        given = dict([*zip(("mode", "value"), args[2:])], **kwargs)  # an old torch wants a number, not None
        kept = [f"{k}={v}" for k, v in given.items() if v != "None"]
        return f"pad({', '.join(args[:2] + kept)})"

    def as_batch_norm(self, raw: List[Any], args: List[str], kwargs: Dict[str, str]) -> str:
        self.known["torch_batch_norm"] = self.torch.batch_norm
        return (
            f"torch_batch_norm({', '.join(args[:8])}, True)"  # cuDNN, which the host that followed it had not
        )

    def as_unflatten(self, raw: List[Any], args: List[str], kwargs: Dict[str, str]) -> str:
        self.known["unflatten"] = unflatten
        return f"unflatten({', '.join(args)})"

    def as_scaled_dot_product_attention(
        self, raw: List[Any], args: List[str], kwargs: Dict[str, str]
    ) -> Optional[str]:
        if hasattr(self.torch._C._nn, "scaled_dot_product_attention"):
            return None
        self.known["attention"] = attention
        return f"attention({', '.join(args + [f'{k}={v}' for k, v in kwargs.items()])})"


def names_in(value: Any) -> List[str]:
    """Return the names of the values among arguments."""
    if isinstance(value, dict) and set(value) == {"value"}:
        return [value["value"]]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [name for part in parts for name in names_in(part)]


def unflatten(tensor: Any, dim: int, sizes: List[int]) -> Any:
    """Return a tensor with one axis as several; torch has it for plain sizes from 1.13 on."""
    dim = dim % tensor.dim()
    shape = tensor.shape
    return tensor.view(*shape[:dim], *sizes, *shape[dim + 1 :])


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Any:
    """Return scaled dot-product attention, written out as torch before 2.0 must; groups of heads are not read."""
    if enable_gqa or dropout_p:
        raise Refused("E-ON-5", "PyTorch there has no attention with groups of heads or dropout")
    scores = query.matmul(key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        later = scores.new_ones(scores.shape[-2:]).tril().eq(0)
        scores = scores.masked_fill(later, -math.inf)
    if attn_mask is not None:
        plain = attn_mask.is_floating_point()
        scores = scores + attn_mask if plain else scores.masked_fill(attn_mask.logical_not(), -math.inf)
    return scores.softmax(-1).matmul(value)


def tensors(torch: Any, about: List[Dict[str, Any]], data: bytearray) -> List[Any]:
    """Return the tensors that `about` (dtype, shape, offset) describes in little-endian numbers, which they share."""
    found = []
    for one in about:
        dtype, count = getattr(torch, one["dtype"]), 1
        for size in one["shape"]:
            count *= size
        if count == 0:
            found.append(torch.empty(one["shape"], dtype=dtype))
            continue
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=one["offset"])
        found.append(flat.reshape(one["shape"]))
    return found


# ---- a network on its device --------------------------------------------------------------------------------


class Network:
    """A network on its device; a call takes tensors on the host and returns tensors on the host."""

    def __init__(self, torch: Any, job: Dict[str, Any]) -> None:
        self.torch, self.job, self.begun_s = torch, job, time.monotonic()
        self.device = placed(torch, job)
        with open(job["network"], "rb") as file:
            self.graph, data = json.loads(file.readline().decode("utf-8")), bytearray(file.read())
        self.dtype = getattr(torch, job["dtype"])
        self.kinds: Dict[str, int] = {}
        writer = Writer(torch, self.graph, self.device)
        for one, tensor in zip(self.graph["tensors"], tensors(torch, self.graph["tensors"], data)):
            own = tensor.clone() if self.device.type == "cpu" else tensor  # in memory that torch has aligned
            writer.known[one["name"]] = self.there(own)
        self.noting, self.forward = writer.function(self.note), writer.function()
        self.loaded_s = time.monotonic()

    def note(self, op: str, output: Any) -> Any:
        """Count the dtype of an output and return it."""
        name = str(output.dtype).partition(".")[2]
        self.kinds[name] = self.kinds.get(name, 0) + 1
        return output

    def there(self, tensor: Any) -> Any:
        """Return a tensor on the device, in the layout that is asked for."""
        moved = tensor.to(self.device)
        formats = {4: self.torch.channels_last, 5: self.torch.channels_last_3d}
        if self.job.get("layout") == "channels_last" and tensor.dim() in formats:
            moved = moved.contiguous(memory_format=formats[tensor.dim()])
        return moved

    def inwards(self, tensor: Any) -> Any:
        """Return an input on the device, in the dtype of the network."""
        return self.there(tensor.to(self.device, self.dtype) if tensor.is_floating_point() else tensor)

    def __call__(self, inputs: List[Any], forward: Optional[Callable[..., List[Any]]] = None) -> List[Any]:
        """Return the outputs on the host, floats as float32; they are there when it returns."""
        outputs = (forward or self.forward)(*[self.inwards(tensor) for tensor in inputs])
        return [o.float().cpu() if o.is_floating_point() else o.cpu() for o in outputs]

    def first(self, inputs: List[Any]) -> float:
        """Answer once, note the dtypes of heavy operators, return the seconds."""
        start = time.monotonic()
        self(inputs, self.noting)
        return time.monotonic() - start


def placed(torch: Any, job: Dict[str, Any]) -> Any:
    """Set threads, cuDNN and tf32 as the job says; return the device; Refused if it is not there."""
    if job["device"] == "cpu":
        if job.get("threads"):
            torch.set_num_threads(job["threads"])
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = torch.version.cuda or "none: a CPU build"
        raise Refused(
            "E-CUDA-1", "PyTorch sees no CUDA device", f"torch {torch.__version__}, built for CUDA {built}"
        )
    able = tuple(torch.cuda.get_device_capability())
    if able < tuple(job["capability"]):
        text = f"{torch.cuda.get_device_name()}, compute capability {able[0]}.{able[1]}"
        raise Refused("E-PREC-3", f"PyTorch has no {job['precision']} path on this GPU", text)
    torch.set_num_threads(job.get("threads") or 1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job["precision"] == "tf32"
    return torch.device("cuda")


# ---- queries ------------------------------------------------------------------------------------------------


def median(values: List[float]) -> float:
    """Return the middle of some values."""
    return sorted(values)[len(values) // 2]


def settled(lengths: List[float]) -> bool:
    """Return whether the medians of the last three windows of a warm-up agree."""
    size = len(lengths) // 6
    if size < LEAST_WINDOW:
        return False
    late = lengths[len(lengths) - 3 * size :]
    middles = [median(late[k * size : (k + 1) * size]) for k in range(3)]
    return max(middles) - min(middles) <= 2 * SETTLED * median(middles)


def known(lengths: List[float], share: float) -> bool:
    """Return whether the half-width of the interval of the mean, from means of blocks, is below a share of it."""
    size = len(lengths) // BLOCKS
    if size < 2:
        return False
    means = [sum(lengths[k * size : (k + 1) * size]) / size for k in range(BLOCKS)]
    mean = sum(means) / BLOCKS
    spread = math.sqrt(sum((m - mean) ** 2 for m in means) / (BLOCKS - 1) / BLOCKS)
    return STUDENT * spread <= share * mean


class Together:
    """The moments that processes started at once agree on: each writes its own into a file that all of them map.

    All see the same numbers, so each computes the same start from them and nobody leads.
    """

    def __init__(self) -> None:
        self.number, self.count = (int(os.environ[name]) for name in PLACES)
        size = 8 * self.count * len(STEPS)
        handle = os.open(AGREED, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(handle, size)
        self.moments = memoryview(mmap.mmap(handle, size)).cast("d")
        os.close(handle)

    def tell(self, step: str) -> None:
        """Say that this process has taken a step, now."""
        self.moments[STEPS.index(step) * self.count + self.number] = time.monotonic()

    def since(self, step: str) -> float:
        """Return when the last process took a step; infinity while one has not."""
        first = STEPS.index(step) * self.count
        found = list(self.moments[first : first + self.count])
        return max(found) if all(found) else math.inf

    def wait(self, step: str) -> None:
        """Take a step and wait until all have taken it; who started the processes ends them if one fails."""
        self.tell(step)
        while self.since(step) == math.inf:
            time.sleep(0.002)


class Clocked:
    """Asks one query after another and notes when each began and ended."""

    def __init__(self, ask: Callable[[int], Any], job: Dict[str, Any]) -> None:
        self.ask, self.job = ask, job
        self.begun, self.done = array.array("d"), array.array("d")
        self.settled, self.stopped_by = True, ""

    def one(self) -> float:
        """Ask one query; return when it ended. `ask` returns False where there is nothing left to ask."""
        start = time.monotonic()
        over = self.ask(len(self.begun)) is False
        stop = time.monotonic()
        if over:
            self.stopped_by = OVER
            return stop
        self.begun.append(start)
        self.done.append(stop)
        return stop

    def lengths(self, first: int) -> List[float]:
        """Return the seconds of each query from the row `first` on."""
        return [b - a for a, b in zip(self.begun[first:], self.done[first:])]

    def warm(self) -> None:
        """Warm up: for the seconds that the job names, else until the lengths agree."""
        start, seconds = time.monotonic(), self.job["warmup"]
        if seconds is not None:
            while time.monotonic() - start < seconds and not self.stopped_by:
                self.one()
            return
        look = FIRST_LOOK_S
        while True:
            passed = self.one() - start
            if self.stopped_by:
                return
            if passed < look:
                continue
            if settled(self.lengths(0)):
                return
            if passed >= LONGEST_WARMUP_S:
                self.settled = False
                return
            look = passed * GROWTH

    def measure_with(self, others: Together) -> Tuple[float, float]:
        """Measure from the moment when all processes are warm, for the agreed seconds; return the window's bounds."""
        others.tell("warm")
        while time.monotonic() < others.since("warm") + START_S and not self.stopped_by:
            self.one()
        start = others.since("warm") + START_S
        stop, first, count = start + self.job["together_s"], len(self.begun), self.job["max_queries"]
        while not self.stopped_by:
            now = self.one()
            if self.stopped_by:
                stop = min(stop, now)
            elif count and len(self.begun) - first >= count:
                self.stopped_by, stop = "all queries done", now
            elif now >= stop:
                self.stopped_by = "the agreed stop"
        return start, stop

    def measure(self) -> Tuple[float, float]:
        """Measure until the mean is known, not before min_s and not after max_s; return the window's bounds."""
        first, start = len(self.begun), time.monotonic()
        least, most, count = self.job["min_s"], self.job["max_s"], self.job["max_queries"]
        look = most if count else least
        while True:
            now = self.one()
            passed = now - start
            if self.stopped_by:
                return start, now
            if count and len(self.begun) - first >= count:
                self.stopped_by = "all queries done"
            elif passed >= most:
                self.stopped_by = "max_s"
            elif passed >= look:
                look = passed * GROWTH
                if known(self.lengths(first), self.job["rel_width"]):
                    self.stopped_by = "rel_width"
            if self.stopped_by:
                return start, now


def timed(ask: Callable[[int], Any], job: Dict[str, Any]) -> Dict[str, Any]:
    """Warm up and measure, together with the processes that were started at once; return the report's part of it."""
    clocked = Clocked(ask, job)
    others = Together() if int(os.environ.get(PLACES[1], "1")) > 1 else None
    if others:
        others.wait("loaded")
    clocked.warm()
    start_s, stop_s = (0.0, 0.0)
    if not clocked.stopped_by:
        start_s, stop_s = clocked.measure_with(others) if others else clocked.measure()
    first = sum(1 for begun in clocked.begun if begun < start_s)
    if start_s <= 0.0 or first == len(clocked.begun):
        raise Refused("E-WORK-3", "the input was used up before the measurement began")
    with open(job["times"], "wb") as file:
        clocked.begun.tofile(file)
        clocked.done.tofile(file)
    return {
        "queries": len(clocked.begun),
        "first_row": first,
        "start_s": start_s,
        "stop_s": stop_s,
        "settled": clocked.settled,
        "stopped_by": clocked.stopped_by,
    }


def measure(torch: Any, job: Dict[str, Any], begun_s: float) -> Dict[str, Any]:
    """Time queries; write `times.bin`, the begin and end of each in seconds; return the report."""
    network = Network(torch, job)
    pool = batches(torch, job)
    with torch.inference_mode():
        first_s = network.first(pool[0])
        gc.collect()
        gc.disable()
        told = timed(lambda k: network(pool[k % len(pool)]), job)
        gc.enable()
    return dict(
        about(torch, network.device, network.kinds),
        import_s=network.begun_s - begun_s,
        load_s=network.loaded_s - network.begun_s,
        first_s=first_s,
        **told,
    )


def batches(torch: Any, job: Dict[str, Any]) -> List[List[Any]]:
    """Return the batches in the file of inputs, in order; each has the size that the network takes."""
    with open(job["given"], "rb") as file:
        whole = tensors(torch, job["inputs"], bytearray(file.read()))
    size = job["batch"]
    count = max(len(whole[0]) // size, 1)
    return [[tensor[k * size : (k + 1) * size] for tensor in whole] for k in range(count)]


def answer(torch: Any, job: Dict[str, Any], begun_s: float) -> Dict[str, Any]:
    """Answer all batches; write their outputs, batch after batch, to a file; return the report with their shapes."""
    network = Network(torch, job)
    shapes: List[List[Dict[str, Any]]] = []
    offset = 0
    with torch.inference_mode(), open(job["answers"], "wb") as file:
        for batch in batches(torch, job):
            outputs = network(batch, None if shapes else network.noting)
            shapes.append([])
            for output in outputs:
                dtype = str(output.dtype).partition(".")[2]
                shapes[-1].append({"dtype": dtype, "shape": list(output.shape), "offset": offset})
                offset += written(output, file)
    return dict(about(torch, network.device, network.kinds), answers=shapes)


def written(tensor: Any, file: Any) -> int:
    """Write a tensor's numbers and return the bytes; from memory, because a board's torch may lack numpy."""
    flat = tensor.contiguous()
    size = flat.numel() * flat.element_size()
    if size:
        file.write(ctypes.string_at(flat.data_ptr(), size))
    return int(size)


def about(torch: Any, device: Any, kinds: Dict[str, int]) -> Dict[str, Any]:
    """Return what ran: versions, device, threads, the precision that was seen."""
    found: Dict[str, Any] = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "kinds": kinds,
    }
    if device.type == "cuda":
        able = torch.cuda.get_device_capability()
        found.update(
            gpu=torch.cuda.get_device_name(),
            capability=list(able),
            cudnn=torch.backends.cudnn.version(),
            tf32=[torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
            cuda_peak_bytes=torch.cuda.max_memory_allocated(),
        )
    return found


def survey(torch: Any, job: Dict[str, Any], begun_s: float) -> Dict[str, Any]:
    """Return what torch this is, having looked for the device; nothing is run."""
    return about(torch, placed(torch, dict(job, threads=None)), {})


def said(code: str, what: str, evidence: str = "") -> None:
    """Print why nothing was done."""
    print("edgescope: " + json.dumps({"code": code, "what": what, "evidence": evidence}), flush=True)


Verb = Callable[[Any, Dict[str, Any], float], Dict[str, Any]]


def main(argv: List[str], verbs: Dict[str, Verb]) -> int:
    """Do what the job file says; return 0, or 3 after a line that says why not."""
    begun_s = time.monotonic()
    with open(argv[1], encoding="utf-8") as file:
        job = json.load(file)
    try:
        report = verbs[job["verb"]](torch_of(), job, begun_s)
    except Refused as refused:
        said(refused.code, refused.what, refused.evidence)
        return REFUSED
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "out of memory" not in str(error):
            raise
        said("E-ON-9", "the memory of the board ran out", str(error)[:300])
        return REFUSED
    with open(job["report"], "w", encoding="utf-8") as file:
        json.dump(report, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv, {"measure": measure, "answer": answer, "survey": survey}))
