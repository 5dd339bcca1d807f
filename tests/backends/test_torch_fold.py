"""Networks whose folding would change what they compute; cuDNN's kernels are stand-ins with the same meaning."""

import pytest
import torch
from torch import nn

from edgescope.backends.pytorch import module as shared
from edgescope.errors import UnsupportedError


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """cuDNN's two functions on the CPU; the one with a residual wants it in the very shape, as cuDNN does."""

    def conv(x, weight, bias, stride, padding, dilation, groups):
        return nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups)

    def with_residual(x, weight, residual, alpha, bias, *geometry):
        out = conv(x, weight, bias, *geometry)
        assert residual.shape == out.shape
        return torch.relu(out + alpha * residual)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda *a: torch.relu(conv(*a)), raising=False)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", with_residual, raising=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.norm.running_mean.uniform_()
        self.bias = nn.Parameter(torch.rand(1, 3, 1, 1))


class Plain(Net):
    def forward(self, x):
        return torch.relu(self.b(torch.relu(self.norm(self.a(x)))) + x)


class CalledTwice(Net):
    def forward(self, x):
        return self.a(torch.relu(self.a(x)))


class CalledTwiceWithResidual(Net):
    def forward(self, x):
        return torch.relu(self.a(x) + x) + self.a(x)


class SharedUnderTwoNames(Net):
    def __init__(self):
        super().__init__()
        self.b = self.a

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Alpha(Net):
    def forward(self, x):
        return torch.relu(torch.add(self.a(x), x, alpha=2))


class WithItself(Net):
    def forward(self, x):
        y = self.a(x)
        return torch.relu(y + y)


class SameModuleAdded(Net):
    def forward(self, x):
        return torch.relu(self.a(x) + self.a(x + 1))


class Broadcast(Net):
    def forward(self, x):
        return torch.relu(self.a(x) + self.bias)


class BroadcastOfAnActivation(Net):
    def forward(self, x):
        return torch.relu(self.a(x) + x.mean((2, 3), keepdim=True))


class ByName(Net):
    def forward(self, x):
        return torch.relu(input=self.a(input=x)) + nn.functional.relu(self.b(input=x))


CASES = [
    (Plain, 1, 1),
    (CalledTwice, 0, 0),
    (CalledTwiceWithResidual, 0, 0),
    (SharedUnderTwoNames, 0, 0),
    (Alpha, 0, 0),
    (WithItself, 0, 0),
    (SameModuleAdded, 0, 0),
    (Broadcast, 0, 1),
    (BroadcastOfAnActivation, 0, 1),
    (ByName, 0, 0),
]


@pytest.mark.parametrize(("net", "relus", "residuals"), CASES)
def test_folding_keeps_what_is_computed(net, relus, residuals):
    module = net().eval()
    given = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    changed = shared.folded(module)
    kinds = [type(m) for m in changed.modules()]
    with torch.inference_mode():
        wanted, got = module(given.clone()), changed(given.clone())
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert (kinds.count(shared.ConvRelu), kinds.count(shared.ConvAddRelu)) == (relus, residuals)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("size", "padding", "dilation"), [(1, 0, 1), (3, 1, 1), (3, 2, 2), (5, 0, 1)])
def test_the_shape_a_residual_must_have(size, padding, dilation, stride):
    conv = nn.Conv2d(3, 6, size, stride, padding, dilation)
    given = torch.zeros(2, 3, 13, 10)
    assert shared._out_shape(conv, given) == tuple(conv(given).shape)


def test_a_layer_normalised_in_two_places_is_refused():
    class Shared(Net):
        def forward(self, x):
            return self.norm(self.a(self.norm(self.a(x))))

    with pytest.raises(UnsupportedError, match=r"E-FOLD-1: .*\ba .* 2 times.* --option fold "):
        shared.folded(Shared())


def test_what_goes_wrong_while_rewriting_is_the_same_error(monkeypatch):
    def breaks(*_):
        raise RuntimeError("node in use")

    monkeypatch.setattr(shared, "_fuse", breaks)
    with pytest.raises(UnsupportedError, match=r"E-FOLD-1: .*node in use") as caught:
        shared.folded(Plain())
    assert isinstance(caught.value.__cause__, RuntimeError)
