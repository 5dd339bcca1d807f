"""The Place: where heavy operators compute, as a trial's `device` names it, and what is true of computing there.

Code asks a place what it can do and never what it is called: a package adds another one by an entry point
(`edgescope docs add-a-place`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """What a place can do. The defaults are the least: an accelerator whose engine takes and gives host arrays."""

    name: str
    word: str = "accelerator"
    """What a sentence calls it."""
    is_host: bool = False
    """It is the host's own cores: threads, the affinity mask and the CPU's counters tell of the work."""
    own_memory: bool = False
    """Inputs and outputs are copied to it and back, so `io` may be pinned or device."""
    streams: bool = False
    """Queries run at the same time only on streams of their own, which a session prepares (Laned)."""
    events: bool = False
    """Its streams take events, by which PyTorch tells how long a part took there."""
    cuda: bool = False
    """It is programmed as CUDA devices are: graphs, MPS, CUPTI and PyTorch's cuDNN settings."""
    sharing: tuple[str, ...] = ("time_slicing", "pinned")
    """The ways in which several workers may share it."""
    sensors: tuple[str, ...] = ()
    """Devices (registry.DEVICES) that sense it: it is here if one of them is."""
    channels: str = ""
    """How the names of its channels begin: `gpu` for gpu_busy or gpu0_busy; '' if nothing senses it."""
    unseen_by: tuple[str, ...] = ()
    """Scopes of power meters that do not see its work."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Engine (Entry.engine) -> what that engine calls it; a plug-in's place offers itself to these engines."""
    vendor: int = 0
    """The PCI id of who makes all of its devices; 0 for several makers."""
    synchronize: str = ""
    """`module:function` that returns once it has nothing left to do; '' where a call returns with its outputs."""

    def called(self, engine: str) -> str:
        """Return what an engine calls it: its own name unless another is known."""
        return self.names.get(engine, self.name)


CPU = Place(
    "cpu",
    "CPU",
    is_host=True,
    unseen_by=("gpu_board",),
    names={"torch": "cpu", "openvino": "CPU", "onnxruntime": "CPU"},
)
CUDA = Place(
    "cuda",
    "GPU",
    own_memory=True,
    streams=True,
    events=True,
    cuda=True,
    sharing=("time_slicing", "pinned", "mps"),
    sensors=("nvidia", "jetson"),
    channels="gpu",
    unseen_by=("cpu_package",),
    names={"torch": "cuda", "onnxruntime": "GPU"},
    vendor=0x10DE,
    synchronize="torch.cuda:synchronize",
)
#: Both lie in the CPU's package, whose meter sees them; OpenVINO takes and gives arrays in the memory they share.
INTEL_GPU = Place(
    "intel_gpu",
    "Intel GPU",
    unseen_by=("gpu_board",),
    names={"openvino": "GPU", "onnxruntime": "GPU"},
    vendor=0x8086,
)
INTEL_NPU = Place(
    "intel_npu",
    "NPU",
    unseen_by=("gpu_board",),
    names={"openvino": "NPU", "onnxruntime": "NPU"},
    vendor=0x8086,
)
