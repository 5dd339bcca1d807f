"""The stages that compute on a CUDA device with torch: preparing frames there, and waiting for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from edgescope.models.image.preprocess import Preprocess
from edgescope.video.frame import Item
from edgescope.video.preparing import coefficients, fit_of


class OnDevice:
    """Uploads a unit's frames as bytes (a quarter of float32) and resizes, cuts and normalises them on the device.

    Frames that were decoded there are not copied at all. All frames of a unit have one size.
    """

    def __init__(self, preprocess: Sequence[Preprocess], batch: int, device: str = "cuda") -> None:
        self.preprocess, self.batch, self.device = preprocess, batch, device
        self.factors = [
            tuple(torch.from_numpy(c).to(device)[None, :, None, None] for c in coefficients(step))
            for step in preprocess
        ]

    @torch.inference_mode()
    def __call__(self, item: Item) -> None:
        """Set the unit's inputs, on the device, and fits."""
        images = [frame.image for frame in item.frames]
        if isinstance(images[0], torch.Tensor):
            pixels = torch.stack(images)
        else:
            pixels = torch.from_numpy(np.stack(images)).to(self.device, non_blocking=True)
        pixels = pixels.permute(0, 3, 1, 2)
        item.fits = [fit_of(self.preprocess[0], frame) for frame in item.frames]
        size = item.frames[0].size
        item.inputs = [
            self._input(pixels, size, step, *factors)
            for step, factors in zip(self.preprocess, self.factors, strict=True)
        ]

    def _input(
        self,
        pixels: torch.Tensor,
        size: tuple[int, int],
        preprocess: Preprocess,
        scale: torch.Tensor,
        shift: torch.Tensor,
    ) -> torch.Tensor:
        at, (high, wide) = preprocess.placed(*size), preprocess.sides
        inputs = pixels.float()
        if pixels.shape[2:] != (at.height, at.width):
            inputs = functional.interpolate(
                inputs, (at.height, at.width), mode="bilinear", antialias=True, align_corners=False
            )
        if at.left < 0 or at.top < 0:
            border = (-at.left, wide - at.width + at.left, -at.top, high - at.height + at.top)
            inputs = functional.pad(inputs, border, value=114.0)
        else:
            inputs = inputs[:, :, at.top : at.top + high, at.left : at.left + wide]
        if preprocess.order == "bgr":
            inputs = inputs.flip(1)
        if len(preprocess.mean) == 1:
            weights = torch.tensor([0.299, 0.587, 0.114], device=inputs.device)[None, :, None, None]
            inputs = (inputs * weights).sum(1, keepdim=True)
        inputs = inputs * scale + shift
        if len(inputs) < self.batch:
            inputs = torch.cat([inputs, inputs[-1:].expand(self.batch - len(inputs), -1, -1, -1)])
        return inputs.contiguous()


def wait() -> None:
    """Return when the device has done all that was asked of it."""
    torch.cuda.synchronize()
