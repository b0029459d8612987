"""Values and gradients of the installed pytorch-metric-learning, where its definitions agree with ours.

Balanced batches: it averages over pairs where we average over anchors.
"""

import math

import pytest
import torch

from tests.problems import gradient, make

peer = pytest.importorskip("pytorch_metric_learning.losses", reason="pytorch-metric-learning is not installed")
distances = pytest.importorskip("pytorch_metric_learning.distances")
reducers = pytest.importorskip("pytorch_metric_learning.reducers")

pytestmark = pytest.mark.filterwarnings("ignore")  # its own
CLASSES, DIM = 6, 9
X = torch.randn(24, DIM, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
Y = torch.arange(24) // 4
MEAN = reducers.MeanReducer

PAIRS = [
    ("contrastive", {}, lambda: peer.ContrastiveLoss(pos_margin=0, neg_margin=1, reducer=MEAN())),
    (
        "triplet",
        {"margin": 0.3},
        lambda: peer.TripletMarginLoss(margin=0.3, distance=distances.LpDistance(power=2), reducer=MEAN()),
    ),
    ("triplet", {"squared": False, "average": "active"}, lambda: peer.TripletMarginLoss(margin=0.2)),
    (
        "multi-similarity",
        {"epsilon": None},
        lambda: peer.MultiSimilarityLoss(alpha=2, beta=40, base=0.5, reducer=MEAN()),
    ),
    ("lifted", {"variant": "oh-song"}, lambda: peer.LiftedStructureLoss(neg_margin=1, pos_margin=0, reducer=MEAN())),
    ("nt-xent", {"temperature": 0.2}, lambda: peer.NTXentLoss(temperature=0.2, reducer=MEAN())),
    ("supcon", {"temperature": 0.2}, lambda: peer.SupConLoss(temperature=0.2, reducer=MEAN())),
    ("circle", {}, lambda: peer.CircleLoss(m=0.4, gamma=80, reducer=MEAN())),
    ("fastap", {}, lambda: peer.FastAPLoss(num_bins=10, reducer=MEAN())),
    ("histogram", {"bins": 65}, lambda: peer.HistogramLoss(n_bins=64)),
]
PROXIES = [
    ("proxy-anchor", {}, lambda: peer.ProxyAnchorLoss(CLASSES, DIM, margin=0.1, alpha=32)),
    ("normalized-softmax", {}, lambda: peer.NormalizedSoftmaxLoss(CLASSES, DIM, temperature=0.05)),
    ("arcface", {}, lambda: peer.ArcFaceLoss(CLASSES, DIM, margin=math.degrees(0.5), scale=16)),
    (
        "sub-center-arcface",
        {"centers": 2},
        lambda: peer.SubCenterArcFaceLoss(
            num_classes=CLASSES, embedding_size=DIM, margin=math.degrees(0.5), scale=16, sub_centers=2
        ),
    ),
    ("cosface", {}, lambda: peer.CosFaceLoss(CLASSES, DIM, margin=0.35, scale=64)),
    (
        "soft-triple",
        {"regularization": 0.0},
        lambda: peer.SoftTripleLoss(CLASSES, DIM, centers_per_class=2, la=8, gamma=0.1, margin=0.01),
    ),
]


def peer_gradient(loss):
    leaf = X.clone().requires_grad_()
    value = loss(leaf, Y)
    value.backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize(("name", "options", "build"), PAIRS, ids=lambda v: v if isinstance(v, str) else "")
def test_pair_losses(name, options, build):
    torch.testing.assert_close(gradient(make(name, **options), X, Y), peer_gradient(build()), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("name", "options", "build"), PROXIES, ids=lambda v: v if isinstance(v, str) else "")
def test_proxy_losses(name, options, build):
    ours, peer = make(name, dim=DIM, **options).double(), build().double()
    with torch.no_grad():
        if name == "proxy-anchor":
            ours.proxies.copy_(peer.proxies)
        elif name == "soft-triple":
            ours.proxies.copy_(peer.fc.T.reshape(ours.proxies.shape))
        elif name == "sub-center-arcface":
            ours.proxies.copy_(peer.W.T.reshape(ours.proxies.shape))
        else:
            ours.proxies.copy_(peer.W.T)
    torch.testing.assert_close(gradient(ours, X, Y), peer_gradient(peer), rtol=1e-6, atol=1e-8)


miners = pytest.importorskip("pytorch_metric_learning.miners")
R = torch.randn(18, DIM, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
Z = torch.arange(18) // 3
TRIPLET_MINERS = [
    lambda: miners.TripletMarginMiner(margin=0.2, type_of_triplets="all"),
    lambda: miners.TripletMarginMiner(margin=0.1, type_of_triplets="semihard"),
    lambda: miners.DistanceWeightedMiner(),
]
PAIR_MINERS = [
    lambda: miners.MultiSimilarityMiner(epsilon=0.1),
    lambda: miners.PairMarginMiner(pos_margin=0.2, neg_margin=0.8),
    lambda: miners.BatchEasyHardMiner(),
    lambda: miners.HDCMiner(),
]
ON_TRIPLETS = [case for case in PAIRS if case[0] in ("contrastive", "triplet")]
# the losses whose mean is theirs also where a miner leaves some anchors more pairs than others
ON_MINED_PAIRS = [case for case in PAIRS if case[0] in ("contrastive", "triplet", "multi-similarity")]


def with_tuples(loss, tuples, ours, reference):
    leaf, references = X.clone().requires_grad_(), R.clone().requires_grad_()
    if ours:
        options = {"ref_embeddings": references, "ref_labels": Z} if reference else {}
        value = loss(leaf, Y, tuples=tuples, **options)
    else:
        options = {"ref_emb": references, "ref_labels": Z} if reference else {}
        value = loss(leaf, Y, tuples, **options)
    value.backward()
    return [value.detach(), leaf.grad, *([references.grad] if reference else [])]


def same_with_tuples(case, miner, reference):
    name, options, build = case
    torch.manual_seed(0)  # theirs draw from the global generator
    tuples = miner()(X, Y, R, Z) if reference else miner()(X, Y)
    assert all(len(entry) for entry in tuples)
    ours = with_tuples(make(name, **options), tuples, True, reference)
    torch.testing.assert_close(ours, with_tuples(build(), tuples, False, reference), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("reference", [False, True], ids=["batch", "reference set"])
@pytest.mark.parametrize("miner", TRIPLET_MINERS)
@pytest.mark.parametrize("case", ON_TRIPLETS, ids=lambda case: case[0])
def test_its_triplets_are_taken_as_they_are(case, miner, reference):
    same_with_tuples(case, miner, reference)


@pytest.mark.parametrize("reference", [False, True], ids=["batch", "reference set"])
@pytest.mark.parametrize("miner", PAIR_MINERS)
@pytest.mark.parametrize("case", ON_MINED_PAIRS, ids=lambda case: case[0])
def test_its_pairs_are_taken_as_they_are(case, miner, reference):
    same_with_tuples(case, miner, reference)
