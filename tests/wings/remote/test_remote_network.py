"""A network as operators and numbers: what torch.export saw is what the program computes, and what it refuses."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402

from edgescope.errors import UnsupportedError  # noqa: E402
from edgescope.wings.remote import eager, network, torch_program  # noqa: E402


class Mix(nn.Module):
    """Many spellings that Python has for operators, in one network."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.lstm, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 4)
        self.register_buffer("steps", torch.arange(8.0))

    def forward(self, x):
        x = torch.relu_(self.norm(self.conv(x)))[:, :, 1:-1, ::2]
        x = nn.functional.pad(x, (1, 1, 0, 2), mode="reflect") + nn.functional.pad(x, (0, 2, 2, 0), value=0.5)
        x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = x.flatten(2).transpose(1, 2)[:, [3, 1, 2, 0]] + self.steps
        x = x.masked_fill(x > 3, float("-inf")).softmax(-1).to(torch.float64).float()
        found, (hidden, _) = self.lstm(x)
        parts = self.head(found).unflatten(1, (2, 2)).chunk(2, dim=1)
        return {"first": parts[0].mean((1, 2)), "second": [parts[1].sum(-1), hidden[0]], "none": None}


class Attention(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.causal, self.mix = causal, nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.mix(x).chunk(3, -1)
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu()
        return found, nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)

    def forward(self, tokens, scale):
        return self.words(tokens) * scale.unsqueeze(-1)


def job(path, **keys):
    usual = {
        "device": "cpu",
        "threads": None,
        "dtype": "float32",
        "layout": "contiguous",
        "network": str(path),
    }
    return usual | keys


def both(module, tmp_path, **inputs):
    """The outputs of a network of its own code, and of the program, for one batch."""
    torch.manual_seed(0)
    path, batch = tmp_path / "network.bin", {k: v.numpy() for k, v in inputs.items()}
    with torch.no_grad():
        theirs = module.eval()(*inputs.values())
    network.write(module, batch, list(batch), torch.float32, path)
    with torch.inference_mode():
        return torch.utils._pytree.tree_leaves(theirs), torch_program.Network(torch, job(path))(
            list(inputs.values())
        )


def same(theirs, ours):
    theirs = [t for t in theirs if t is not None]
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.network
def test_a_network_of_many_spellings_gives_its_own_answers(tmp_path):
    same(*both(Mix(), tmp_path, x=torch.rand(2, 3, 12, 12)))


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_written_out_for_a_torch_that_lacks_it(tmp_path, monkeypatch, causal):
    attention = torch._C._nn.scaled_dot_product_attention
    given = {"x": torch.rand(2, 5, 8)}
    same(*both(Attention(causal), tmp_path, **given))
    network.write(Attention(causal), {"x": given["x"].numpy()}, ["x"], torch.float32, tmp_path / "n.bin")
    whole = torch_program.Network(torch, job(tmp_path / "n.bin"))
    monkeypatch.delattr(torch._C._nn, "scaled_dot_product_attention")
    old = torch_program.Network(torch, job(tmp_path / "n.bin"))
    assert attention not in old.forward.__globals__.values()
    got = old([given["x"]])
    monkeypatch.undo()
    assert attention in whole.forward.__globals__.values()
    same([t.nan_to_num() for t in whole([given["x"]])], [t.nan_to_num() for t in got])


@pytest.mark.network
def test_whole_numbers_stay_whole(tmp_path):
    given = {"tokens": torch.randint(50, (2, 7)), "scale": torch.rand(2, 7)}
    same(*both(Words(), tmp_path, **given))


@pytest.mark.network
def test_memory_is_free_after_the_last_use(tmp_path):
    path = tmp_path / "n.bin"
    network.write(Mix(), {"x": torch.rand(1, 3, 12, 12).numpy()}, ["x"], torch.float32, path)
    graph = json.loads(path.open("rb").readline())
    writer = torch_program.Writer(torch, graph, torch.device("cpu"))
    freed = {name for names in writer.last_uses().values() for name in names}
    held = set(graph["outputs"]) | {one["name"] for one in graph["tensors"]}
    made = {node["name"] for node in graph["nodes"]} | set(graph["inputs"])
    assert freed == made - held


@pytest.mark.network
def test_half_precision_is_followed_in_half(tmp_path):
    path, layer = tmp_path / "n.bin", nn.Linear(4, 2)
    network.write(layer, {"input": torch.rand(1, 4).numpy()}, ["input"], torch.bfloat16, path)
    one = torch_program.Network(torch, job(path, dtype="bfloat16"))
    with torch.inference_mode():
        (out,) = one([torch.rand(1, 4)], one.noting)
    assert (one.kinds, out.dtype) == ({"bfloat16": 1}, torch.float32)


class Looks(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


@pytest.mark.network
def test_what_cannot_be_followed_is_refused(tmp_path):
    with pytest.raises(UnsupportedError) as told:
        network.write(Looks(), {"x": torch.rand(1, 4).numpy()}, ["x"], torch.float32, tmp_path / "n.bin")
    assert told.value.code == "E-ON-6"


def test_an_operator_that_is_not_there_is_named():
    node = {"name": "v0", "op": "of_tomorrow.default", "args": [{"value": "x0"}], "kwargs": {}}
    graph = {"inputs": ["x0"], "nodes": [node], "outputs": ["v0"], "tensors": []}
    with pytest.raises(torch_program.Refused) as told:
        torch_program.Writer(torch, graph, torch.device("cpu")).function()
    assert told.value.code == "E-ON-5"
    assert "of_tomorrow" in told.value.what


def test_an_old_torch_is_refused():
    with pytest.raises(torch_program.Refused) as told:
        torch_program.torch_of((99, 0))
    assert (told.value.code, torch.__version__ in told.value.evidence) == ("E-ON-4", True)


# -- when it is warm, when the mean is known ------------------------------------------------------------------


def clocked(lengths, monkeypatch, **keys):
    """Queries of these lengths in fake time, the last one again and again."""
    now = [0.0]

    def ask(number):
        now[0] += lengths[min(number, len(lengths) - 1)]

    monkeypatch.setattr(torch_program.time, "monotonic", lambda: now[0])
    usual = {"warmup": None, "min_s": 1.0, "max_s": 10.0, "rel_width": 0.01, "max_queries": None}
    return torch_program.Clocked(ask, usual | keys)


def test_a_slow_start_is_warm_up(monkeypatch):
    one = clocked([0.05] * 20 + [0.01], monkeypatch)
    one.warm()
    assert one.settled
    assert all(length == pytest.approx(0.01) for length in one.lengths(len(one.begun) - 15))


def test_a_warm_up_ends_after_ten_seconds(monkeypatch):
    one = clocked([0.01 * 1.02**k for k in range(500)], monkeypatch)
    one.warm()
    assert not one.settled
    assert 10 <= one.done[-1] < 14


def test_seconds_of_warm_up_are_kept(monkeypatch):
    one = clocked([0.1], monkeypatch, warmup=2.0)
    one.warm()
    assert one.done[-1] == pytest.approx(2.0, abs=0.11)


@pytest.mark.parametrize(
    ("keys", "why", "seconds"),
    [
        ({}, "rel_width", 1.0),
        ({"min_s": 3.0}, "rel_width", 3.0),
        ({"max_queries": 7}, "all queries done", 0.07),
        ({"rel_width": 1e-9, "noise": 0.5}, "max_s", 10.0),
        ({"max_s": 0.5}, "max_s", 0.5),
    ],
)
def test_a_run_ends_when_the_mean_is_known(monkeypatch, keys, why, seconds):
    keys = dict(keys)
    noise, draw = keys.pop("noise", 0.0), random.Random(0).random
    one = clocked([0.01 * (1 + noise * draw()) for _ in range(2000)], monkeypatch, **keys)
    start, stop = one.measure()
    assert (one.stopped_by, start) == (why, 0.0)
    assert stop == pytest.approx(seconds, rel=0.05)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-6, 1e3), max_size=200), st.floats(1e-4, 0.5))
def test_the_rules_take_any_lengths(lengths, share):
    assert torch_program.settled(lengths) in (True, False)
    assert torch_program.known([0.01] * 100 + lengths, share) in (True, False)
    assert not torch_program.known(lengths[:39], share)


def test_the_times_of_a_board_are_begins_and_then_ends():
    found = eager.queries(np.array([1.0, 2.0, 1.25, 2.5]), 4).columns
    assert found["issued_ns"].tolist() == [1_000_000_000, 2_000_000_000]
    assert (found["done_ns"] - found["issued_ns"]).tolist() == [250_000_000, 500_000_000]
    assert found["samples"].tolist() == [4, 4] and set(found["scheduled_ns"].tolist()) == {-1}
