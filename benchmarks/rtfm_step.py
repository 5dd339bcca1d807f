"""Iterations per second of RTFM's training step, and of a plain implementation written the way the public code is.

    python benchmarks/rtfm_step.py --device cuda --json published/rtfm_step_cuda.json
    python benchmarks/rtfm_step.py --bags 8 --crops 1 --seconds 20

The plain arm is written here from the published description, in the manner of the public code: convolutions over
(N, F, T), a loop over crops with concatenation, a minibatch on the host that is read and pooled video by video at every
step, Adam without fusing. Two figures for each arm: the step alone, on a minibatch that lies on the device, and the
step with its data, from a folder of features. Both arms start from the same weights; their losses on one minibatch
without dropout must agree to 1e-5.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from facts import commit, machine_facts
from torch import nn
from torch.nn import functional as F

from edgescope.anomaly import losses, train
from edgescope.anomaly.segments import segmented
from edgescope.models.anomaly import checkpoints
from edgescope.models.anomaly.rtfm import Rtfm
from edgescope.training.step import Step

WIDTH, SEGMENTS, SNIPPETS = 2048, 32, 120
"""SNIPPETS: of a video in the folder; UCF-Crime's have about 260 in the mean."""


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

    timed()
    times, end = list[float](), time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        times.append(timed())
    return {
        "step_s": float(np.median(times)),
        "iterations_per_s": 1 / float(np.median(times)),
        "n": len(times),
    }


def plain_step(network: Plain, optimizer: torch.optim.Optimizer, bags: torch.Tensor) -> torch.Tensor:
    """Take one step in plain PyTorch."""
    loss = network.loss(bags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main() -> None:
    """Measure both arms and print JSON."""
    args = parsed()
    if args.threads:
        torch.set_num_threads(args.threads)
    page: dict[str, object] = {
        "machine": machine_facts(),
        "commit": commit(),
        "device": args.device,
        "bags": args.bags,
        "crops": args.crops,
    }
    if args.device == "cuda":
        page["gpu"] = torch.cuda.get_device_name()

    def note(name: str, make: Callable[[], object]) -> None:
        try:
            page[name] = make()
        except Exception as error:  # one arm that fails must not lose the others
            page[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(page, indent=1))

    torch.manual_seed(0)
    start = Rtfm(WIDTH)
    bags = torch.rand(args.bags, args.crops, SEGMENTS, WIDTH)

    def plain() -> Plain:
        network = Plain(WIDTH)
        network.load_state_dict(checkpoints.to_theirs(start.state_dict(), "rtfm"))
        return network.to(args.device).train()

    def ours() -> Rtfm:
        network = Rtfm(WIDTH)
        network.load_state_dict(start.state_dict())
        return network.to(args.device).train()

    note(
        "loss_without_dropout",
        lambda: equal(plain().cpu().eval(), ours().cpu().eval(), bags[:: max(1, args.bags // 4)]),
    )

    def plain_alone() -> object:
        network, given = plain(), bags.to(args.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=5e-3)
        return rate(lambda: plain_step(network, optimizer, given), args.seconds, args.device)

    note("plain_step", plain_alone)
    for precision in args.precisions:

        def ours_alone(precision: str = precision) -> object:
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            given = bags.to(args.device)
            recipe = train.recipe("rtfm", device=args.device, bags=args.bags)
            kinds = train.Bags(given[: args.bags // 2], given[args.bags // 2 :], recipe)
            step = Step(train.task(ours(), kinds, recipe), args.device, precision)
            return rate(lambda: step(given), args.seconds, args.device)

        note(f"ours_step_{precision}", ours_alone)
    torch.set_float32_matmul_precision("highest")

    with tempfile.TemporaryDirectory() as root:
        paths = folder(Path(root), args.videos, args.crops)
        rng = np.random.default_rng(1)

        def plain_with_data() -> object:
            network = plain()
            optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=5e-3)

            def step() -> torch.Tensor:
                given = read_plainly([paths[i] for i in rng.integers(len(paths), size=args.bags)])
                return plain_step(network, optimizer, given.to(args.device))

            return rate(step, args.seconds, args.device)

        note("plain_step_with_data", plain_with_data)
        precision = args.precisions[-1]

        def ours_with_data() -> object:
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            begin = time.perf_counter()
            pooled = torch.from_numpy(np.stack([segmented(np.load(path)) for path in paths])).to(args.device)
            once = time.perf_counter() - begin
            recipe = train.recipe("rtfm", device=args.device, bags=args.bags, judged_every=10**6)
            kinds = train.Bags(pooled[: len(paths) // 2], pooled[len(paths) // 2 :], recipe)
            step = Step(train.task(ours(), kinds, recipe), args.device, precision)
            batches = kinds.batches(0)
            return {"pooling_once_s": once, **rate(lambda: step(next(batches)), args.seconds, args.device)}

        note(f"ours_step_with_data_{precision}", ours_with_data)
    print(json.dumps(page, indent=1))


def equal(plain: Plain, ours: Rtfm, bags: torch.Tensor) -> dict[str, float]:
    """Return both losses of one minibatch, and how far apart they are."""
    with torch.inference_mode():
        first, second = float(plain.loss(bags)), float(losses.rtfm(ours, bags).total)
    return {"plain": first, "ours": second, "relative_difference": abs(first - second) / abs(first)}


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bags", type=int, default=64)
    parser.add_argument("--crops", type=int, default=10)
    parser.add_argument("--videos", type=int, default=32, help="videos in the folder of features")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds of each arm")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--precisions", nargs="+", default=["fp32", "tf32", "bf16"])
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
