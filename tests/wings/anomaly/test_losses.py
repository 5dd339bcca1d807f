"""The losses against a second derivation, written in another way: numpy, bag by bag, in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from edgescope.wings.anomaly import heads
from edgescope.wings.anomaly.heads import HEADS, Rtfm

pytestmark = pytest.mark.network


def bags(pairs=3, crops=2, segments=32, width=64, seed=0):
    return torch.randn(2 * pairs, crops, segments, width, generator=torch.Generator().manual_seed(seed))


def answers(network, given):
    """Scores (bags, segments), mean over crops, and features (bags, crops, segments, width), in float64."""
    with torch.inference_mode():
        found = [network.scored(crop) for crop in given.unbind(1)]
    scores = np.mean([f.scores.double().numpy() for f in found], axis=0)
    return scores, np.stack([f.features.double().numpy() for f in found], axis=1)


def rtfm_by_hand(network, given):
    scores, features = answers(network, given)
    count, k = len(scores) // 2, scores.shape[1] // 10
    entropy, lengths = [], []
    chosen = [np.argsort(-np.linalg.norm(f, axis=2).mean(axis=0))[:k] for f in features]
    for bag in range(2 * count):
        answer = scores[bag][chosen[bag]].mean()
        entropy.append(-np.log(answer if bag >= count else 1 - answer))
    for pair in range(count):
        for crop in range(features.shape[1]):
            normal = np.linalg.norm(features[pair, crop][chosen[pair]].mean(axis=0))
            abnormal = np.linalg.norm(features[count + pair, crop][chosen[count + pair]].mean(axis=0))
            lengths.append((abs(100 - abnormal) + normal) ** 2)
    flat = scores[count:].ravel()
    return {
        "bags": np.mean(entropy),
        "lengths": 1e-4 * np.mean(lengths),
        "smooth": 8e-4 * sum((b - a) ** 2 for a, b in pairwise(flat)),
        "sparse": 8e-3 * np.sqrt((flat**2).sum()),
    }


@pytest.mark.parametrize(("crops", "seed"), [(1, 0), (2, 1), (10, 2)])
def test_rtfms_loss_is_its_four_terms(crops, seed):
    torch.manual_seed(seed)
    network, given = Rtfm(64).eval(), bags(crops=crops, seed=seed)
    got, wanted = heads.rtfm(network, given), rtfm_by_hand(network, given)
    for name, value in wanted.items():
        assert float(getattr(got, name).detach()) == pytest.approx(value, rel=1e-5), name
    assert float(got.total.detach()) == pytest.approx(sum(wanted.values()), rel=1e-5)


def test_the_ranking_loss_compares_every_pair():
    network, given = HEADS["mil_ranking"](64).eval(), bags()
    scores, _ = answers(network, given)
    normal, abnormal = scores[:3].max(axis=1), scores[3:].max(axis=1)
    hinge = np.mean([max(0, 1 - a + n) for a in abnormal for n in normal])
    smooth = 8e-5 * np.mean([(np.diff(s) ** 2).sum() for s in scores[3:]])
    sparse = 8e-5 * np.mean([s.sum() for s in scores[3:]])
    assert float(heads.ranking(network, given).total.detach()) == pytest.approx(
        hinge + smooth + sparse, rel=1e-5
    )


def test_the_light_heads_loss_asks_the_highest_scores():
    network, given = HEADS["light_head"](64).eval(), bags()
    scores, _ = answers(network, given)
    top = np.sort(scores, axis=1)[:, -3:].mean(axis=1)
    wanted = -np.mean([*np.log(1 - top[:3]), *np.log(top[3:])])
    found = heads.top_k(network, given)
    assert float(found.bags.detach()) == pytest.approx(wanted, rel=1e-5)
    flat, usual = scores[3:].ravel(), heads.Weights()
    terms = [float(term.detach()) for term in (found.lengths, found.smooth, found.sparse)]
    differences, length = (np.diff(flat) ** 2).sum(), np.sqrt((flat**2).sum())
    assert terms == pytest.approx([0, usual.smooth * differences, usual.sparse * length], rel=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_every_head_learns_what_its_loss_asks(name):
    """Abnormal bags hold two segments that are shifted: after some steps these have the highest scores."""
    torch.manual_seed(0)
    given = bags(pairs=4, crops=1, width=32)
    given[4:, :, 10:14] += 1.5
    network, loss = HEADS[name](32), heads.LOSSES[name]
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        terms = loss(network.train(), given)
        terms.total.backward()
        optimizer.step()
        values.append(float(terms.total.detach()))
    scores, _ = answers(network.eval(), given)
    assert np.mean(values[-5:]) < np.mean(values[:5])
    assert scores[4:, 10:14].mean() > scores[:4].mean() + 0.1


def test_mixed_precision_comes_close():
    torch.manual_seed(0)
    network, given = Rtfm(64).eval(), bags()
    exact = float(heads.rtfm(network, given).total.detach())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = float(heads.rtfm(network, given).total.detach())
    assert mixed == pytest.approx(exact, rel=0.02)
