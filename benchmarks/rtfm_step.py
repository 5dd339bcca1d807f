"""Iterations per second of RTFM's training step, and of a plain implementation that does what the public code does.

    python benchmarks/rtfm_step.py --device cuda --json rtfm_step.json
    python benchmarks/rtfm_step.py --bags 4 --crops 1 --videos 8 --seconds 2

The plain arm is written here from the published description and does what the public code does: convolutions over
(N, F, T), a loop over crops with concatenation, labels made on the host, a minibatch that is read and pooled video by
video at every step, and Adam as PyTorch sets it up. Its convolutions run in TF32 on a GPU, because that is PyTorch's
default; with TF32 forbidden there is a second figure. Of each arm there are two: the step alone, on a minibatch that
lies on the device, and the step with its data, from a folder of features in the page cache. The plain arm reads them
in the training process, as the public code does, and once more with a DataLoader of several workers.

What the plain arm leaves out only makes it faster than the public code: live plots of three losses, and scoring the
test set every fifth step. Its videos have 120 snippets; those of UCF-Crime have about 260.

All arms start from the same weights. The losses of one minibatch must agree to 1e-5: as in validation, and as in
training with dropout off.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from facts import page as published
from torch import nn
from torch.nn import functional as F

from edgescope.fit import Step
from edgescope.wings.anomaly import torch_networks, train
from edgescope.wings.anomaly.detector import segmented
from edgescope.wings.anomaly.heads import Rtfm

WIDTH, SEGMENTS, SNIPPETS = 2048, 32, 120
"""SNIPPETS: of a video in the folder."""
TIMES, CLOSE = 2.0, 1e-5
"""Wanted: iterations/s over the plain arm's, and the relative difference of losses."""
WORKERS, WARM = 8, 3
PRECISIONS = ("fp32", "tf32", "bf16")


class PlainNonLocal(nn.Module):
    """The 1-D non-local block as three convolutions and two products."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 2
        self.g, self.theta, self.phi = (nn.Conv1d(channels, inner, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(inner, channels, 1), nn.BatchNorm1d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, C, T)."""
        g, theta = self.g(x).permute(0, 2, 1), self.theta(x).permute(0, 2, 1)
        y = torch.matmul(torch.matmul(theta, self.phi(x)) / x.shape[2], g)
        return self.W(y.permute(0, 2, 1).contiguous()) + x


class PlainAggregate(nn.Module):
    """The temporal network as convolutions over (N, F, T)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for number, dilation in enumerate((1, 2, 4), start=1):
            convolution = nn.Conv1d(width, width // 4, 3, dilation=dilation, padding=dilation)
            setattr(self, f"conv_{number}", nn.Sequential(convolution, nn.ReLU(), nn.BatchNorm1d(width // 4)))
        self.conv_4 = nn.Sequential(nn.Conv1d(width, width // 4, 1, bias=False), nn.ReLU())
        fuse = nn.Conv1d(width, width, 3, padding=1, bias=False)
        self.conv_5 = nn.Sequential(fuse, nn.ReLU(), nn.BatchNorm1d(width))
        self.non_local = PlainNonLocal(width // 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, T, F)."""
        x = x.permute(0, 2, 1)
        branches = [self.conv_1(x), self.conv_2(x), self.conv_3(x), self.non_local(self.conv_4(x))]
        return (self.conv_5(torch.cat(branches, dim=1)) + x).permute(0, 2, 1)


class Plain(nn.Module):
    """RTFM with its selection, in plain steps; parameters have the published names."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.Aggregate = PlainAggregate(width)
        self.fc1, self.fc2, self.fc3 = nn.Linear(width, 512), nn.Linear(512, 128), nn.Linear(128, 1)
        self.drop = nn.Dropout(0.7)

    def loss(self, bags: torch.Tensor) -> torch.Tensor:
        """Return the loss of a minibatch: normal bags first."""
        count, crops, length, width = bags.shape
        half, k = count // 2, length // 10
        features = self.drop(self.Aggregate(bags.view(-1, length, width)))
        scores = self.drop(F.relu(self.fc1(features)))
        scores = self.drop(F.relu(self.fc2(scores)))
        scores = torch.sigmoid(self.fc3(scores)).view(count, crops, -1).mean(1).unsqueeze(2)
        lengths = torch.norm(features, p=2, dim=2).view(count, crops, -1).mean(1)
        found = []
        for side in (slice(half, None), slice(0, half)):
            shown = lengths[side] * self.drop(torch.ones_like(lengths[side]))
            chosen = torch.topk(shown, k, dim=1)[1]
            rows = chosen.unsqueeze(2).expand([-1, -1, width])
            mine = features.view(count, crops, length, width)[side].permute(1, 0, 2, 3)
            picked = torch.zeros(0, device=bags.device)
            for crop in mine:
                picked = torch.cat((picked, torch.gather(crop, 1, rows)))
            answer = torch.gather(scores[side], 1, chosen.unsqueeze(2)).mean(dim=1)
            found.append((answer, torch.norm(picked.mean(dim=1), p=2, dim=1)))
        (abnormal, far), (normal, near) = found
        labels = torch.cat((torch.zeros(half), torch.ones(half))).to(bags.device)
        entropy = F.binary_cross_entropy(torch.cat((normal, abnormal), 0).squeeze(), labels)
        flat = scores[half:].reshape(-1)
        following = torch.zeros_like(flat)
        following[:-1], following[-1] = flat[1:], flat[-1]
        smooth, sparse = torch.sum((following - flat) ** 2), torch.norm(flat, dim=0)
        return entropy + 1e-4 * torch.mean((torch.abs(100 - far) + near) ** 2) + 8e-4 * smooth + 8e-3 * sparse


def folder(root: Path, videos: int, crops: int) -> list[Path]:
    """Write features of so many videos, as large as real ones: (snippets, crops, width) float32."""
    rng, paths = np.random.default_rng(0), []
    for number in range(videos):
        paths.append(root / f"{number}.npy")
        np.save(paths[-1], rng.random((SNIPPETS, crops, WIDTH), dtype=np.float32))
    return paths


def read_plainly(paths: list[Path]) -> torch.Tensor:
    """Read and pool videos as the public code does at each step: crop by crop, segment by segment."""
    bags = []
    for path in paths:
        found = []
        for crop in np.load(path).transpose(1, 0, 2):
            bounds = np.linspace(0, len(crop), SEGMENTS + 1, dtype=int)
            out = np.zeros((SEGMENTS, crop.shape[1]), dtype=np.float32)
            for place in range(SEGMENTS):
                first, last = bounds[place], bounds[place + 1]
                out[place] = crop[first:last].mean(0) if first != last else crop[first]
            found.append(out)
        bags.append(torch.from_numpy(np.array(found, dtype=np.float32)))
    return torch.stack(bags)


def rate(step: Callable[[], torch.Tensor], seconds: float, device: str) -> dict[str, float]:
    """Return the median seconds of a step and iterations per second."""

    def timed() -> float:
        begin = time.perf_counter()
        float(step().detach())
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    for _ in range(WARM):
        timed()
    times, end = list[float](), time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        times.append(timed())
    low, middle, high = (float(x) for x in np.quantile(times, (0.25, 0.5, 0.75)))
    return {"step_s": middle, "quartiles_s": [low, high], "iterations_per_s": 1 / middle, "n": len(times)}


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in every product and convolution."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def plain_step(network: Plain, optimizer: torch.optim.Optimizer, bags: torch.Tensor) -> torch.Tensor:
    """Take one step in plain PyTorch."""
    loss = network.loss(bags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


class Arms:
    """The arms, all with the same first weights and the same minibatch."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.args, self.device = args, args.device
        self.start = Rtfm(WIDTH)
        self.bags = torch.rand(args.bags, args.crops, SEGMENTS, WIDTH)

    def plain(self) -> Plain:
        """Return the plain network."""
        network = Plain(WIDTH)
        network.load_state_dict(torch_networks.to_theirs(self.start.state_dict(), "rtfm"))
        return network.to(self.device).train()

    def ours(self) -> Rtfm:
        """Return edgescope's network."""
        network = Rtfm(WIDTH)
        network.load_state_dict(self.start.state_dict())
        return network.to(self.device).train()

    def equal(self, *, training: bool) -> dict[str, float]:
        """Return both losses of the minibatch without dropout, and how far apart they are."""
        plain, ours, bags = self.plain(), self.ours(), self.bags.to(self.device)
        for network in (plain, ours):
            network.train(training)
            for part in network.modules():
                if isinstance(part, nn.Dropout):
                    part.p = 0.0
        with torch.no_grad(), tf32(False):
            first = float(plain.loss(bags))
            second = float(train.loss_of(train.recipe("rtfm", device=self.device))(ours, bags))
        return {"plain": first, "ours": second, "relative_difference": abs(first - second) / abs(first)}

    def plain_alone(self) -> object:
        """Return the rate of the plain step on a minibatch that lies on the device."""
        network, given = self.plain(), self.bags.to(self.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=5e-3)
        return rate(lambda: plain_step(network, optimizer, given), self.args.seconds, self.device)

    def plain_strict(self) -> object:
        """Return the same with TF32 forbidden."""
        with tf32(False):
            return self.plain_alone()

    def step(self, normal: torch.Tensor, anomalous: torch.Tensor, precision: str) -> tuple[Step, train.Bags]:
        """Return edgescope's step as `anomaly train` takes it, and its bags."""
        recipe = train.recipe("rtfm", device=self.device, bags=self.args.bags, judged_every=10**6)
        kinds = train.Bags(normal, anomalous, recipe)
        return Step(train.task(self.ours(), kinds, recipe), self.device, precision), kinds

    def ours_alone(self, precision: str) -> object:
        """Return the rate of edgescope's step on a minibatch that lies on the device."""
        given, half = self.bags.to(self.device), self.args.bags // 2
        step, _ = self.step(given[:half], given[half:], precision)
        with tf32(precision == "tf32"):
            return rate(lambda: step(given), self.args.seconds, self.device)

    def plain_with_data(self, paths: list[Path]) -> object:
        """Return the rate of the plain step, its data read in the same process."""
        rng = np.random.default_rng(1)

        def read() -> torch.Tensor:
            return read_plainly([paths[i] for i in rng.integers(len(paths), size=self.args.bags)])

        return self._plain_on(read)

    def plain_with_workers(self, paths: list[Path]) -> object:
        """Return the rate of the plain step, its data read by the workers of a DataLoader."""
        torch.multiprocessing.set_sharing_strategy("file_system")
        loader = torch.utils.data.DataLoader(Videos(paths), self.args.bags, num_workers=WORKERS)
        batches = iter(loader)
        return {"workers": WORKERS, **self._plain_on(lambda: next(batches))}

    def _plain_on(self, read: Callable[[], torch.Tensor]) -> dict[str, float]:
        network = self.plain()
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=5e-3)
        return rate(
            lambda: plain_step(network, optimizer, read().to(self.device)), self.args.seconds, self.device
        )

    def ours_with_data(self, paths: list[Path], precision: str) -> object:
        """Return the rate of edgescope's step with its data, which it pools once."""
        begin = time.perf_counter()
        pooled = torch.from_numpy(np.stack([segmented(np.load(path)) for path in paths])).to(self.device)
        once = time.perf_counter() - begin
        step, kinds = self.step(pooled[: len(paths) // 2], pooled[len(paths) // 2 :], precision)
        batches = kinds.batches(0)
        with tf32(precision == "tf32"):
            found = rate(lambda: step(next(batches)), self.args.seconds, self.device)
        return {"pooling_once_s": once, **found}


class Videos(torch.utils.data.Dataset[torch.Tensor]):
    """The folder's videos without end, each read and pooled when it is asked for."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, number: int) -> torch.Tensor:
        return read_plainly([self.paths[number % len(self.paths)]])[0]


def main() -> None:
    """Measure all arms and print JSON."""
    args = parsed()
    if args.threads:
        torch.set_num_threads(args.threads)
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if args.device == "cuda" else args.device,
        "torch": torch.__version__,
        "bags": args.bags,
        "crops": args.crops,
        "segments": SEGMENTS,
        "width": WIDTH,
        "wanted": {"times_plain": TIMES, "relative_difference": CLOSE},
    }

    def note(name: str, make: Callable[[], object]) -> None:
        try:
            figures[name] = make()
        except Exception as error:  # one arm that fails must not lose the others
            figures[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        figures["times_plain"], met = compared(figures)
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(published(figures, met=met), indent=1) + "\n")
        if args.device == "cuda":
            torch.cuda.empty_cache()

    arms = Arms(args)
    note("loss_in_validation", lambda: arms.equal(training=False))
    note("loss_in_training_without_dropout", lambda: arms.equal(training=True))
    note("plain_step", arms.plain_alone)
    note("plain_step_without_tf32", arms.plain_strict)
    for precision in PRECISIONS if args.device == "cuda" else ("fp32",):
        note(f"ours_step_{precision}", lambda precision=precision: arms.ours_alone(precision))
    if args.part == "step":
        if args.device == "cuda":
            torch.backends.cudnn.benchmark = True
            for precision in ("tf32", "bf16"):
                name = f"ours_step_{precision}_kernels_tried_out"
                note(name, lambda precision=precision: arms.ours_alone(precision))
            note("plain_step_kernels_tried_out", arms.plain_alone)
        print(json.dumps(figures, indent=1))
        return
    with tempfile.TemporaryDirectory() as root:
        paths = folder(Path(root), args.videos, args.crops)
        note("plain_step_with_data", lambda: arms.plain_with_data(paths))
        note("plain_step_with_data_of_workers", lambda: arms.plain_with_workers(paths))
        precision = "tf32" if args.device == "cuda" else "fp32"
        note(f"ours_step_with_data_{precision}", lambda: arms.ours_with_data(paths, precision))
    print(json.dumps(figures, indent=1))


def compared(figures: dict[str, Any]) -> tuple[dict[str, float], bool]:
    """Return edgescope's iterations/s over the plain arm's, like with like, and whether all that is wanted is met."""

    def per_s(name: str) -> float | None:
        return figures.get(name, {}).get("iterations_per_s")

    same = "tf32" if per_s("ours_step_tf32") else "fp32"  # what the plain arm computes in by default
    pairs = {
        "step": (f"ours_step_{same}", "plain_step"),
        "step_without_tf32": ("ours_step_fp32", "plain_step_without_tf32"),
        "step_bf16_over_default": ("ours_step_bf16", "plain_step"),
        "step_kernels_tried_out": ("ours_step_tf32_kernels_tried_out", "plain_step_kernels_tried_out"),
        "step_with_data": (f"ours_step_with_data_{same}", "plain_step_with_data"),
        "step_with_data_of_workers": (f"ours_step_with_data_{same}", "plain_step_with_data_of_workers"),
    }
    rates = {key: (per_s(ours), per_s(plain)) for key, (ours, plain) in pairs.items()}
    found = {key: ours / plain for key, (ours, plain) in rates.items() if ours and plain}
    apart = [
        figures.get(f"loss_in_{name}", {}).get("relative_difference", 1.0)
        for name in ("validation", "training_without_dropout")
    ]
    wanted = (found.get("step", 0.0), found.get("step_with_data", 0.0))
    return found, min(wanted) >= TIMES and max(apart) <= CLOSE


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bags", type=int, default=64)
    parser.add_argument("--crops", type=int, default=10)
    parser.add_argument("--part", default="all", choices=("all", "step"), help="step: without data")
    parser.add_argument("--videos", type=int, default=32, help="videos in the folder of features")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds of each arm")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
