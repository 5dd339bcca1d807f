"""Tools that choose how a network runs, side by side: same network, machine and pictures; the page peers is the table.

Each tool gets the pretrained EfficientNet-Lite0 and the sample pictures, in an environment of its own, and is asked as
its documentation says (peers_arms.py): the time to its answer, what it tried, what it would take. What that gains over
PyTorch eager fp32 is then measured by this script in one way for all: pairs of fresh processes, eager and pick, that
take turns of --seconds in ABBA order (peers_turn.py), a pair of each tool a round, tools in random order; the ratio is
the mean log of the pairs, with Student's interval. Agreement is counted here, too: how often the pick names fp32's
class on --pictures frames. A tool that takes its own networks alone (ultralytics) is held against eager of that
network. One that fails says why. The table of the page peers is written, too. `met` is whether every tool was asked and
none has a pick with an agreement of FLOOR whose whole interval lies above edgescope's.

    python benchmarks/peers.py --install                makes the environments alone, in ~/.cache/edgescope/peers
    python benchmarks/peers.py                          all; 15 minutes once they are there
    python benchmarks/peers.py --peers edgescope,olive  a part is published as peers_subset
    python benchmarks/peers.py --provisional            printed, not published: beside other work
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from facts import PUBLISHED, publish, write
from peers_arms import FLOOR, NETWORK, PEERS, Answer, Peer, Place

from edgescope import cache
from edgescope.bench.alternation import ORDER
from edgescope.bench.worker import until_asleep
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.models.image import photos
from edgescope.stats.alternation import Turns, alternation_ratio

MODEL = "efficientnet_lite0"
ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "explanation" / "peers.md"
MARKS = "<!-- made by benchmarks/peers.py -->", "<!-- end -->"
SHIM = "from edgescope.models.image.torchvision_compat import ensure\nensure()\n"
"""sitecustomize.py where torchvision's wheel was built for another PyTorch."""


def data(folder: Path, pictures: int) -> Path:
    """Write what every tool gets: the network, arrays, pictures as files, pictures by class; return the folder."""
    import torch
    from PIL import Image

    net = zoo.get(MODEL)
    shutil.copy(net.onnx(cache.folder("artifacts")), folder / "model.onnx")
    module = net.module().eval()
    torch.save(module.state_dict(), folder / "weights.pth")
    for purpose, name in ((Purpose.CALIBRATION, "calibration"), (Purpose.GATE, "gate")):
        found = net.samples(purpose, pictures)
        assert found is not None
        array = np.array(next(iter(found.arrays.values())))
        np.save(folder / f"{name}.npy", array)
        with torch.inference_mode():
            classes = module(torch.from_numpy(array)).argmax(1).tolist()
        np.save(folder / f"{name}_classes.npy", np.array(classes))
        for i, image in enumerate(array):
            (folder / "pictures").mkdir(exist_ok=True)
            shown = ((image.transpose(1, 2, 0) * 0.5 + 0.5) * 255).round().clip(0, 255).astype(np.uint8)
            Image.fromarray(shown).save(folder / "pictures" / f"{name}{i:03d}.png")
    for path in sorted(photos.located("foolbox", "data").glob("imagenet_*.jpg")):
        label = path.stem.rsplit("_", 1)[1]
        places = [f"pictures/{label}", f"classes/train/{label:0>4}", f"classes/val/{label:0>4}"]
        for place in places:
            (folder / place).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / place)
    return folder


def environment(home: Path, name: str, peer: Peer) -> tuple[Path, dict[str, str]]:
    """Return the Python of a tool's own environment, made where it is not there yet, and what it must be told."""
    if not peer.packages:
        return Path(sys.executable), {"PYTHONPATH": str(ROOT / "src")}
    place = home / name
    python, done = place / "bin" / "python", place / "installed.txt"
    wanted = "\n".join(peer.packages)
    if not done.exists() or done.read_text() != wanted:
        print(f"{name}: installing {', '.join(peer.packages)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        install = [str(python), "-m", "pip", "install", "-qq", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*install, *peer.packages], check=True)
        done.write_text(wanted)
    if (
        "torchvision" not in peer.packages
        or not subprocess.run(
            [str(python), "-c", "import torchvision"], capture_output=True, check=False
        ).returncode
    ):
        return python, {}
    shim = home / "torchvision_shim"
    shim.mkdir(exist_ok=True)
    (shim / "sitecustomize.py").write_text(SHIM)
    return python, {"PYTHONPATH": f"{shim}{os.pathsep}{ROOT / 'src'}"}


class Turn:
    """A process of peers_turn.py."""

    def __init__(self, place: Place, spec: Mapping[str, Any], *, own: bool) -> None:
        """Start it in this script's environment (own) or in the tool's."""
        python = sys.executable if own else str(place.python)
        env = os.environ | ({"PYTHONPATH": str(ROOT / "src")} if own else dict(place.env))
        self.errors = (place.work / "turns.txt").open("a")
        self.process = subprocess.Popen(
            [python, str(ROOT / "benchmarks" / "peers_turn.py"), json.dumps(spec), str(place.data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=env,
            cwd=place.work,
        )

    def read(self) -> dict[str, Any]:
        """Return its next answer; `absent` where it has died."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        return json.loads(line) if line else {"absent": f"the process ended with {self.process.wait()}"}

    @property
    def pid(self) -> int:
        """Return the number of its process."""
        return self.process.pid

    def turn(self, seconds: float) -> float:
        """Return the mean time of a call in a turn; RuntimeError where the process died."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(f"go {seconds}\n")
            self.process.stdin.flush()
        answer = self.read()
        if "absent" in answer:
            raise RuntimeError(answer["absent"])
        return float(answer["mean_s"])

    def close(self) -> None:
        """Let it end."""
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def pair(place: Place, answer: Answer, args: argparse.Namespace, pictures: int) -> dict[str, Any]:
    """Return the turns of one pair of fresh processes, and the classes that both name."""
    blocks, seconds, checked = args.blocks, args.seconds, {"pictures": pictures}
    sides = [
        Turn(place, {**answer.eager, **checked}, own=answer.eager_here),
        Turn(place, {**answer.run, **checked}, own=answer.pick_here),
    ]
    try:
        ready = [side.read() for side in sides]
        for found in ready:
            if "absent" in found:
                raise RuntimeError(found["absent"])
        taken = turns(sides, blocks, seconds)
        return {"turns": taken, "classes": [found["classes"] for found in ready]}
    finally:
        for side in sides:
            side.close()


def agreement(pairs: Sequence[Mapping[str, Any]]) -> float:
    """Return how often eager and pick named the same class."""
    same = [a == b for p in pairs for a, b in zip(*p["classes"], strict=True)]
    return sum(same) / len(same)


def version(python: Path, package: str) -> str:
    """Return the version of an installed package; edgescope's where there is none to ask."""
    code = f"import importlib.metadata as m; print(m.version({package or 'edgescope'!r}))"
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def told(peer: Peer, answer: Answer, where: Place) -> dict[str, Any]:
    """Return what is published of a tool's answer, before its speed-up."""
    return {
        "command": answer.command,
        "version": version(where.python, peer.package),
        "same_model": peer.same_model,
        "seconds": answer.seconds,
        "tried": list(answer.tried),
        "failed": dict(answer.failed),
        "pick": answer.pick,
        "checked": peer.checked,
        "interval": peer.interval,
        "said": dict(answer.said),
    }


Found = dict[str, dict[str, Any]]


def measured(
    answers: Mapping[str, tuple[Place, Answer]], args: argparse.Namespace, after: Callable[[Found], object]
) -> Found:
    """Return speed-up and agreement of each pick: rounds of one pair of each tool, tools in random order.

    The first pair of a tool names the classes; `after` is called with what is known after each round.
    """
    rng, pairs, failed = random.Random(0), {name: [] for name in answers}, dict[str, str]()
    for number in range(args.pairs):
        for name in rng.sample(sorted(answers), len(answers)):
            if name in failed:
                continue
            try:
                checked = 0 if pairs[name] else args.pictures
                pairs[name].append(pair(*answers[name], args, checked))
                print(
                    f"pair {number} {name} {math.exp(pairs[name][-1]['turns'].ratio):.2f}x",
                    file=sys.stderr,
                    flush=True,
                )
            except (RuntimeError, OSError, ValueError) as error:
                failed[name] = str(error)
        after(known(pairs, failed))
    return known(pairs, failed)


def known(pairs: Mapping[str, Sequence[Mapping[str, Any]]], failed: Mapping[str, str]) -> Found:
    """Return speed-up and agreement by tool, from the pairs so far; absent of a tool that failed."""
    return {
        name: {"speedup": {"absent": failed[name]}, "agreement": {"absent": failed[name]}}
        if name in failed
        else {
            "speedup": ratio([p["turns"] for p in found]),
            "agreement": {"value": agreement(found)},
        }
        for name, found in pairs.items()
    }


def met(peers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every tool was asked and no right answer to this network is surely faster than edgescope's."""
    rights = {
        name: p["speedup"]
        for name, p in peers.items()
        if "value" in p.get("speedup", {}) and p["same_model"] and p["agreement"]["value"] >= FLOOR
    }
    if set(peers) != set(PEERS) or "edgescope" not in rights:
        return False
    return all(gain["lo"] <= rights["edgescope"]["hi"] for gain in rights.values())


def table(peers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the Markdown table of the page peers: a row a tool, figures and what each does about certainty."""
    head = "tool|answer after|tried|pick|times eager fp32|agrees|checks outputs|interval"
    rows = [head.split("|"), ["---"] * 8]
    for name, peer in peers.items():
        tool = f"{name} {peer['version']}{'' if peer.get('same_model', True) else ' (*)'}"
        if "absent" in peer:
            rows.append([tool, "none", *[""] * 6])
            continue
        gain, same = peer["speedup"], peer["agreement"]
        rows.append([
            tool,
            f"{peer['seconds']:.0f} s",
            str(len(peer["tried"])),
            peer["pick"].partition(" (")[0],
            f"{gain['value']:.2f} [{gain['lo']:.2f}, {gain['hi']:.2f}]" if "value" in gain else "not run",
            f"{same['value']:.0%}" if "value" in same else "",
            peer["checked"],
            peer["interval"],
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def with_table(page: str, made: str) -> str:
    """Return the page peers with this table between its two marks."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{made}\n{MARKS[1]}{after}"


def peers_main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--home", type=Path, default=cache.root() / "peers", help="environments, kept")
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--install", action="store_true", help="make the environments and end")
    parser.add_argument("--provisional", action="store_true", help="print and do not publish")
    args = parser.parse_args()
    if unknown := set(args.peers) - set(PEERS):
        parser.error(f"no peer is called {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    args.home.mkdir(parents=True, exist_ok=True)
    places = {name: environment(args.home, name, PEERS[name]) for name in args.peers}
    if args.install:
        return
    with tempfile.TemporaryDirectory() as folder:
        shared = data(Path(folder), args.pictures)
        answers: dict[str, tuple[Place, Answer]] = {}
        found: dict[str, dict[str, Any]] = {}
        for name, (python, env) in random.Random(1).sample(sorted(places.items()), len(places)):
            place = Place(Path(folder) / name, shared, python, env)
            place.work.mkdir()
            try:
                answers[name] = place, PEERS[name].ask(place)
                found[name] = told(PEERS[name], answers[name][1], place)
                print(
                    f"{name}: {found[name]['seconds']:.0f} s, {found[name]['pick']}",
                    file=sys.stderr,
                    flush=True,
                )
            except (RuntimeError, OSError, ValueError, KeyError, IndexError) as error:
                found[name] = {"absent": f"{type(error).__name__}: {error}"}
                found[name]["version"] = version(python, PEERS[name].package)
                print(f"{name}: {found[name]['absent']}", file=sys.stderr, flush=True)

        def so_far(more: Found) -> dict[str, Any]:
            for name, ends in more.items():
                found[name] |= ends
            ordered = {name: found[name] for name in PEERS if name in found}
            about = {"model": MODEL, "eager": NETWORK, "pictures": args.pictures, "floor": FLOOR}
            if not args.provisional:
                write("peers_subset", about | {"peers": ordered}, met=False)
            return about | {"peers": ordered}

        figures = so_far(measured(answers, args, so_far))
    ordered = figures["peers"]
    if args.provisional:
        print(json.dumps({"met": met(ordered)} | figures, indent=1))
        print(table(ordered))
        return
    publish("peers" if set(ordered) == set(PEERS) else "peers_subset", figures, met=met(ordered))
    if set(ordered) == set(PEERS):
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(), table(ordered)))
        (PUBLISHED / "peers_subset.json").unlink(missing_ok=True)


class Side(Protocol):
    """One process of a pair."""

    @property
    def pid(self) -> int:
        """Its number."""

    def turn(self, seconds: float) -> float:
        """Return the mean time of a call in a turn."""


def turns(sides: Sequence[Side], count: int, seconds: float) -> Turns:
    """Return so many blocks of a pair, baseline first, with turns of so many seconds."""
    order, found = [*ORDER] * count, list[float]()
    for number in order:
        found.append(math.log(sides[number].turn(seconds)))
        until_asleep(sides[number].pid)
    return Turns(order, found)


def ratio(pairs: Sequence[Turns]) -> dict[str, Any]:
    """Return how many times faster the candidate is, with the interval that edgescope gives pairs."""
    found = alternation_ratio(pairs)
    if not found.reliable:
        return {"absent": found.note, "n": found.n, "pairs": len(pairs)}
    return {"value": found.value, "lo": found.lo, "hi": found.hi, "n": found.n, "pairs": len(pairs)}
