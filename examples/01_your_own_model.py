"""How fast is your own network?

Your network is a function without arguments that returns (nn.Module, example inputs).

python examples/01_your_own_model.py
"""

import sys
from pathlib import Path

import torch

import edgescope


def tiny() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
    )
    example = torch.randn(1, 3, 32, 32)
    net(example)  # gives the lazy layer its shape
    return net.eval(), (example,)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    for backend in ("torch_eager", "onnxruntime", "openvino"):
        trial = edgescope.Trial(model="01_your_own_model:tiny", backend=backend, min_s=0.3, max_s=1)
        result = edgescope.run(trial)
        print(f"{backend:12}", result.status.value, result.metrics.get("latency_p50_s"), result.reason or "")
