"""Scores snippets while the stream goes on: the head of an anomaly detector over a window of the last features.

A head such as RTFM's looks at many snippets of a video at once. Online the later ones do not exist yet, so each snippet
is scored as the last of a window that ends with it. The window holds as many snippets as the head takes, and no more
memory is needed however long the stream is. At the start, and after a gap in the stream, the first features fill the
places of those that are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.frames.frame import Item
from edgescope.models.base import TensorSpec
from edgescope.models.boxes.decoder import on_host
from edgescope.wings.video.snippets import Cutting, Snippet
from edgescope.wings.video.stages import Answer

Features = NDArray[np.float32]


class Online:
    """Runs the head of an anomaly detector on each camera's last features.

    The head's input is (snippets, features), with the views as its batch, or (views, snippets, features). Its first
    output is one score for each snippet, and one a view where views are a batch: their mean counts.
    """

    def __init__(self, spec: TensorSpec, answer: Answer, cutting: Cutting) -> None:
        self.spec, self.answer, self.cutting = spec, answer, cutting
        self.snippets = spec.shape[-2]
        self.windows: dict[int, Features] = {}
        self.last: dict[int, Snippet] = {}

    def __call__(self, item: Item) -> None:
        """Set `item.notes["scores"]`: one for each snippet of the unit, nan if its features are not finite."""
        snippets: Sequence[Snippet] = item.notes["snippets"]
        features = on_host(item.outputs[0][:1])[0]
        rows = features.reshape(-1, self.cutting.views, features[0].size)[: len(snippets)].astype(np.float32)
        scores: list[float] = []
        for snippet, row in zip(snippets, rows, strict=True):
            scores.append(self._score(snippet, row) if np.isfinite(row).all() else float("nan"))
            self.last[snippet.camera] = snippet
        item.notes["scores"] = scores

    def _score(self, snippet: Snippet, row: Features) -> float:
        """Return the score of one snippet, whose features are (views, features)."""
        window = self.windows.get(snippet.camera)
        if window is None or self._after_gap(snippet):
            window = self.windows[snippet.camera] = np.repeat(row[:, None], self.snippets, axis=1)
        else:
            window[:, :-1] = window[:, 1:].copy()
            window[:, -1] = row
        given = window[None] if len(self.spec.shape) == 3 else window
        output: Any = on_host(self.answer({self.spec.name: given})[:1])[0]
        return float(output.reshape(-1, self.snippets)[:, -1].mean())

    def _after_gap(self, snippet: Snippet) -> bool:
        """Return whether more than a snippet is missing between a snippet and the one before it."""
        return snippet.last - self.last[snippet.camera].last > self.cutting.every + self.cutting.span
