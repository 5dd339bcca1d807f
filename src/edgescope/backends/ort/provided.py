"""A session on a plug-in provider, and what it is seen to do.

The provider fuses the graph, so the runtime's own graph and profile show nothing of what it computes in. At its
defaults it may take a reduced precision and all cores. So nothing is believed that was asked for:

* which operators it took is the runtime's own record of who got which node;
* its precision is what its answers show (backends/ort/arithmetic.py);
* its threads are those whose CPU time grows while it answers.

The last two are looked at once, in the process that prepares the artifact, in a session with the same settings.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgescope.backends.base import Artifact, Spec, profile_folder, threads_of
from edgescope.backends.ort import arithmetic, cuda, plugin
from edgescope.models.base import Batch
from edgescope.onnx_operators import HEAVY
from edgescope.process import scratch
from edgescope.records import Effective, Json

#: Seconds and queries over which threads are counted; a thread counts that computed for this share of the time.
COUNTED_S, COUNTED, SHARE = 0.3, 5, 0.02


def witnessed(
    path: Path, spec: Spec, options: Callable[[], Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Json]:
    """Return what sessions with these settings are seen to do: {precision, distance, threads}.

    `options` makes the session options anew; `shapes` are those of the inputs.
    """
    provider = plugin.chosen(spec)
    session = provider.opened(path, options())
    batch = _inputs(session, shapes)
    count = threads(lambda: session.run(None, batch))  # while no other session has threads that may spin
    answers = session.run(None, batch)
    plain = ort.InferenceSession(str(path), options(), providers=["CPUExecutionProvider"])
    distance = arithmetic.apart(answers, plain.run(None, batch))
    with scratch.folder("ort-provider") as folder:
        small = provider.opened(arithmetic.network(Path(folder) / "identity.onnx"), ort.SessionOptions())
        kept = arithmetic.of(lambda x: small.run(None, {"x": x})[0])
    if (asked := threads_of(spec)) is not None and count > asked:
        raise plugin.ignored(
            provider.name, f"{count} threads computed, {asked} asked", "leave --option threads out"
        )
    return {"precision": arithmetic.agreed(kept, distance), "distance": distance, "threads": count}


def _inputs(session: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Return noise for every input; zeros where it takes whole numbers."""
    rng, found = np.random.default_rng(0), {}
    for port in session.get_inputs():
        kind, shape = cuda.dtype(port.type), shapes[port.name]
        noise = rng.standard_normal(shape) if kind.kind == "f" else np.zeros(shape)
        found[port.name] = noise.astype(kind)
    return found


class ProvidedSession:
    """One InferenceSession on a plug-in provider; inputs and outputs are numpy arrays on the host."""

    def __init__(self, artifact: Artifact, options: Any) -> None:
        assert artifact.path is not None
        self.spec, self.seen = artifact.spec, artifact.notes["provided"]
        self.provider = plugin.chosen(self.spec)
        self.session = self.provider.opened(artifact.path, options)
        self.run = self.session.run

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs in the file's order."""
        return cast(Sequence[NDArray[Any]], self.run(None, batch))

    def effective(self) -> Effective:
        """Return the device of the heavy operators, by this session's record, and what its like was seen to do."""
        ran = operators(self.session)
        other = elsewhere(ran, self.provider.name)
        device = " and ".join((self.spec.device, *other))
        mine = sum(n for key, n in ran.items() if key.endswith(f" {self.provider.name}"))
        if not mine:
            device = ", ".join(other) or "no heavy operator"
        threads = self.seen["threads"] if self.spec.place.is_host else None
        evidence = (
            f"{self.provider.name} {self.provider.version}: {mine} heavy operators, answers "
            f"{self.seen['distance']:.2g} from fp32's, {self.seen['threads']} threads of the host computed"
        )
        return Effective(device, self.seen["precision"], threads, evidence)

    def close(self) -> None:
        """Drop the session; the runtime writes its profile if it was asked for one."""
        if profile_folder() is not None:
            self.session.end_profiling()
        del self.run, self.session


def operators(session: Any) -> dict[str, Json]:
    """Return {"Conv OpenVINOExecutionProvider": n} of the heavy operators, by the runtime's record of who got them."""
    found: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        found.update(f"{n.op_type} {part.ep_name}" for n in part.get_nodes() if n.op_type in HEAVY)
    return dict(found)


def threads(answer: Callable[[], object]) -> int:
    """Return how many threads of this process compute while it answers."""
    answer()
    before, start, n = _run_ns(), time.monotonic_ns(), 0
    while n < COUNTED or time.monotonic_ns() - start < COUNTED_S * 1e9:
        answer()
        n += 1
    least = SHARE * (time.monotonic_ns() - start)
    return sum(ns - before.get(tid, 0) >= least for tid, ns in _run_ns().items())


def _run_ns() -> dict[str, int]:
    """Return the nanoseconds that each thread of this process has been on a CPU."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError, ValueError):
            continue  # it has just ended
    return found


def elsewhere(ran: Mapping[str, int], provider: str) -> Sequence[str]:
    """Return the heavy operators that other providers took, as `2 Conv on CPUExecutionProvider`."""
    parts = ((key.split(" "), n) for key, n in sorted(ran.items()))
    return [f"{n} {kind} on {on}" for (kind, on), n in parts if on != provider]
