"""The networks of anomaly detection: sizes as counted from the publications, published names, the maths of RTFM."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from edgescope.errors import ModelError
from edgescope.models import zoo
from edgescope.wings.anomaly import torch_networks
from edgescope.wings.anomaly.heads import HEADS, Rtfm
from edgescope.wings.anomaly.torch_networks import I3d
from published_sets import python2

pytestmark = pytest.mark.network


@pytest.mark.parametrize(
    ("form", "non_local", "frames", "params", "gmacs"),
    [
        ("32x2", False, 16, 28_043_472, 16.41),
        ("32x2", True, 16, 35_401_936, 19.73),
        ("32x2", False, 32, 28_043_472, 32.83),
        ("32x2", True, 32, 35_401_936, 40.96),
        ("8x8", False, 8, 28_043_472, 28.4),
        ("8x8", True, 8, 35_401_936, 36.5),
        ("8x8", False, 16, 28_043_472, 56.8),
        ("8x8", True, 16, 35_401_936, 79.0),
    ],
)
def test_i3d_has_the_published_size(form, non_local, frames, params, gmacs):
    with torch.device("meta"):
        network, clip = I3d(form, non_local=non_local).eval(), torch.empty(1, 3, frames, 224, 224)
    with FlopCounterMode(display=False) as counter:
        assert network(clip).shape == (1, 2048)
    assert sum(p.numel() for p in network.parameters()) == params
    assert counter.get_total_flops() / 2e9 == pytest.approx(gmacs, abs=0.06)


def test_rtfm_has_the_published_size():
    assert sum(p.numel() for p in Rtfm().parameters()) == 24_718_849


# -- the names in published files, from their publishers' descriptions ------------------------------------------------


def _norm(name):
    return [f"{name}.{x}" for x in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]


def names_of_32x2(non_local):
    found = ["conv1.weight", *_norm("bn1"), "fc.weight", "fc.bias"]
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            for n in (1, 2, 3):
                found += [f"{at}.conv{n}.weight", *_norm(f"{at}.bn{n}")]
            if block == 0:
                found += [f"{at}.downsample.0.weight", *_norm(f"{at}.downsample.1")]
            if non_local and stage in (2, 3) and block % 2:
                found += [
                    f"{at}.nl.{p}.{x}" for p in ("theta", "phi", "g", "out") for x in ("weight", "bias")
                ]
                found += _norm(f"{at}.nl.bn")
    return set(found)


def names_of_8x8(non_local):
    found = ["s1.pathway0_stem.conv.weight", *_norm("s1.pathway0_stem.bn")]
    found += ["head.projection.weight", "head.projection.bias"]
    for stage, blocks in zip((2, 3, 4, 5), (3, 4, 6, 3), strict=True):
        for block in range(blocks):
            at = f"s{stage}.pathway0_res{block}"
            for n in "abc":
                found += [f"{at}.branch2.{n}.weight", *_norm(f"{at}.branch2.{n}_bn")]
            if block == 0:
                found += [f"{at}.branch1.weight", *_norm(f"{at}.branch1_bn")]
            if non_local and stage in (3, 4) and block % 2:
                nl = f"s{stage}.pathway0_nonlocal{block}"
                found += [
                    f"{nl}.conv_{p}.{x}" for p in ("theta", "phi", "g", "out") for x in ("weight", "bias")
                ]
                found += _norm(f"{nl}.norm")
    return set(found)


def names_of_rtfm():
    found = ["Aggregate.conv_4.0.weight", "Aggregate.conv_5.0.weight", *_norm("Aggregate.conv_5.2")]
    for n in (1, 2, 3):
        found += [
            f"Aggregate.conv_{n}.0.weight",
            f"Aggregate.conv_{n}.0.bias",
            *_norm(f"Aggregate.conv_{n}.2"),
        ]
        found += [f"fc{n}.weight", f"fc{n}.bias"]
    for part in ("g", "W.0", "theta", "phi"):
        found += [f"Aggregate.non_local.{part}.{x}" for x in ("weight", "bias")]
    return {*found, *_norm("Aggregate.non_local.W.1")}


PUBLISHED = [
    ("32x2", names_of_32x2, lambda nl: I3d("32x2", non_local=nl), True),
    ("32x2", names_of_32x2, lambda nl: I3d("32x2", non_local=nl), False),
    ("8x8", names_of_8x8, lambda nl: I3d("8x8", non_local=nl), True),
    ("8x8", names_of_8x8, lambda nl: I3d("8x8", non_local=nl), False),
    ("rtfm", lambda nl: names_of_rtfm(), lambda nl: Rtfm(), True),
]


@pytest.mark.parametrize(("publisher", "names", "make", "non_local"), PUBLISHED)
def test_published_names_map_one_to_one_and_back(publisher, names, make, non_local):
    with torch.device("meta"):
        own = make(non_local).state_dict()
    theirs = torch_networks.to_theirs(own, publisher)
    assert set(theirs) == names(non_local)
    assert torch_networks.publisher_of(theirs) == publisher
    back = torch_networks.to_ours(theirs, publisher)
    assert back.keys() == own.keys() and all(back[k] is own[k] for k in own)


@pytest.mark.slow
def test_a_published_checkpoint_gives_the_same_features(tmp_path):
    """Written under PySlowFast's older names, without counters, in its holder; read by the zoo's network."""
    torch.manual_seed(1)
    network = I3d("8x8").eval()
    state = torch_networks.to_theirs(network.state_dict(), "8x8")
    older = {k.replace(".norm.", ".bn."): v for k, v in state.items() if "num_batches" not in k}
    torch.save({"model_state": older, "model_state_dict": older, "epoch": 3}, tmp_path / "i3d.pth")
    model = zoo.get(f"i3d_r50_nl_8x8@{tmp_path / 'i3d.pth'}")
    assert "given by the user" in model.info.source
    clip = torch.randn(1, 3, 4, 32, 32)
    with torch.inference_mode():
        assert torch.equal(model.module()(clip), network(clip))


@pytest.mark.parametrize(("form", "name"), [("8x8", "i3d_r50_nl_8x8"), ("32x2", "i3d_r50_nl")])
def test_blobs_of_caffe2_give_the_same_features(tmp_path, form, name):
    """As PySlowFast publishes I3D_NLN_8x8_R50.pkl: a pickle of Python 2, the names of Caffe2, momenta beside them."""
    torch.manual_seed(1)
    network = I3d(form).eval()
    blobs = {k: v.numpy() for k, v in torch_networks.to_theirs(network.state_dict(), "caffe2").items()}
    assert {
        "conv1_w",
        "res_conv1_bn_riv",
        "res2_0_branch1_w",
        "res5_2_branch2c_bn_rm",
        "pred_b",
    } <= blobs.keys()
    assert {"nonlocal_conv3_1_theta_w", "nonlocal_conv4_5_bn_s", "nonlocal_conv3_3_out_b"} <= blobs.keys()
    assert len(blobs) == len([k for k in network.state_dict() if "num_batches" not in k])
    beside = {
        "lr": np.float32([0.1]),
        "model_iter": np.int64([9]),
        "conv1_w_momentum": np.zeros(3, np.float32),
    }
    (tmp_path / "i3d.pkl").write_bytes(python2({"blobs": blobs | beside, "cfg": "MODEL: 1"}))
    model = zoo.get(f"{name}@{tmp_path / 'i3d.pkl'}")
    clip = torch.randn(1, 3, 8, 32, 32)
    with torch.inference_mode():
        assert torch.equal(model.module()(clip), network(clip))
        assert torch.equal(model.module().classify(clip), network.classify(clip))


@pytest.mark.slow
def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    torch.save(
        torch_networks.to_theirs(I3d("32x2", non_local=False).state_dict(), "32x2"), tmp_path / "w.pth"
    )
    for name in ("i3d_r50_nl", "s3d", "rtfm"):
        with pytest.raises(ModelError, match="E-WEIGHTS-5"):
            zoo.get(f"{name}@{tmp_path / 'w.pth'}").module()
    stranger = torch_networks.to_theirs(Rtfm(64).state_dict(), "rtfm") | {
        "Aggregate.conv_9.0.weight": torch.ones(1)
    }
    with pytest.raises(ModelError, match=r"E-WEIGHTS-7.*conv_9"):
        torch_networks.ours_of(stranger)


# -- RTFM against convolutions -----------------------------------------------------------------------------------------


def convolved(network, x):
    """RTFM's temporal network as its paper says it: convolutions over (N, F, T)."""
    x = x.transpose(1, 2)

    def norm(part, y):
        return F.batch_norm(
            y, part.running_mean, part.running_var, part.weight, part.bias, False, 0.1, part.eps
        )

    branches = [norm(n, F.relu(c(x))) for c, n in zip(network.dilated, network.dilated_norms, strict=True)]
    y, block = F.relu(network.narrow(x)), network.non_local
    theta, phi, g = (getattr(block, p)(y) for p in ("theta", "phi", "g"))
    weights = theta.transpose(1, 2) @ phi / y.shape[2]
    y = y + norm(block.norm, block.out((weights @ g.transpose(1, 2)).transpose(1, 2)))
    fused = norm(network.fuse_norm, F.relu(network.fuse(torch.cat([*branches, y], dim=1))))
    return (fused + x).transpose(1, 2)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 32])
def test_one_product_for_all_taps_is_the_convolution(length):
    torch.manual_seed(0)
    network = Rtfm(64).eval()
    for part in network.modules():
        if hasattr(part, "running_var"):
            part.running_var.uniform_(0.5, 2)
            part.running_mean.normal_()
            torch.nn.init.normal_(part.weight)
    x = torch.randn(3, length, 64)
    with torch.inference_mode():
        torch.testing.assert_close(network.temporal(x), convolved(network, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", HEADS)
def test_heads_score_sequences_of_any_length(name):
    head = HEADS[name](64).eval()
    with torch.inference_mode():
        for length in (1, 3, 32, 45):
            scores = head(torch.randn(2, length, 64))
            assert scores.shape == (2, length) and scores.min() > 0 and scores.max() < 1


@pytest.mark.slow
def test_the_stand_in_sees_change():
    """Frames that stand still have no change among their features; the same frames in motion have some."""
    entry = zoo.table()["frames_lite0"]
    network = torch_networks.network(entry, None)
    frames = torch.randn(1, 3, 4, 32, 32)
    with torch.inference_mode():
        moving, still = network(frames), network(frames[:, :, :1].expand(-1, -1, 4, -1, -1))
    assert moving.shape == (1, 640)
    assert float(still[:, 320:].abs().max()) < 1e-5 < float(moving[:, 320:].mean())
