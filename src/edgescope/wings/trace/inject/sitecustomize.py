"""Profiles a Python program from within; Python imports this file at its start if its folder is on PYTHONPATH.

It runs in the program's own Python, where edgescope may not be installed, so it needs the standard library alone. It
samples the functions of the main thread, starts torch.profiler when the program has imported torch, and writes what it
saw when the program ends. A process that the program starts is profiled too, into files of its own.
"""

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from typing import Any

FOLDER = os.environ.get("EDGESCOPE_PROGRAM", "")
SECONDS = float(os.environ.get("EDGESCOPE_PROGRAM_SECONDS") or 0)
PERIOD_S = 0.005
CLOCK_MARK = "edgescope clock "
state: "dict[str, Any]" = {}


def sample() -> None:
    """Note every few milliseconds which functions the main thread is in; ends with the program."""
    main = threading.main_thread().ident or 0
    rows: list[tuple[int, int]] = []
    names: dict[tuple[str, ...], int] = {}
    state["samples"], state["names"], spent = rows, names, time.thread_time()
    end = time.monotonic() + SECONDS if SECONDS else float("inf")
    while not state.get("ended") and time.monotonic() < end:
        frame = sys._current_frames().get(main)
        stack: list[str] = []
        now = time.monotonic_ns()
        while frame is not None:
            code = frame.f_code
            stack.append(
                f"{getattr(code, 'co_qualname', code.co_name)} ({os.path.basename(code.co_filename)})"
            )
            frame = frame.f_back
        key = tuple(reversed(stack))
        rows.append((now, names.setdefault(key, len(names))))
        time.sleep(PERIOD_S)
    state["sampler_s"] = time.thread_time() - spent


class AfterTorch(importlib.abc.MetaPathFinder):
    """Starts torch.profiler once `import torch` is done."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return torch's own spec, with a loader that starts the profiler afterwards."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


class Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then starts the profiler."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def create_module(self, spec: Any) -> Any:
        """Return the module that the real loader makes."""
        return self.real.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Execute the module, then start the profiler; its failure must not be the program's."""
        self.real.exec_module(module)
        try:
            start_torch()
        except Exception as error:
            state["torch_error"] = f"{type(error).__name__}: {error}"


def start_torch() -> None:
    """Start torch.profiler in the main thread, for SECONDS or to the end."""
    from torch import cuda, profiler

    kinds = [profiler.ProfilerActivity.CPU]
    kinds += [profiler.ProfilerActivity.CUDA] if cuda.is_available() else []
    state["torch"] = profiler.profile(activities=kinds)
    state["torch"].start()
    mark()
    if SECONDS and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
        signal.signal(signal.SIGALRM, lambda *_: stop_torch())
        signal.setitimer(signal.ITIMER_REAL, SECONDS)


def mark() -> None:
    """Put the monotonic time into torch's trace."""
    from torch import profiler

    for _ in range(5):  # a busy machine delays some; the least delayed counts
        with profiler.record_function(f"{CLOCK_MARK}{time.monotonic_ns()}"):
            pass


def stop_torch() -> None:
    """Stop torch.profiler and write its trace."""
    running = state.pop("torch", None)
    if running is not None:
        mark()
        running.stop()
        running.export_chrome_trace(os.path.join(FOLDER, f"kineto-{os.getpid()}.json"))


def end() -> None:
    """Write everything down."""
    state["ended"] = True
    try:
        stop_torch()
    except Exception as error:
        state["torch_error"] = f"{type(error).__name__}: {error}"
    state["thread"].join(1.0)
    stacks = sorted(state["names"], key=lambda s: state["names"][s])
    found = {
        "pid": os.getpid(),
        "begin_ns": state["begin_ns"],
        "end_ns": time.monotonic_ns(),
        "stacks": [list(s) for s in stacks],
        "samples": state["samples"],
        "sampler_s": state.get("sampler_s", 0.0),
        "torch_error": state.get("torch_error", ""),
    }
    with open(os.path.join(FOLDER, f"functions-{os.getpid()}.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)


def chain() -> None:
    """Import the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


chain()
if FOLDER:
    state["begin_ns"] = time.monotonic_ns()
    state["thread"] = threading.Thread(target=sample, name="edgescope", daemon=True)
    state["thread"].start()
    sys.meta_path.insert(0, AfterTorch())
    atexit.register(end)
