"""The tables of docs/migration.md, measured with the installed pytorch-metric-learning, and the hints for its names."""

import inspect
import re
from math import radians
from pathlib import Path

import pytest
import torch

import kinfold
from kinfold import registry
from kinfold.pairs import Triplets
from kinfold.registry.hints import ALIASES

peer = pytest.importorskip("pytorch_metric_learning.losses", reason="pytorch-metric-learning is not installed")
from pytorch_metric_learning import miners, reducers, samplers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # its own
PAGE = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
CLASSES, DIM = 6, 9
G = torch.Generator().manual_seed(1)


def rows(mark):
    table = re.search(rf"<!-- {mark} -->(.*?)<!-- /{mark} -->", PAGE, flags=re.DOTALL)[1]
    lines = [line for line in table.strip().splitlines()[2:] if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def batch(*sizes):
    labels = torch.arange(CLASSES).repeat_interleave(torch.tensor(sizes))
    return torch.randn(len(labels), DIM, generator=G, dtype=torch.float64), labels


BALANCED = batch(4, 4, 4, 4, 4, 4)
UNEQUAL = batch(9, 6, 4, 3, 2, 2)
WITH_SINGLETON = batch(9, 6, 4, 3, 2, 1)


def build(peer_code, ours):
    """Both losses, with the same class vectors."""
    expected = eval(peer_code, {**vars(peer), **vars(reducers)}).double()
    loss = eval(ours, {"create": kinfold.losses.create, "radians": radians}).double()
    if loss.proxies is not None:
        vectors = next(parameter for parameter in expected.parameters() if parameter.dim() >= 2).detach()
        with torch.no_grad():
            loss.proxies.copy_((vectors.T if vectors.shape[0] == DIM else vectors).reshape(loss.proxies.shape))
    return expected, loss


def run(loss, x, y):
    leaf = x.clone().requires_grad_()
    value = loss(leaf, y)
    value.backward()
    return value.detach().double(), leaf.grad


def agree(peer_code, ours, x, y):
    expected, loss = build(peer_code, ours)
    try:
        torch.testing.assert_close(run(loss, x, y), run(expected, x, y), rtol=1e-6, atol=1e-8)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("peer_code", "ours", "same", "remark"), rows("losses"), ids=[row[1] for row in rows("losses")]
)
def test_losses_agree_where_the_page_says_so(peer_code, ours, same, remark):
    if same == "equal":
        for x, y in (BALANCED, UNEQUAL, WITH_SINGLETON):
            assert agree(peer_code, ours, x, y)
    elif same == "balanced":
        assert agree(peer_code, ours, *BALANCED)
        assert not agree(peer_code, ours, *UNEQUAL)
    else:
        assert same == "different"
        assert remark
        assert not agree(peer_code, ours, *BALANCED)


def test_margin_with_mined_triplets_is_equal():
    x, y = UNEQUAL
    triplets = miners.TripletMarginMiner(margin=0.2)(x, y)
    expected, loss = build("MarginLoss()", 'create("margin", learn_beta=False)')
    torch.testing.assert_close(loss(x, y, tuples=triplets), expected(x, y, triplets), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("peer_code", "ours", "same", "remark"), rows("miners"), ids=[row[1] for row in rows("miners")]
)
def test_miners_agree_where_the_page_says_so(peer_code, ours, same, remark):
    x, y = UNEQUAL
    expected = eval(peer_code, vars(miners))(x, y)
    selected = eval(ours, {"create": kinfold.miners.create})(x, y)
    if isinstance(selected, Triplets):
        if len(expected) == 4:  # one positive and one negative of each anchor, as pairs
            assert torch.equal(expected[0], expected[2])
            expected = (*expected[:2], expected[3])
        sides = [(torch.stack([selected.anchor, selected.positive, selected.negative])[:, selected.valid], expected)]
    else:
        sides = [(selected.positives.nonzero().T, expected[:2]), (selected.negatives.nonzero().T, expected[2:])]
    equal = all({*zip(*a.tolist(), strict=True)} == {*zip(*(i.tolist() for i in b), strict=True)} for a, b in sides)
    assert equal == (same == "equal")
    assert equal or remark


def test_every_class_of_the_peer_is_on_the_page():
    bases = {"BaseLossWrapper", "BaseMetricLossFunction", "GenericPairLoss", "BaseMiner"}
    for module in (peer, miners, samplers):
        for name, value in vars(module).items():
            if isinstance(value, type) and name not in bases and not name.endswith("Mixin"):
                assert re.search(rf"\b{name}\b", PAGE), name


# what people type: kind, name, suggestion
TYPED = [
    ("losses", "NTXentLoss", "nt-xent"),
    ("losses", "info-nce", "nt-xent"),
    ("losses", "InfoNCE", "nt-xent"),
    ("losses", "MultiSimilarityLoss", "multi-similarity"),
    ("losses", "multi_similarity", "multi-similarity"),
    ("losses", "TripletMarginLoss", "triplet"),
    ("losses", "ProxyAnchorLoss", "proxy-anchor"),
    ("losses", "SubCenterArcFaceLoss", "sub-center-arcface"),
    ("losses", "MultipleNegativesRankingLoss", "nt-xent"),
    ("losses", "SphereFaceLoss", "pml/SphereFaceLoss"),
    ("losses", "tripplet", "triplet"),
    ("miners", "BatchHardMiner", "hard"),
    ("miners", "TripletMarginMiner", "all-triplets"),
    ("miners", "BatchEasyHardMiner", "easy-hard"),
    ("miners", "HDCMiner", "pml/HDCMiner"),
    ("samplers", "m-per-class", "spc"),
    ("samplers", "MPerClassSampler", "spc"),
    ("metrics", "mean_average_precision_at_r", "map@r"),
]
# kind, name, option, suggestion
TYPED_OPTIONS = [
    ("losses", "arcface", "embedding_size", "dim"),
    ("losses", "arcface", "n_classes", "num_classes"),
    ("losses", "multi-similarity", "alpha", "positive_scale"),
    ("losses", "multi-similarity", "beta", "negative_scale"),
    ("losses", "multi-similarity", "base", "threshold"),
    ("losses", "circle", "m", "margin"),
    ("losses", "circle", "gamma", "scale"),
    ("losses", "proxy-anchor", "alpha", "scale"),
    ("losses", "soft-triple", "centers_per_class", "centers"),
    ("losses", "contrastive", "neg_margin", "margin"),
    ("losses", "contrastive", "pos_margin", "positive_margin"),
    ("losses", "nt-xent", "tau", "temperature"),
    ("miners", "distance-weighted", "cutoff", "lower_cutoff"),
    ("miners", "all-triplets", "type_of_triplets", "difficulty"),
    ("miners", "easy-hard", "pos_strategy", "positive"),
    ("samplers", "spc", "m", "per_class"),
    ("samplers", "spc", "length_before_new_iter", "batches"),
]


@pytest.mark.parametrize(("kind", "name", "suggestion"), TYPED)
def test_names_that_people_type_get_a_hint(kind, name, suggestion):
    with pytest.raises(ValueError, match=re.escape(f"{name!r} not found (did you mean {suggestion!r}?)")):
        registry.resolve(kind, name)


@pytest.mark.parametrize(("kind", "name", "option", "suggestion"), TYPED_OPTIONS)
def test_options_that_people_type_get_a_hint(kind, name, option, suggestion):
    with pytest.raises(ValueError, match=re.escape(f"has no option {option!r} (did you mean {suggestion!r}?)")):
        registry.create(kind, name, **{option: 1})


def test_every_class_of_the_peer_gets_a_hint():
    kinds = {"losses": (peer, peer.BaseMetricLossFunction), "miners": (miners, miners.BaseMiner)}
    for kind, (module, base) in kinds.items():
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, base) and value is not base:
                if name in ("GenericPairLoss", "ManifoldLoss"):
                    continue
                with pytest.raises(ValueError, match="did you mean") as refused:
                    registry.resolve(kind, name)
                suggestion = re.search(r"did you mean '([^']+)'", str(refused.value))[1]
                registry.resolve(kind, suggestion)


def test_every_hint_leads_to_a_name_or_an_option():
    names = {name for kind in ("losses", "miners", "samplers", "metrics") for name in kinfold.list(kind)} | {"recall@1"}
    options = {
        option
        for kind in ("losses", "miners", "samplers")
        for name in kinfold.list(kind)
        for option in inspect.signature(registry.resolve(kind, name)).parameters
    }
    for alias, candidates in ALIASES.items():
        assert alias == re.sub(r"[^a-z0-9]", "", alias), alias
        for candidate in candidates:
            assert candidate in names | options, (alias, candidate)
