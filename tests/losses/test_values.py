"""Every loss equals a naive loop in float64, on batches with unequal classes, masks with holes, and reference sets."""

import math

import pytest
import torch

from kinfold.pairs import Quadruplets, Relation, Triplets
from tests.losses.references import OPTIONS, PROXY_REFERENCES, REFERENCES, TRIPLET_REFERENCES
from tests.problems import LOSSES, NUM_CLASSES, all_triplets_of, batch, close, draws, generator, has_proxies, make

PAIR_CASES = [(name, options) for name in LOSSES if name in REFERENCES for options in OPTIONS[name]]
PROXY_CASES = [(name, options) for name in LOSSES if name in PROXY_REFERENCES for options in OPTIONS[name]]
TRIPLET_CASES = [case for case in PAIR_CASES if case[0] in TRIPLET_REFERENCES]


def ids(case: str | dict[str, object]) -> str:
    return case if isinstance(case, str) else ",".join(f"{k}={v}" for k, v in case.items()) or "defaults"


def exact(name, options):
    """The loss in double precision, and the options with the numbers that it really holds: 1.2 is not a float32."""
    loss = make(name, **options).double()
    if name == "margin":
        return loss, options | {"beta": loss.beta.item()}
    if name == "sigmoid":
        return loss, options | {"scale": math.exp(loss.log_scale.item()), "bias": loss.bias.item()}
    return loss, options


def test_every_loss_has_a_reference():
    """Losses that draw tuples have one for tuples only, and robust losses are compared in tests/dro."""
    for name in LOSSES:
        if name.startswith("dro-"):
            continue
        kind = PROXY_REFERENCES if has_proxies(name) else TRIPLET_REFERENCES if draws(name) else REFERENCES
        assert name in kind, f"add a reference of {name} to tests/losses/references"


def reference(name, options, anchors, references, relation) -> float:
    masks = relation.positives.numpy(), relation.negatives.numpy()
    return REFERENCES[name](anchors.numpy(), references.numpy(), *masks, **options)


@pytest.mark.parametrize(("name", "options"), PAIR_CASES, ids=ids)
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_naive_loop_on_labels(name, options, seed):
    sizes = [(5, 3, 1, 4), (2, 2, 7), (6, 1, 1, 2, 2), (3, 8)][seed]
    x, y = batch(seed, dim=(3, 7, 12, 5)[seed], sizes=sizes)
    loss, options = exact(name, options)
    assert close(loss(x, y).item(), reference(name, options, x, x, Relation.from_labels(y)))


@pytest.mark.parametrize(("name", "options"), PAIR_CASES, ids=ids)
def test_equals_the_naive_loop_on_a_relation_with_ignored_pairs(name, options):
    x, _ = batch(7)
    chance = torch.rand(len(x), len(x), generator=generator(1))
    same = torch.arange(len(x))
    relation = Relation((chance < 0.25) & (same[:, None] != same), (chance > 0.5) & (same[:, None] != same))
    loss, options = exact(name, options)
    actual = loss(x, relation=chance < 0.25, tuples=relation)
    assert close(actual.item(), reference(name, options, x, x, relation))


@pytest.mark.parametrize(("name", "options"), PAIR_CASES, ids=ids)
def test_equals_the_naive_loop_against_a_reference_set(name, options):
    x, y = batch(3)
    r, z = batch(4, sizes=(2, 6, 3))
    loss, options = exact(name, options)
    expected = reference(name, options, x, r, Relation.from_labels(y, z))
    assert close(loss(x, y, ref_embeddings=r, ref_labels=z).item(), expected)


@pytest.mark.parametrize(("name", "options"), PROXY_CASES, ids=ids)
@pytest.mark.parametrize("multi_label", [False, True])
def test_proxy_losses_equal_the_naive_loop(name, options, multi_label):
    x, y = batch(5)
    loss = make(name, **options).double()
    relation = y[:, None] == torch.arange(NUM_CLASSES)
    if multi_label:
        relation = relation | (torch.rand(relation.shape, generator=generator(2)) < 0.3)
    for parameter in loss.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=generator(8), dtype=torch.float64))
    arguments = {name: parameter.detach().numpy() for name, parameter in loss.named_parameters()} | options
    arguments.pop("centers", None)  # given by the shape of the proxies
    expected = PROXY_REFERENCES[name](x.numpy(), relation.numpy(), **arguments)
    actual = loss(x, relation=relation) if multi_label else loss(x, y)
    assert close(actual.item(), expected)


@pytest.mark.parametrize("name", [name for name in PROXY_REFERENCES if not make(name).proxies_are_anchors])
def test_proxy_losses_leave_out_a_sample_that_belongs_to_no_class(name):
    """Not proxy-anchor: a sample without a class is still a negative of every proxy."""
    x, y = batch(5)
    relation = y[:, None] == torch.arange(NUM_CLASSES)
    loss = make(name).double()
    expected = loss(x[1:], relation=relation[1:])
    relation[0] = False
    assert close(loss(x, relation=relation).item(), expected.item())


@pytest.mark.parametrize(("name", "options"), TRIPLET_CASES, ids=ids)
def test_triplets_equal_the_naive_loop(name, options):
    x, y = batch(6)
    every = all_triplets_of(Relation.from_labels(y))
    picked = torch.randperm(len(every.valid), generator=generator(0))[:20]
    rows = torch.stack([every.anchor, every.positive, every.negative], dim=1)[picked].tolist()
    rows += [(0, 0, 5), (3, 3, 1)]  # pure push: the positive is the anchor itself
    loss, options = exact(name, options)
    expected = TRIPLET_REFERENCES[name](x.numpy(), x.numpy(), [tuple(row) for row in rows], **options)
    triplets = Triplets.from_list(rows)
    assert close(loss(x, y, tuples=triplets).item(), expected)
    # an invalid triplet counts for nothing, wherever it points
    valid = torch.cat([triplets.valid, torch.tensor([False])])
    zero = torch.tensor([0])
    columns = [torch.cat([c, zero]) for c in (triplets.anchor, triplets.positive, triplets.negative)]
    assert close(loss(x, y, tuples=Triplets(*columns, valid=valid)).item(), expected)


def test_margin_with_a_beta_per_class_and_as_coded():
    x, y = batch(8)
    betas = torch.tensor([0.6, 0.9, 1.2, 1.0, 0.7, 1.1], dtype=torch.float64)
    dense = make("margin", num_classes=6).double()
    mined = make("margin", num_classes=6, variant="as-coded").double()
    for loss in (dense, mined):
        loss.beta.data.copy_(betas)
    relation = Relation.from_labels(y)
    expected = reference("margin", {"beta": betas[y].numpy()}, x, x, relation)
    assert close(dense(x, y).item(), expected)
    rows = [(0, 1, 2), (3, 4, 5), (6, 6, 7)]
    expected = TRIPLET_REFERENCES["margin"](x.numpy(), x.numpy(), rows, beta=betas[y].numpy(), variant="as-coded")
    assert close(mined(x, y, tuples=Triplets.from_list(rows)).item(), expected)


@pytest.mark.parametrize(
    "options", [{}, {"squared": True}, {"variant": "as-run"}, {"margin": 0.4, "second_margin": 1.2}]
)
def test_quadruplets(options):
    x, y = batch(8)
    margins = {"margin": 0.2, "second_margin": 0.2} if options.get("variant") else {}
    rows = [(0, 1, 2, 3), (4, 5, 6, None), (7, 7, 8, 9), (10, 2, 3, 1)]
    expected = TRIPLET_REFERENCES["quadruplet"](
        x.numpy(), x.numpy(), rows, **margins, **{k: v for k, v in options.items() if k != "variant"}
    )
    a, p, n = (torch.tensor(column) for column in list(zip(*rows, strict=True))[:3])
    fourth, has_fourth = torch.tensor([3, 0, 9, 1]), torch.tensor([True, False, True, True])
    tuples = Quadruplets(a, p, n, fourth, torch.ones(4, dtype=torch.bool), has_fourth)
    assert close(make("quadruplet", **options)(x, y, tuples=tuples).item(), expected)


def test_lifted_as_oh_song_defined_it():
    for seed, sizes in enumerate([(5, 3, 1, 4), (2, 2), (3, 3, 3)]):
        x, y = batch(seed, sizes=sizes)
        relation = Relation.from_labels(y)
        expected = reference("lifted-oh-song", {"margin": 0.8}, x, x, relation)
        assert close(make("lifted", variant="oh-song", margin=0.8)(x, y).item(), expected)


@pytest.mark.parametrize("seed", range(5))
def test_lifted_as_oh_song_defined_it_where_few_have_negatives(seed):
    """Pairs of which both ends, one or none have negatives."""
    x, _ = batch(seed)
    chance = torch.rand(len(x), len(x), generator=generator(seed)).triu(diagonal=1)
    positives, negatives = (chance > 0.6), (chance > 0) & (chance < 0.06)
    relation = Relation(positives | positives.T, negatives | negatives.T)
    some = relation.negatives.any(dim=1)
    assert len({(bool(some[i]), bool(some[j])) for i, j in positives.nonzero().tolist()}) == 4
    actual = make("lifted", variant="oh-song")(x, relation=relation.positives, tuples=relation)
    assert close(actual.item(), reference("lifted-oh-song", {}, x, x, relation))


@pytest.mark.parametrize(
    "name",
    ["similarity-margin", "similarity-contrastive", "binomial", "contrastive", "margin", "threshold-consistent-margin"],
)
def test_a_real_relation_weights_both_sides(name):
    """r l+ + (1 - r) l-, in the pair matrix, and as the mean of copies where r is a fraction."""
    x, _ = batch(9)
    n = len(x)
    everyone = ~torch.eye(n, dtype=torch.bool)
    r = torch.rand(n, n, generator=generator(3), dtype=torch.float64)
    matrix = make(name, reduction="none")
    positives = matrix(x, relation=everyone)
    negatives = matrix(x, relation=torch.zeros(n, n, dtype=torch.bool))
    expected = (r * positives + (1 - r) * negatives) * everyone
    torch.testing.assert_close(matrix(x, relation=r), expected, rtol=1e-12, atol=1e-12)
    # three copies of which two are positive are worth r = 2/3
    mean = make(name)
    thirds = torch.full((n, n), 2 / 3, dtype=torch.float64)
    copies = torch.cat([everyone, everyone, torch.zeros_like(everyone)], dim=1)
    same = torch.eye(n, dtype=torch.bool).repeat(1, 3)
    listed = mean(x, relation=copies, ref_embeddings=x.repeat(3, 1), tuples=Relation(copies, ~copies & ~same))
    assert close(mean(x, relation=thirds).item(), listed.item(), 1e-9)
