"""Networks that misbehave, for the trials that must survive them; used as module:callable."""

import ctypes
import os
import time
from pathlib import Path

import torch


class Ordinary(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 30 * 30, 10)
        )

    def forward(self, x):
        return self.layers(x)


def ordinary():
    return Ordinary().eval(), (torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1)),)


class Raises(Ordinary):
    def forward(self, x):
        raise RuntimeError("the sky is falling")


def raises():
    return Raises(), ordinary()[1]


class RaisesLater(Ordinary):
    calls = 0

    def forward(self, x):
        RaisesLater.calls += 1
        if RaisesLater.calls == 40:
            raise RuntimeError("only once")
        return super().forward(x)


def raises_later():
    return RaisesLater(), ordinary()[1]


class Nan(Ordinary):
    def forward(self, x):
        return super().forward(x) * float("nan")


def nan():
    return Nan(), ordinary()[1]


class Alone(Ordinary):
    """Right in a batch, otherwise where an input comes alone: a broken kernel that any CPU can run."""

    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    def forward(self, x):
        out = super().forward(x)
        return self.change(out) if len(x) == 1 else out


def nan_alone():
    return Alone(lambda out: out * float("nan")), ordinary()[1]


def infinite_alone():
    return Alone(lambda out: out / 0), ordinary()[1]


def wrong_alone():
    return Alone(lambda out: out.flip(1)), ordinary()[1]


class Draws(Alone):
    """Answers by chance as well, so that nothing can be compared."""

    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


def nan_alone_of_chance():
    return Draws(lambda out: out * float("nan")), ordinary()[1]


class Wrong(Ordinary):
    """Right in fp32, wrong in bf16: what a broken kernel looks like from outside."""

    def forward(self, x):
        out = super().forward(x)
        return out if x.dtype == torch.float32 else out.flip(1)


def wrong_in_bf16():
    return Wrong(), ordinary()[1]


class Peeks(Ordinary):
    """Decides by what its data is, which no exporter can follow."""

    def forward(self, x):
        out = super().forward(x)
        if out.sum().item() > 0:
            out = out * 2
        return out


def peeks():
    return Peeks(), ordinary()[1]


class Eats(Ordinary):
    """Writes the file that EATEN_FILE names once it holds 256 MB, and goes on eating."""

    def forward(self, x):
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1 << 20) * 64))
            if len(hoard) == 4:
                Path(os.environ["EATEN_FILE"]).touch()
            time.sleep(0.01)


def eats_memory():
    return Eats(), ordinary()[1]


class Segfaults(Ordinary):
    def forward(self, x):
        ctypes.string_at(0)


def segfaults():
    return Segfaults(), ordinary()[1]


class FailsLoudly(Ordinary):
    def forward(self, x):
        os.write(2, b"noise\n" * 200_000)
        raise RuntimeError("after much noise")


def fails_loudly():
    return FailsLoudly(), ordinary()[1]


def not_a_model():
    return 42


def broken_factory():
    raise ValueError("no weights today")


def quits():
    """Ends its process from within, without an error."""
    module, inputs = ordinary()

    def forward(x):
        os._exit(0)

    module.forward = forward
    return module, inputs


class HidesAndHangs(Ordinary):
    """Starts a daemon, which writes its process id into the file that DAEMON_FILE names, and waits for ever."""

    def forward(self, x):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                aside = Path(os.environ["DAEMON_FILE"] + ".new")
                aside.write_text(str(os.getpid()))
                aside.rename(os.environ["DAEMON_FILE"])
                time.sleep(3600)
            os._exit(0)
        os.write(2, b"waiting for a lock\n")
        time.sleep(3600)


def hides_and_hangs():
    return HidesAndHangs(), ordinary()[1]
