"""The scripts behind the figures of anomaly detection: what they hold each other to, in miniature."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import rtfm_step

from edgescope.wings.anomaly import heads, torch_networks
from edgescope.wings.anomaly.heads import Rtfm


@pytest.mark.parametrize("crops", [1, 3])
def test_our_step_has_the_loss_of_the_plain_one(crops):
    """Same weights, same minibatch, no dropout: the loss agrees to 1e-5, and so does every gradient."""
    torch.manual_seed(crops)
    ours, plain = Rtfm(64), rtfm_step.Plain(64)
    torch.nn.init.normal_(ours.non_local.norm.weight)
    plain.load_state_dict(torch_networks.to_theirs(ours.state_dict(), "rtfm"))
    bags = torch.rand(6, crops, 32, 64)
    plain.eval(), ours.eval()
    theirs, own = plain.loss(bags), heads.rtfm(ours, bags).total
    torch.testing.assert_close(own, theirs, rtol=1e-5, atol=0)
    theirs.backward()
    own.backward()
    wanted = torch_networks.to_ours({name: p.grad for name, p in plain.named_parameters()}, "rtfm")
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], rtol=1e-3, atol=1e-5)


def test_the_plain_way_pools_as_we_do(tmp_path):
    (path,) = rtfm_step.folder(tmp_path, 1, 2)
    given = rtfm_step.np.load(path)
    torch.testing.assert_close(
        rtfm_step.read_plainly([path])[0], torch.from_numpy(rtfm_step.segmented(given)), rtol=1e-5, atol=1e-6
    )
