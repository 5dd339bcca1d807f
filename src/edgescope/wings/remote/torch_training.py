#!/usr/bin/env python3
"""Trains a network in a board's own PyTorch: steps and epochs, and when each part of each step ended.

It is sent beside torch_program.py, which it builds on, and needs what that needs: Python 3.6, torch 1.10. The network
comes as operators and numbers, once for each size of a minibatch: the last one of an epoch holds what is left.

    python3 torch_training.py job.json

`job.json` says what to do: train, or give the losses of the first steps on given minibatches.
"""

import array
import contextlib
import gc
import json
import math
import sys
import time
from typing import Any, Callable, Dict, Iterator, List

import torch_program as program  # type: ignore[import-not-found]

#: The parts of a step, in their order; the row of a step has its begin, the end of each part, its own end.
PARTS = ("fetch", "h2d", "forward", "backward", "optimizer")
MIXED = {"bf16": "bfloat16", "fp16": "float16"}


class Items:
    """A data set of samples in memory; `size` are drawn from them in turn."""

    def __init__(self, inputs: Any, labels: Any, size: int) -> None:
        self.inputs, self.labels, self.size = inputs, labels, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index % len(self.labels)], self.labels[index % len(self.labels)]


class Line:
    """Notes when the parts of a step ended: by the host's clock, or by events on the GPU's stream."""

    def __init__(self, torch: Any, device: Any) -> None:
        on_gpu, count = device.type == "cuda", len(PARTS) + 1
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(count)] if on_gpu else []
        self.step: List[float] = []

    def begin(self) -> None:
        """Begin a step."""
        self.step = []
        self.mark("")

    def mark(self, part: str) -> None:
        """End a part of the step; the next one begins."""
        if self.events:
            self.events[len(self.step)].record()
        self.step.append(time.monotonic())

    def end(self) -> List[float]:
        """End the step, which the device has finished; return its row."""
        if self.events:
            first, start = self.events[0], self.step[0]
            self.step[1:] = [start + first.elapsed_time(event) * 1e-3 for event in self.events[1:]]
        return [*self.step, time.monotonic()]


class Trainee:
    """A network with the numbers that are trained and their optimizer."""

    def __init__(self, torch: Any, job: Dict[str, Any], dropout: bool = True) -> None:
        self.torch, self.job, self.begun_s = torch, job, time.monotonic()
        self.device = program.placed(torch, job)
        torch.manual_seed(job["seed"])
        with open(job["network"], "rb") as file:
            head, data = json.loads(file.readline().decode("utf-8")), bytearray(file.read())
        self.kinds: Dict[str, int] = {}
        known: Dict[str, Any] = {}
        trained = []
        for one, tensor in zip(head["tensors"], program.tensors(torch, head["tensors"], data)):
            own = known[one["name"]] = self.there(tensor.clone())
            if one["trained"]:
                trained.append(own.requires_grad_())
        self.noting, self.forwards = {}, {}
        for graph in head["graphs"]:
            writer = program.Writer(torch, dict(graph, tensors=head["tensors"]), self.device)
            writer.dropout = dropout
            writer.known.update(known)
            self.noting[graph["batch"]] = writer.function(self.note)
            self.forwards[graph["batch"]] = writer.function()
        rate = job["learning_rate"]
        adam, sgd = torch.optim.Adam, torch.optim.SGD
        self.optimizer = adam(trained, lr=rate) if job["optimizer"] == "adam" else sgd(trained, rate, 0.9)
        self.scaler = torch.cuda.amp.GradScaler() if job["precision"] == "fp16" else None
        self.loaded_s = time.monotonic()

    def there(self, tensor: Any) -> Any:
        """Return a tensor on the device, in the layout that is asked for."""
        moved = tensor.to(self.device)
        formats = {4: self.torch.channels_last, 5: self.torch.channels_last_3d}
        if self.job.get("layout") == "channels_last" and tensor.dim() in formats:
            return moved.contiguous(memory_format=formats[tensor.dim()])
        return moved

    def note(self, op: str, output: Any) -> Any:
        """Count the dtype of an output and return it."""
        name = str(output.dtype).partition(".")[2]
        self.kinds[name] = self.kinds.get(name, 0) + 1
        return output

    def mixed(self) -> Any:
        """Return the context in which the network and its loss are computed."""
        dtype = MIXED.get(self.job["precision"])
        if dtype is None:
            return contextlib.ExitStack()
        return self.torch.autocast(self.device.type, dtype=getattr(self.torch, dtype))

    def take(self, batch: Any, mark: Callable[[str], None], first: bool = False) -> float:
        """Take one step with a minibatch on the host; return its loss, so the device has finished."""
        inputs, labels = (tensor.to(self.device) for tensor in batch)
        mark("h2d")
        with self.mixed():
            outputs = (self.noting if first else self.forwards)[len(labels)](inputs)
            loss = self.torch.nn.functional.cross_entropy(outputs[0], labels)
        mark("forward")
        self.optimizer.zero_grad(set_to_none=True)
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        mark("backward")
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        mark("optimizer")
        return float(loss.detach())

    def alone(self, batch: Any, first: bool = False) -> float:
        """Take one step that is not timed; return its loss."""
        return self.take(batch, lambda part: None, first)


class Course:
    """Epoch after epoch of steps, each timed; `log` has a row for each epoch."""

    def __init__(self, torch: Any, job: Dict[str, Any], trainee: Trainee, loader: Any) -> None:
        self.job, self.trainee, self.loader = job, trainee, loader
        self.line, self.rows = Line(torch, trainee.device), array.array("d")
        self.log: List[Dict[str, Any]] = []
        self.minibatches: Iterator[Any] = iter(())

    def fetched(self) -> Any:
        """Return the next minibatch, of the next epoch if this one is over; None after the last."""
        while True:
            for batch in self.minibatches:
                return batch
            now = time.monotonic()
            if self.log:
                self.log[-1]["end_s"] = now
            if self.job["epochs"] and len(self.log) >= self.job["epochs"]:
                return None
            self.log.append({"start_s": now, "end_s": None, "samples": 0, "batches": 0})
            self.minibatches = iter(self.loader)

    def step(self, number: int) -> bool:
        """Take one step; return False if none is left."""
        self.line.begin()
        batch = self.fetched()
        if batch is None:
            return False
        self.line.mark("fetch")
        loss = self.trainee.take(batch, self.line.mark)
        row, size = self.log[-1], len(batch[1])
        self.rows.extend([*self.line.end(), loss, size])
        row["samples"] += size
        row["batches"] += 1
        if math.isnan(loss):
            raise program.Refused(
                "E-STEP-3", f"the loss is no number after {number + 1} steps", f"epoch {len(self.log)}"
            )
        return True


def loader_of(torch: Any, job: Dict[str, Any], items: Items) -> Any:
    """Return PyTorch's own loader, in another order in each epoch."""
    order = torch.Generator().manual_seed(abs(job["seed"]))
    more: Dict[str, Any] = {}
    if job["num_workers"] > 0:
        more = {
            "prefetch_factor": job["prefetch_factor"] or 2,
            "persistent_workers": job["persistent_workers"],
        }
    return torch.utils.data.DataLoader(
        items, job["batch"], shuffle=True, generator=order, num_workers=max(job["num_workers"], 0), **more
    )


def given(torch: Any, job: Dict[str, Any]) -> List[Any]:
    """Return the inputs and the labels in the file of samples."""
    with open(job["given"], "rb") as file:
        found: List[Any] = program.tensors(torch, job["inputs"], bytearray(file.read()))
    return found


def train(torch: Any, job: Dict[str, Any], begun_s: float) -> Dict[str, Any]:
    """Take steps; write the moments of each, and of its parts with its loss and its samples; return the report."""
    trainee = Trainee(torch, job)
    inputs, labels = given(torch, job)
    items = Items(inputs, labels, job["epoch_samples"])
    first = next(iter(loader_of(torch, dict(job, num_workers=0), items)))
    start = time.monotonic()
    loss = trainee.alone(first, first=True)
    first_s = time.monotonic() - start
    course = Course(torch, job, trainee, loader_of(torch, job, items))
    gc.collect()
    told = program.timed(course.step, job)
    with open(job["parts"], "wb") as file:
        course.rows.tofile(file)
    return dict(
        program.about(torch, trainee.device, trainee.kinds),
        import_s=trainee.begun_s - begun_s,
        load_s=trainee.loaded_s - trainee.begun_s,
        first_s=first_s,
        loss_first=loss,
        log=course.log,
        **told,
    )


def losses(torch: Any, job: Dict[str, Any], begun_s: float) -> Dict[str, Any]:
    """Return the losses of the first steps on given minibatches, without dropout."""
    trainee = Trainee(torch, job, dropout=False)
    inputs, labels = given(torch, job)
    found, begin = [], 0
    for size in job["sizes"]:
        found.append(trainee.alone((inputs[begin : begin + size], labels[begin : begin + size])))
        begin += size
    return {"losses": found}


if __name__ == "__main__":
    sys.exit(program.main(sys.argv, {"train": train, "losses": losses}))
