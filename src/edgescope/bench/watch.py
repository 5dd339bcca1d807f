"""Watches the machine while the queries run: the sampler, the throttle counters, three probes.

The spin probe (a fixed amount of integer work), the memory probe (a walk over a buffer that no cache holds) and the
core-to-core probe (the way of a cache line from CPU to CPU) run before the sampler starts and after it stops; the
counters are read at both ends. Together they give the verdict.

It also reads what each worker holds in memory. Resident sets count pages that several processes share once in each;
the proportional set divides them among their users, so only its sum is what the workers take from the machine. GPU
memory by process cannot be assigned where the driver numbers processes differently from this container.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.analysis.run.energy import inner
from edgescope.analysis.run.slowdowns import CORE_TO_CORE
from edgescope.clock import Clock
from edgescope.devices import clocks
from edgescope.devices.base import Device, TellsProcessMemory, Throttle, Throttled
from edgescope.devices.probes import Prober
from edgescope.process import Process, scratch_folder
from edgescope.records import Absent, Field, Idle, Json, Machine, Measured, Readings, Verdict, Window
from edgescope.telemetry.sampler import NullSampler, Sampler, Telemetry
from edgescope.telemetry.verdict import judge

Devices = Mapping[str, Device]


class Watch:
    """Watches one run; afterwards it holds the readings, their cost and the verdict."""

    def __init__(self, devices: Devices, hz: float) -> None:
        self.by_name = devices
        self.devices = list(devices.values())  # an absent one says why its metrics are
        self.hz = hz
        self.readings: Readings = NullSampler().readings()
        self.cost: Mapping[str, Json] = NullSampler().cost()
        self._prober: Prober | None = None
        self._watcher: Process | None = None
        self.throttle: Throttle | None = None
        self.slowdown: float | None = None
        self.memory: float | None = None
        self.core_to_core: float | None = None
        """The shorter one of before and after, in seconds: something else may have had a CPU at one end."""
        self.idle: tuple[Idle, ...] = ()
        self._telemetry: Telemetry = NullSampler()

    def get_ready(self, stack: ExitStack) -> None:
        """Start the processes that probe and sample, before they are needed; they end with the stack.

        They start while the trial loads. Then they wait, until `watching`.
        """
        self._prober = stack.enter_context(Prober("memory", "core_to_core"))
        self._watcher = Sampler.begun() if self.hz else None
        if self._watcher is not None:
            stack.callback(self._watcher.end)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs."""
        loops = clocks.calibrate()
        before = clocks.spin(loops)
        with ExitStack() as stack:
            if self._prober is None:
                self.get_ready(stack)
            walked, passed = self._probed()
            folder = Path(stack.enter_context(scratch_folder("readings")))
            self._telemetry = telemetry = self._made(folder)
            stack.callback(self._keep, telemetry)  # before the folder goes, after the sampler has stopped
            with self.throttling(), telemetry:
                yield
            again, passed_again = self._probed()
        self.slowdown = clocks.slowdown(before, clocks.spin(loops))
        self.memory = again / walked if walked and again else None
        self.core_to_core = min((s for s in (passed, passed_again) if s is not None), default=None)

    def _probed(self) -> tuple[float | None, float | None]:
        """Return the seconds of the walk through memory, and of the way from CPU to CPU."""
        assert self._prober is not None
        return self._prober.seconds(0), self._prober.seconds(1)

    @contextmanager
    def throttling(self) -> Iterator[None]:
        """Read the throttling counters of all devices at both ends of the block."""
        with ExitStack() as stack:
            here = [d for d in self.devices if isinstance(d, Throttled) and not d.present()]
            watches = [stack.enter_context(device.throttle_watch()) for device in here]
            yield
        self.throttle = joined([watch.evidence() for watch in watches])

    @contextmanager
    def idling(self, seconds: float, clock: Clock) -> Iterator[None]:
        """Do nothing for `seconds` before the block and again after it; `idle` then holds both stretches."""
        self._rest("before", seconds, clock)
        yield
        self._rest("after", seconds, clock)

    def _rest(self, when: str, seconds: float, clock: Clock) -> None:
        if seconds <= 0:
            return
        start = clock.now()
        rest = Idle(when, start, start + round(seconds * 1e9))
        for edge in inner(rest):  # the part that counts
            clock.sleep_until(edge)
            self.mark()
        clock.sleep_until(rest.stop_ns)
        self.idle = (*self.idle, rest)

    def mark(self) -> None:
        """Note that a window begins or ends now."""
        self._telemetry.mark()

    def _made(self, folder: Path) -> Telemetry:
        if not self.hz:
            return NullSampler()
        specs = [spec for device in self.devices for spec in device.sources(os.getpid())]
        return Sampler(specs, self.hz, folder, self._watcher)

    def _keep(self, telemetry: Telemetry) -> None:
        self.readings, self.cost = telemetry.readings(), telemetry.cost()

    def verdict(self, window: Window, speeds: str = "", away: str = "", *, apart: bool = False) -> Verdict:
        """Return whether the window's numbers may be trusted.

        `speeds` names the run's speeds if it had several; `apart`: a hypervisor has its CPUs apart; `away`: why
        the machine that computed is not this one.
        """
        return judge(
            self.readings,
            window.start_ns,
            window.stop_ns,
            cost=self.cost,
            throttle=self.throttle,
            slowdown=self.slowdown,
            memory=self.memory,
            speeds=speeds,
            core_to_core=self.core_to_core,
            apart=apart,
            away=away,
        )

    def board_memory(self, device: str, window: Window, before: Json) -> dict[str, Field]:
        """Return the largest memory in use on the GPU board within the window; {} for a trial without a GPU.

        On a Jetson (unified memory), return the largest drop of available memory below `before`: the bytes that
        were available before anything of the trial was loaded.
        """
        if not registry.place(device).channels:
            return {}
        channel = f"{board()}_memory_used_bytes"
        inside = self._within(channel, window)
        if len(inside):
            return {"gpu_board_memory_bytes": Measured(float(inside.max()), "bytes", n=len(inside))}
        jetson = self.by_name.get("jetson")
        if jetson is None or jetson.present():
            return {"gpu_board_memory_bytes": Absent(f"no reading of {channel} fell into the window")}
        shared = Absent("the GPU has no own memory: see unified_memory_bytes")
        left = self._within("mem_available_bytes", window)
        return {"gpu_board_memory_bytes": shared, "unified_memory_bytes": _fallen(left, before)}

    def _within(self, channel: str, window: Window) -> NDArray[np.float64]:
        t_ns, value = self.readings.series(channel)
        return value[(t_ns >= window.start_ns) & (t_ns <= window.stop_ns)]

    def metrics(self) -> dict[str, Field]:
        """Return the cost of watching (share of one core, achieved rate) and how far the CPUs are apart."""
        way: Field = Absent("no two CPUs that this run may use answered each other")
        if self.core_to_core is not None:
            way = Measured(self.core_to_core, "s")
        share: Json = self.cost.get("cpu_share")
        if share is None:
            absent = Absent(f"fewer than two readings: the sampler {self.cost.get('end')}")
            return {CORE_TO_CORE: way, "sampler_cpu_share": absent, "sampler_hz": absent}
        ticks = int(self.cost["ticks"])
        return {
            CORE_TO_CORE: way,
            "sampler_cpu_share": Measured(float(share), "1", n=ticks),
            "sampler_hz": Measured(float(self.cost["achieved_hz"]), "Hz", n=ticks),
        }


def available(machine: Machine) -> Json:
    """Return the bytes of memory available when the machine was described, or None if unknown."""
    facts = machine.state.get("cpu")
    return facts.get("memory_available_bytes") if isinstance(facts, Mapping) else None


def _fallen(left: NDArray[np.float64], before: Json) -> Field:
    """Return the largest drop of available memory below `before`, in bytes."""
    if not len(left) or not isinstance(before, int | float):
        return Absent("available memory was not read before and within the window")
    fallen = float(before - left.min())
    return Measured(fallen, "bytes", n=len(left)) if fallen > 0 else Absent("other programs gave back more")


def board(environ: Mapping[str, str] = os.environ) -> str:
    """Return NVML's name for the GPU that CUDA calls 0: `gpu0`, unless CUDA_VISIBLE_DEVICES begins with another.

    Return '' if it names a GPU by its UUID: no board's figures can then be assigned to this trial.
    """
    first = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return f"gpu{first or 0}" if first.isdigit() or not first else ""


def joined(found: Sequence[Throttle]) -> Throttle | None:
    """Return the throttling of several devices combined, or None if `found` is empty."""
    if not found:
        return None
    return Throttle(*(tuple(e for t in found for e in getattr(t, f.name)) for f in fields(Throttle)))


@dataclass(frozen=True)
class Footprint:
    """One process's memory in bytes."""

    peak_rss: Field
    pss: Field
    gpu: Field


def footprints(pids: Sequence[int], devices: Devices, device: str) -> dict[int, Footprint]:
    """Return each process's memory now; `device` is where the trial computes."""
    place = registry.place(device)
    on_gpu = _on_gpu(pids, devices) if place.channels else {}
    none = Absent(f"the trial runs on the {place.word}")
    return {pid: Footprint(peak_rss(str(pid)), pss(pid), on_gpu.get(pid, none)) for pid in pids}


def pss(pid: int) -> Field:
    """Return a process's proportional set size from smaps_rollup (Linux 4.14)."""
    path = Path(f"/proc/{pid}/smaps_rollup")
    try:
        line = next(line for line in path.read_text().splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration) as error:
        return Absent(f"{path}: {error!r}")
    return Measured(float(line.split()[1]) * 1024, "bytes")


def _on_gpu(pids: Sequence[int], devices: Devices) -> Mapping[int, Field]:
    """Return each process's GPU memory from the first device driver that reports it."""
    why: Field = Absent("no device here reports memory by process")
    found: dict[int, Field] = dict.fromkeys(pids, why)
    for device in devices.values():
        if not isinstance(device, TellsProcessMemory) or device.present():
            continue
        for pid, value in device.process_memory(pids).items():
            if not isinstance(found[pid], Measured):
                found[pid] = (
                    Measured(float(value), "bytes")
                    if isinstance(value, int | float)
                    else Absent(value.reason)
                )
    return found


def total(fields: Sequence[Field], what: str) -> Field:
    """Return the sum of several processes' figures; Absent with the first reason if one is absent."""
    lacking = [f for f in fields if isinstance(f, Absent)]
    if lacking or not fields:
        return Absent(
            f"{what} of {len(lacking)} of {len(fields)} workers is not known: {lacking[0].reason}"
            if lacking
            else "no worker"
        )
    known = [f for f in fields if isinstance(f, Measured)]
    return Measured(sum(f.value for f in known), "bytes", n=len(known))


def peak_rss(process: str = "self") -> Field:
    """Return a process's largest resident set so far (VmHWM), engine and libraries included."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
        kilobytes = next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration) as error:
        return Absent(f"/proc/{process}/status: {error!r}")
    return Measured(float(kilobytes) * 1024, "bytes")
