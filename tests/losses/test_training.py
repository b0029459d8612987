"""Losses in a training loop: parameter groups, the warning for forgotten parameters, mined losses, option checks."""

import warnings

import pytest
import torch
from torch import nn

import kinfold
from kinfold.losses import Mined, parameter_groups
from kinfold.pairs import Triplets
from tests.problems import batch, generator, gradient, make

X, Y = batch(81, dtype=torch.float32)


def test_parameter_groups_give_proxies_their_own_rate_and_no_decay():
    model, loss = nn.Linear(7, 7), make("proxy-anchor")
    optimizer = torch.optim.AdamW(parameter_groups(model, loss, proxy_lr=0.5), lr=1e-3, weight_decay=0.1)
    network, proxies = optimizer.param_groups
    assert (network["lr"], network["weight_decay"]) == (1e-3, 0.1)
    assert (proxies["lr"], proxies["weight_decay"]) == (0.5, 0.0)
    assert proxies["params"][0] is loss.proxies


def test_parameter_groups_of_a_loss_without_parameters_are_the_models():
    assert len(parameter_groups(nn.Linear(7, 7), make("lifted"))) == 1


def test_parameter_groups_see_the_boundary_inside_a_mined_loss():
    mined = Mined(make("margin", num_classes=4), kinfold.miners.create("distance-weighted"))
    groups = parameter_groups(nn.Linear(7, 7), mined, proxy_lr=5e-4, lr=1e-5)
    assert groups[1]["params"][0] is mined.loss.beta
    assert (groups[0]["lr"], groups[1]["lr"]) == (1e-5, 5e-4)


def test_frozen_parameters_of_a_loss_are_said():
    loss = make("proxy-nca").requires_grad_(False)
    with pytest.warns(UserWarning, match="will not be trained: proxies"):
        assert len(parameter_groups(nn.Linear(7, 7), loss)) == 1


def train(loss, optimizer, model, steps=60):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(X), Y).backward()
            optimizer.step()
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("fused", [False, True])
def test_forgotten_proxies_are_noticed_once(fused):
    model = nn.Linear(7, 7)
    forgotten, trained = make("proxy-anchor"), make("proxy-anchor")
    messages = train(forgotten, torch.optim.Adam(model.parameters(), fused=fused), model)
    assert len(messages) == 1
    assert "parameter_groups" in messages[0]
    assert train(trained, torch.optim.Adam(parameter_groups(model, trained), fused=fused), model) == []


def test_evaluation_without_gradients_is_not_mistaken_for_training():
    loss = make("proxy-nca")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(80):
            loss(X, Y)


def test_mined_is_the_loss_of_the_mined_tuples():
    for loss_name, miner_name in [
        ("margin", "distance-weighted"),
        ("triplet", "semihard"),
        ("lifted", "multi-similarity"),
    ]:
        loss, miner = make(loss_name), kinfold.miners.create(miner_name)
        twin = kinfold.miners.create(miner_name)
        expected, slope = gradient(loss, X, Y, tuples=twin(X, Y))
        value, actual = gradient(Mined(loss, miner), X, Y)
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
        torch.testing.assert_close(actual, slope, rtol=0, atol=0)


def test_mined_pair_weights_are_those_of_the_chosen_pairs():
    loss = make("triplet")
    triplets = kinfold.miners.create("hard")(X, Y)
    weights = Mined(loss, kinfold.miners.create("hard")).pair_weights(X, Y)
    chosen = torch.zeros(len(X), len(X), dtype=torch.bool)
    chosen[triplets.anchor[triplets.valid], triplets.positive[triplets.valid]] = True
    chosen[triplets.anchor[triplets.valid], triplets.negative[triplets.valid]] = True
    assert not weights[~chosen].any()
    x = X.double()
    weights = loss.pair_weights(x, Y, tuples=triplets)
    leaf = x.clone().requires_grad_()
    unit = kinfold.pairs.normalize(leaf)
    (weights * (unit @ unit.T)).sum().backward()
    torch.testing.assert_close(leaf.grad, gradient(loss, x, Y, tuples=triplets)[1], rtol=1e-8, atol=1e-10)


def test_mined_keeps_the_random_state_of_its_miner():
    first, second = (Mined(make("margin"), kinfold.miners.create("random")) for _ in range(2))
    first(X, Y)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(X, Y), second(X, Y))


def test_a_proxy_loss_cannot_be_mined():
    with pytest.raises(ValueError, match="nothing to mine"):
        Mined(make("proxy-nca"), kinfold.miners.create("all"))


@pytest.mark.parametrize("name", ["lifted", "multi-similarity", "n-pair", "histogram", "precision-at-k"])
def test_triplets_are_refused_where_they_mean_nothing(name):
    with pytest.raises(ValueError, match="selects pairs"):
        make(name)(X, Y, tuples=Triplets.from_list([(0, 1, 2)]))


def test_n_pair_with_one_positive_draws_it_from_its_own_generator():
    drawn = make("n-pair", positives="one", generator=generator(3), regularization=0.0)
    mean = make("n-pair", regularization=0.0)(X, Y)
    values = torch.stack([drawn(X, Y) for _ in range(3000)])
    assert values.std() > 0
    assert values.mean().item() == pytest.approx(mean.item(), abs=5 * values.std().item() / 3000**0.5)
    twin = make("n-pair", positives="one", regularization=0.0)
    twin.load_state_dict(drawn.state_dict())
    assert torch.equal(twin(X, Y), drawn(X, Y))


def test_multi_similarity_without_mining_counts_the_side_an_anchor_has():
    x, y = X[:3], torch.tensor([0, 0, 1])
    values = make("multi-similarity", epsilon=None, reduction="none")(x, y)
    assert values[2] > 0
    assert make("multi-similarity", reduction="none")(x, y)[2] == 0


def test_a_constant_boundary_is_saved_but_not_trained():
    loss = make("margin", learn_beta=False, beta=0.9)
    assert list(loss.parameters()) == []
    assert loss.state_dict()["beta"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("binomial", {"positive_scale": 0.0}),
        ("multi-similarity", {"negative_scale": -1.0}),
        ("histogram", {"bins": 1}),
        ("precision-at-k", {"k": 0}),
        ("triplet", {"average": "some"}),
        ("margin", {"variant": "as_coded"}),
        ("margin", {"num_classes": 0}),
        ("n-pair", {"positives": "two"}),
        ("proxy-nca", {"scale": float("nan")}),
        ("proxy-anchor", {"num_classes": 0}),
        ("normalized-softmax", {"temperature": 0.0}),
    ],
)
def test_options_out_of_range_are_refused(name, options):
    with pytest.raises(ValueError, match="must be"):
        make(name, **options)


def test_margin_asks_for_what_it_needs():
    with pytest.raises(ValueError, match="pass labels"):
        make("margin", num_classes=4)(X, relation=Y[:, None] == Y)
    with pytest.raises(ValueError, match="reindex"):
        make("margin", num_classes=2)(X, Y)
    with pytest.raises(ValueError, match="triplet miner"):
        make("margin", variant="as-coded")(X, Y)
    with_both = make("margin", num_classes=4)(X, Y, relation=Y[:, None] == Y)
    torch.testing.assert_close(with_both, make("margin", num_classes=4)(X, Y))


def test_a_mined_loss_takes_classes_from_labels_and_pairs_from_the_relation():
    loss, miner, relation = make("margin", num_classes=4), kinfold.miners.create("hard"), Y[:, None] == Y
    mined = kinfold.losses.Mined(loss, miner)
    torch.testing.assert_close(mined(X, Y, relation=relation), mined(X, Y))
    options = {"ref_embeddings": X, "ref_labels": Y}
    torch.testing.assert_close(mined(X, Y, relation=relation, **options), mined(X, Y, **options))
    with pytest.raises(ValueError, match="give one of them"):
        kinfold.losses.Mined("contrastive", miner)(X, Y, relation=relation)
