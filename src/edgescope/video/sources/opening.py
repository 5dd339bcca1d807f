"""Stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import av

from edgescope.video.frame import Frame, Source


class _File:
    live = False

    def __init__(self, path: Path, loop: bool, size: Any) -> None:
        self.path, self.loop, self.scaled, self.n = path, loop, size, 0
        self.container = av.open(str(path))
        self.it = self.container.decode(video=0)

    def read(self) -> Frame | None:
        f = next(self.it, None)
        if f is None:
            if not self.loop:
                return None
            self.container.seek(0)
            self.it = self.container.decode(video=0)
            f = next(self.it)
        sides = (f.width, f.height)
        a = (
            f.to_ndarray(format="rgb24")
            if self.scaled is None
            else f.reformat(*self.scaled, format="rgb24").to_ndarray()
        )
        self.n += 1
        return Frame(a, self.n - 1, sides=sides)

    def facts(self) -> Mapping[str, Any]:
        v = self.container.streams.video[0]
        return {"width": v.width, "height": v.height, "fps": float(v.average_rate or 0)}

    def close(self) -> None:
        self.container.close()


def opened(name: str, *, loop: bool = False, size: tuple[int, int] | None = None) -> Source:
    return _File(Path(name), loop, size)
