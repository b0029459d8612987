"""Objects of kinfold in the code of pytorch-metric-learning: the same numbers as its own objects."""

import inspect
import math

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import kinfold
from kinfold.compat import LossForPML, MinerForPML, SamplerForPML
from tests.problems import LOSSES, make

peer = pytest.importorskip("pytorch_metric_learning.losses", reason="pytorch-metric-learning is not installed")
from pytorch_metric_learning import distances, miners, reducers, regularizers, trainers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # its own
CLASSES, DIM = 6, 9
G = torch.Generator().manual_seed(5)
X = torch.randn(26, DIM, generator=G, dtype=torch.float64)
Y = torch.tensor([0] * 5 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4 + [0])
R = torch.randn(18, DIM, generator=G, dtype=torch.float64)
Z = torch.arange(18) // 3
BALANCED = (X[:24], torch.arange(24) // 4)

# kinfold loss, its options, reducer, the loss of the peer with the same definition
PAIR_LOSSES = [
    ("contrastive", {}, reducers.AvgNonZeroReducer, lambda r: peer.ContrastiveLoss(reducer=r)),
    ("contrastive", {}, reducers.MeanReducer, lambda r: peer.ContrastiveLoss(reducer=r)),
    ("contrastive", {}, reducers.SumReducer, lambda r: peer.ContrastiveLoss(reducer=r)),
    ("contrastive", {}, reducers.PerAnchorReducer, lambda r: peer.ContrastiveLoss(reducer=r)),
    (
        "contrastive",
        {},
        lambda: reducers.ThresholdReducer(low=0.3, high=0.9),
        lambda r: peer.ContrastiveLoss(reducer=r),
    ),
    (
        "contrastive",
        {},
        lambda: reducers.ClassWeightedReducer(torch.arange(1.0, 7.0)),
        lambda r: peer.ContrastiveLoss(reducer=r),
    ),
    (
        "similarity-margin",
        {"margin": 0.25, "threshold": 0.25},
        reducers.AvgNonZeroReducer,
        lambda r: peer.ContrastiveLoss(
            pos_margin=0.5, neg_margin=0.0, distance=distances.CosineSimilarity(), reducer=r
        ),
    ),
]
ANCHOR_LOSSES = [
    ("multi-similarity", {"epsilon": None}, lambda r: peer.MultiSimilarityLoss(alpha=2, beta=40, base=0.5, reducer=r)),
    ("circle", {}, lambda r: peer.CircleLoss(m=0.4, gamma=80, reducer=r)),
    ("supcon", {"temperature": 0.2}, lambda r: peer.SupConLoss(temperature=0.2, reducer=r)),
    ("fastap", {}, lambda r: peer.FastAPLoss(num_bins=10, reducer=r)),
]
ELEMENT_REDUCERS = [
    reducers.MeanReducer,
    reducers.SumReducer,
    reducers.AvgNonZeroReducer,
    reducers.PerAnchorReducer,
]


def run(loss, x, *args, **options):
    leaf = x.clone().requires_grad_()
    value = loss(leaf, *args, **options)
    value.backward()
    return value.detach(), leaf.grad


def same(first, second):
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-9)


def references(build):
    return {"ref_emb": R, "ref_labels": Z} if build else {}


@pytest.mark.parametrize("referenced", [False, True], ids=["batch", "reference set"])
@pytest.mark.parametrize(("name", "options", "reducer", "build"), PAIR_LOSSES)
def test_reducers_get_the_values_of_pairs(name, options, reducer, build, referenced):
    if referenced and isinstance(reducer(), reducers.PerAnchorReducer):
        pytest.skip("it indexes a square matrix")
    loss = LossForPML(make(name, **options), reducer=reducer())
    same(run(loss, X, Y, **references(referenced)), run(build(reducer()), X, Y, **references(referenced)))


@pytest.mark.parametrize("miner", [miners.MultiSimilarityMiner, miners.PairMarginMiner, miners.TripletMarginMiner])
@pytest.mark.parametrize("referenced", [False, True], ids=["batch", "reference set"])
def test_reducers_get_the_values_of_mined_pairs(miner, referenced):
    """Triplets list a pair several times, and so does the reducer get it."""
    indices = miner()(X, Y, R, Z) if referenced else miner()(X, Y)
    ours = LossForPML("contrastive", reducer=reducers.AvgNonZeroReducer())
    options = references(referenced)
    same(run(ours, X, Y, indices, **options), run(peer.ContrastiveLoss(), X, Y, indices, **options))


@pytest.mark.parametrize("reducer", ELEMENT_REDUCERS)
@pytest.mark.parametrize(("name", "options", "build"), ANCHOR_LOSSES, ids=[case[0] for case in ANCHOR_LOSSES])
def test_reducers_get_the_values_of_anchors(name, options, build, reducer):
    loss = LossForPML(make(name, **options), reducer=reducer())
    same(run(loss, X, Y), run(build(reducer()), X, Y))


@pytest.mark.parametrize(("name", "options", "build"), ANCHOR_LOSSES, ids=[case[0] for case in ANCHOR_LOSSES])
def test_classes_can_be_weighted(name, options, build):
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    value = LossForPML(make(name, **options), reducer=reducers.ClassWeightedReducer(weights))(X, Y)
    same(value, (make(name, reduction="none", **options)(X, Y) * weights[Y]).mean())
    expected = build(reducers.ClassWeightedReducer(weights))(X, Y)
    if name in ("multi-similarity", "circle"):
        # its values have the shape (B, 1) there, and the product with the weights (B,) becomes a matrix
        same(expected, build(reducers.MeanReducer())(X, Y) * weights[Y].mean())
    else:
        same(value, expected)


@pytest.mark.parametrize("reducer", [reducers.AvgNonZeroReducer, reducers.MeanReducer, reducers.SumReducer])
def test_reducers_get_the_values_of_triplets(reducer):
    indices = miners.TripletMarginMiner(margin=0.3)(X, Y)
    ours = LossForPML(make("triplet", squared=False, margin=0.2), reducer=reducer())
    same(run(ours, X, Y, indices), run(peer.TripletMarginLoss(margin=0.2, reducer=reducer()), X, Y, indices))


def test_triplets_become_pairs_where_a_loss_needs_all_pairs_of_an_anchor():
    indices = miners.TripletMarginMiner(margin=0.1, type_of_triplets="semihard")(X, Y)
    ours = LossForPML(make("multi-similarity", epsilon=None), reducer=reducers.MeanReducer())
    expected = peer.MultiSimilarityLoss(alpha=2, beta=40, base=0.5, reducer=reducers.SumReducer())
    value, gradient = run(ours, X, Y, indices)
    total, total_gradient = run(expected, X, Y, indices)
    anchors = len(set(indices[0].tolist()))  # the peer also counts anchors that are in no triplet, as zero
    same((value, gradient), (total / anchors, total_gradient / anchors))


def test_labels_may_be_left_out_beside_tuples():
    indices = miners.TripletMarginMiner(margin=0.3)(X, Y)
    loss = LossForPML(make("triplet", squared=False, average="active", margin=0.2))
    same(run(loss, X, None, indices), run(peer.TripletMarginLoss(margin=0.2), X, None, indices))
    with pytest.raises(ValueError, match="labels are needed"):
        LossForPML("contrastive", reducer=reducers.MeanReducer())(X, None, indices)


def test_without_a_reducer_the_value_is_that_of_the_loss():
    for name in LOSSES:
        loss = make(name, dim=DIM)
        expected = loss(X.float(), Y)
        if any(module.__class__.__name__.endswith("Miner") for module in loss.modules()):
            continue  # draws
        same(LossForPML(loss)(X.float(), Y).detach(), expected.detach())


def test_a_reference_set_is_passed_on():
    loss = make("multi-similarity")
    adapted = LossForPML(loss)
    same(adapted(X, Y, ref_emb=R, ref_labels=Z), loss(X, Y, ref_embeddings=R, ref_labels=Z))


def test_regularizers_are_added():
    adapted = LossForPML("contrastive", embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.3)
    expected = kinfold.losses.create("contrastive")(X, Y) + 0.3 * X.norm(dim=1).mean()
    same(adapted(X, Y), expected)
    triple = make("soft-triple", dim=DIM, regularization=0.2).double()
    same(LossForPML(triple, reducer=reducers.MeanReducer())(X, Y).detach(), triple(X, Y).detach())


def test_nothing_to_learn_is_a_zero_with_a_gradient():
    alone = torch.arange(len(X))
    for loss in ("contrastive", "multi-similarity"):
        value, gradient = run(LossForPML(make(loss), reducer=reducers.AvgNonZeroReducer()), X[:1], alone[:1])
        assert value == 0
        assert not gradient.any()


@pytest.mark.parametrize(
    ("name", "options", "build"),
    [
        ("arcface", {}, lambda: peer.ArcFaceLoss(CLASSES, DIM, margin=math.degrees(0.5), scale=16)),
        ("cosface", {}, lambda: peer.CosFaceLoss(CLASSES, DIM, margin=0.35, scale=64)),
        (
            "sub-center-arcface",
            {"centers": 2},
            lambda: peer.SubCenterArcFaceLoss(
                num_classes=CLASSES, embedding_size=DIM, margin=28.6, scale=16, sub_centers=2
            ),
        ),
        ("normalized-softmax", {}, lambda: peer.NormalizedSoftmaxLoss(CLASSES, DIM, temperature=0.05)),
        ("proxy-anchor", {}, lambda: peer.ProxyAnchorLoss(CLASSES, DIM)),
        ("soft-triple", {}, lambda: peer.SoftTripleLoss(CLASSES, DIM, centers_per_class=2, la=8, gamma=0.1)),
    ],
)
def test_logits_of_classes(name, options, build):
    loss, expected = make(name, dim=DIM, **options).double(), build().double()
    weights = {"proxy-anchor": "proxies", "soft-triple": "fc"}.get(name, "W")
    values = getattr(expected, weights).detach()
    with torch.no_grad():
        loss.proxies.copy_((values if name == "proxy-anchor" else values.T).reshape(loss.proxies.shape))
    same(LossForPML(loss).get_logits(X).detach(), expected.get_logits(X).detach())


def test_logits_of_every_loss_with_class_vectors():
    """The largest is the class whose vector the embedding is."""
    for name in LOSSES:
        loss = make(name, dim=DIM)
        if loss.proxies is None:
            with pytest.raises(ValueError, match="no class vectors"):
                LossForPML(loss).get_logits(X.float())
            continue
        vectors = loss.proxies.detach().reshape(CLASSES, -1, DIM)[:, 0]
        vectors = torch.nn.functional.normalize(vectors) if name == "softmax" else vectors
        if name == "softmax":
            loss.proxies.data = vectors.clone()
        assert LossForPML(loss).get_logits(vectors).argmax(dim=1).tolist() == [*range(CLASSES)], name


def test_class_losses_weight_items_by_their_number_of_tuples():
    indices = miners.MultiSimilarityMiner()(X, Y)
    ours = make("normalized-softmax", dim=DIM).double()
    expected = peer.NormalizedSoftmaxLoss(CLASSES, DIM, temperature=0.05).double()
    expected.W.data = ours.proxies.data.T.clone()
    same(run(LossForPML(ours), X, Y, indices), run(expected, X, Y, indices))
    with pytest.raises(ValueError, match="pass no indices_tuple"):
        LossForPML(make("proxy-anchor", dim=DIM).double())(X, Y, indices)


@pytest.mark.parametrize("name", ["histogram", "dro-topk", "proxy-anchor"])
def test_reducers_of_losses_without_single_values_are_refused(name):
    with pytest.raises(ValueError, match="leave the reducer out"):
        LossForPML(make(name), reducer=reducers.MeanReducer())


def test_a_divisor_is_refused():
    with pytest.raises(ValueError, match="DivisorReducer"):
        LossForPML("contrastive", reducer=reducers.DivisorReducer())


def test_do_nothing_returns_the_single_values():
    values = LossForPML("contrastive", reducer=reducers.DoNothingReducer())(X, Y)
    assert {*values} == {"pos_loss", "neg_loss"}
    anchor, positive = values["pos_loss"]["indices"]
    assert (Y[anchor] == Y[positive]).all()


def test_miners_return_the_tuples_of_the_peer():
    def key(indices):
        return sorted(zip(*(index.tolist() for index in indices), strict=True))

    same_triplets = MinerForPML("hard")(X, Y), miners.BatchHardMiner()(X, Y)
    assert key(same_triplets[0]) == key(same_triplets[1])
    ours, expected = MinerForPML("multi-similarity")(X, Y), miners.MultiSimilarityMiner(epsilon=0.1)(X, Y)
    assert key(ours[:2]) == key(expected[:2])
    assert key(ours[2:]) == key(expected[2:])
    with_references = MinerForPML("hard")(X, Y, R, Z), miners.BatchHardMiner()(X, Y, R, Z)
    assert key(with_references[0]) == key(with_references[1])


@pytest.mark.parametrize("name", kinfold.list("miners"))
def test_every_miner_feeds_losses_of_the_peer(name):
    miner = MinerForPML(kinfold.miners.create(name))
    indices = miner(X, Y)
    assert len(indices) in (3, 4)
    state = torch.get_rng_state()
    loss = peer.TripletMarginLoss() if len(indices) == 3 else peer.ContrastiveLoss()
    assert loss(X, Y, indices).isfinite()
    miner(X, Y, R, Z)
    assert torch.equal(state, torch.get_rng_state())
    assert "miner._extra_state" in miner.state_dict()


def test_samplers_yield_the_batches_one_item_at_a_time():
    def create():
        return kinfold.samplers.create("spc", Y, batch_size=8, per_class=4, seed=1)

    adapted = SamplerForPML(create())
    loader = DataLoader(torch.arange(len(Y)), sampler=adapted, batch_size=8)
    assert [batch.tolist() for batch in loader] == [*create()]
    assert len(adapted) == len([*create()]) * 8
    adapted.set_epoch(5)
    assert adapted.sampler.epoch == 5
    with pytest.raises(ValueError, match="chooses items by their embeddings"):
        SamplerForPML(kinfold.samplers.create("gc", Y, batch_size=8, per_class=4))


def test_a_trainer_of_the_peer_trains_with_loss_miner_and_sampler():
    trunk = torch.nn.Linear(DIM, 4)
    before = trunk.weight.detach().clone()
    sampler = SamplerForPML(kinfold.samplers.create("spc", Y, batch_size=8, per_class=4))
    trainer = trainers.MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.SGD(trunk.parameters(), lr=0.1)},
        batch_size=8,
        loss_funcs={"metric_loss": LossForPML("multi-similarity")},
        dataset=TensorDataset(X.float(), Y),
        mining_funcs={"tuple_miner": MinerForPML("multi-similarity")},
        sampler=sampler,
        dataloader_num_workers=0,
        data_device="cpu",
    )
    trainer.train(num_epochs=1)
    assert not torch.equal(before, trunk.weight)
    assert math.isfinite(float(trainer.losses["metric_loss"]))


def test_what_is_no_loss_or_miner_is_refused():
    with pytest.raises(ValueError, match="LossForPML takes"):
        LossForPML(kinfold.losses.Mined("margin", "hard"))
    with pytest.raises(ValueError, match="MinerForPML takes"):
        MinerForPML(torch.nn.Identity())
    with pytest.raises(ValueError, match="did you mean 'contrastive'"):
        LossForPML("contrastiv")


def test_adapters_have_the_signature_of_the_peer():
    expected = [*inspect.signature(peer.ContrastiveLoss.forward).parameters]
    assert [*inspect.signature(LossForPML.forward).parameters] == expected
