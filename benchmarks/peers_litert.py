"""The user's side of Google's AI Edge tools, for benchmarks/peers.py: a network as three .tflite files.

Run in their environment, in a folder with weights.pth and calibration.npy: fp32, int8 weights alone, int8 throughout.
"""

from __future__ import annotations

import numpy as np
import timm
import torch
from ai_edge_quantizer import quantizer, recipe
from litert_torch import convert


def main() -> None:
    net = timm.create_model("tf_efficientnet_lite0")
    net.load_state_dict(torch.load("weights.pth", weights_only=True))
    convert(net.eval(), (torch.zeros(1, 3, 224, 224),)).export("fp32.tflite")
    pictures = np.load("calibration.npy")
    for name, chosen in (
        ("dynamic_int8", recipe.dynamic_wi8_afp32()),
        ("static_int8", recipe.static_wi8_ai8()),
    ):
        made = quantizer.Quantizer("fp32.tflite", chosen)
        data = {"serving_default": [{"args_0": picture[None]} for picture in pictures]}
        ranges = made.calibrate(data) if made.need_calibration else None
        made.quantize(ranges).export_model(f"{name}.tflite")


if __name__ == "__main__":
    main()
