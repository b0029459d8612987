"""Losses, miners and samplers of pytorch-metric-learning inside kinfold: created by name, trained, benched, mined."""

import inspect
import json

import numpy as np
import pytest
import torch

import kinfold
from kinfold.cli.main import main
from kinfold.compat import PMLLoss, PMLMiner, PMLSampler
from kinfold.compat.pml_names import find_loss
from kinfold.losses import Mined
from kinfold.pairs import CrossBatchMemory, Quadruplets, Relation, Triplets
from tests.experiments.tiny import read_results, run_inline, suite
from tests.training.tiny import difference, write_files

peer = pytest.importorskip("pytorch_metric_learning.losses", reason="pytorch-metric-learning is not installed")
from pytorch_metric_learning import miners, reducers, samplers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # its own
G = torch.Generator().manual_seed(3)
X = torch.randn(24, 9, generator=G, dtype=torch.float64)
Y = torch.arange(24) // 4
R = torch.randn(18, 9, generator=G, dtype=torch.float64)
Z = torch.arange(18) // 3
NEEDED = {"RankedListLoss": {"margin": 0.5, "Tn": 1.0}}
LEFT_OUT = {"BaseMetricLossFunction", "GenericPairLoss", "ManifoldLoss", "VICRegLoss"}
LOSSES = [
    name
    for name, cls in vars(peer).items()
    if isinstance(cls, type) and issubclass(cls, peer.BaseMetricLossFunction) and name not in LEFT_OUT
]
MINERS = [
    name
    for name, cls in vars(miners).items()
    if isinstance(cls, type)
    and issubclass(cls, miners.BaseMiner)
    and name not in ("BaseMiner", "EmbeddingsAlreadyPackagedAsTriplets")
]


def create(name, **options):
    parameters = inspect.signature(find_loss(name)).parameters
    classes = parameters.get("num_classes")
    if classes is not None and classes.default is inspect.Parameter.empty:
        options = {"num_classes": 6, "dim": 9, **options}
    return kinfold.losses.create(f"pml/{name}", **NEEDED.get(name, {}), **options).double()


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_its_own_value_under_its_name(name):
    loss = create(name)
    state = torch.get_rng_state()
    leaf = X.clone().requires_grad_()
    value = loss(leaf, Y)
    value.backward()
    assert torch.equal(state, torch.get_rng_state())
    assert leaf.grad.isfinite().all()
    with torch.random.fork_rng():
        draw = torch.Generator().manual_seed(0)
        torch.manual_seed(int(torch.randint(2**31 - 1, (), generator=draw)))
        expected = loss.loss(X, Y)
    torch.testing.assert_close(value.detach(), expected.detach().to(value.dtype), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", MINERS)
def test_every_miner_selects_what_it_selects_alone(name):
    miner = kinfold.miners.create(f"pml/{name}")
    state = torch.get_rng_state()
    selected = miner(X, Y, ref_embeddings=R, ref_labels=Z)
    assert torch.equal(state, torch.get_rng_state())
    with torch.random.fork_rng():
        draw = torch.Generator().manual_seed(0)
        torch.manual_seed(int(torch.randint(2**31 - 1, (), generator=draw)))
        expected = miner.miner(X, Y, R, Z)
    if isinstance(selected, Triplets):
        assert selected.valid.all()
        indices = (selected.anchor, selected.positive, selected.negative)
        assert all(torch.equal(*pair) for pair in zip(indices, expected, strict=True))
    else:
        for mask, pairs in ((selected.positives, expected[:2]), (selected.negatives, expected[2:])):
            rows, columns = (index.tolist() for index in pairs)
            assert {*map(tuple, mask.nonzero().tolist())} == {*zip(rows, columns, strict=True)}


@pytest.mark.parametrize("loss", ["margin", "pml/TripletMarginLoss"])
@pytest.mark.parametrize("miner", ["hard", "pml/BatchHardMiner"])
def test_losses_and_miners_of_both_libraries_combine(loss, miner):
    """batch hard is the same in both."""
    value = Mined(loss, miner)(X, Y)
    expected = Mined(loss, "hard")(X, Y)
    torch.testing.assert_close(value, expected)


def test_pairs_of_a_miner_reach_a_loss():
    options = {"alpha": 2.0, "beta": 40.0, "base": 0.5}
    relation = kinfold.miners.create("multi-similarity")(X, Y)
    assert isinstance(relation, Relation)
    value = create("MultiSimilarityLoss", **options)(X, Y, tuples=relation)
    indices = miners.MultiSimilarityMiner(epsilon=0.1)(X, Y)
    torch.testing.assert_close(value, peer.MultiSimilarityLoss(**options)(X, Y, indices))
    torch.testing.assert_close(value, create("MultiSimilarityLoss", **options)(X, Y, tuples=indices))


def test_relations_and_ids_become_pairs():
    loss = create("ContrastiveLoss", reducer="MeanReducer")
    torch.testing.assert_close(loss(X, relation=Y[:, None] == Y), loss(X, Y))
    memory = CrossBatchMemory(30)
    ids = torch.arange(24)
    memory.update(X, Y, ids)
    itself = loss(X, Y, ids=ids, **memory.reference())
    torch.testing.assert_close(itself, loss(X, Y))  # the batch against itself, without the pairs (i, i)
    assert loss(X, Y, ref_embeddings=X, ref_labels=Y) < itself


def test_half_precision_is_computed_in_float32_and_nan_is_seen():
    loss = create("CircleLoss").float()
    assert loss(X.half(), Y).dtype == torch.float32
    broken = X.clone()
    broken[0, 0] = torch.nan
    assert loss(broken, Y).isnan()


def test_strings_are_labels():
    names = [f"class {label}" for label in Y.tolist()]
    torch.testing.assert_close(create("CircleLoss")(X, names), create("CircleLoss")(X, Y))


def test_options_are_checked():
    with pytest.raises(ValueError, match=r"has no option 'marginn' \(did you mean 'margin'"):
        create("TripletMarginLoss", marginn=0.1)
    with pytest.raises(ValueError, match="m must be a number, got 'wide'"):
        create("CircleLoss", m="wide")
    with pytest.raises(ValueError, match="needs the options num_classes, dim"):
        kinfold.losses.create("pml/ArcFaceLoss")
    with pytest.raises(ValueError, match=r"distance = 'Cosine' not found \(did you mean 'CosineSimilarity'"):
        create("ContrastiveLoss", distance="Cosine")
    with pytest.raises(ValueError, match="reducer = 'ClassWeightedReducer' needs arguments"):
        create("ContrastiveLoss", reducer="ClassWeightedReducer")
    with pytest.raises(ValueError, match=r"loss 'pml/CircelLoss' not found \(did you mean 'CircleLoss'"):
        kinfold.losses.create("pml/CircelLoss")
    with pytest.raises(ValueError, match="miner 'pml/BatchHard' not found"):
        kinfold.miners.create("pml/BatchHard")
    with pytest.raises(ValueError, match="cannot be created"):
        kinfold.miners.create("pml/BatchHardMiner", pos_strategy="hard")
    assert isinstance(create("ContrastiveLoss", reducer="MeanReducer").loss.reducer, reducers.MultipleReducers)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="no single loss of pytorch-metric-learning"):
        PMLLoss(peer.CrossBatchMemory(peer.ContrastiveLoss(), 9))
    with pytest.raises(ValueError, match="no miner of pytorch-metric-learning"):
        PMLMiner(torch.nn.Identity())
    with pytest.raises(ValueError, match="needs labels and cannot use relation="):
        kinfold.miners.create("pml/BatchHardMiner")(X, relation=Y[:, None] == Y)
    with pytest.raises(ValueError, match="not DoNothingReducer"):
        create("ContrastiveLoss", reducer="DoNothingReducer")(X, Y)
    loss = create("ContrastiveLoss")
    with pytest.raises(ValueError, match="boolean relation"):
        loss(X, relation=torch.full((24, 24), 0.5))
    with pytest.raises(ValueError, match="not both"):
        loss(X, Y, relation=Y[:, None] == Y)
    index, mask = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
    with pytest.raises(ValueError, match="no quadruplets"):
        loss(X, Y, tuples=Quadruplets(index, index + 1, index + 5, index + 9, mask, mask))
    with pytest.raises(ValueError, match="no pair weights"):
        loss.pair_weights(X, Y)
    with pytest.raises(ValueError, match="only pml/MPerClassSampler"):
        kinfold.samplers.create("pml/HierarchicalSampler", Y, batch_size=8)


def test_class_vectors_and_draws_follow_the_generator():
    first, second, other = (
        create("ArcFaceLoss", generator=torch.Generator().manual_seed(seed)).loss.W for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    miner = kinfold.miners.create("pml/DistanceWeightedMiner")
    state = miner.state_dict()
    draws = [miner(X, Y).negative for _ in range(2)]
    assert not torch.equal(*draws)
    miner.load_state_dict(state)
    assert torch.equal(miner(X, Y).negative, draws[0])


def test_the_sampler_of_the_peer_draws_from_seed_and_epoch():
    labels = [f"class {label}" for label in Y.tolist()]
    sampler = kinfold.samplers.create("pml/MPerClassSampler", labels, batch_size=8, m=4, seed=3)
    assert isinstance(sampler, PMLSampler)
    before = np.random.get_state()[1].copy()
    epochs = [[*sampler] for _ in range(2)]
    assert np.array_equal(before, np.random.get_state()[1])
    assert epochs[0] != epochs[1]
    assert [*kinfold.samplers.create("pml/MPerClassSampler", labels, batch_size=8, m=4, seed=3)] == epochs[0]
    for batch in epochs[0]:
        assert np.unique(Y.numpy()[batch], return_counts=True)[1].tolist() == [4, 4]
    assert isinstance(sampler.inner, samplers.MPerClassSampler)
    with pytest.raises(ValueError, match="multiple of m=3"):
        kinfold.samplers.create("pml/MPerClassSampler", labels, batch_size=8, m=3)


def test_the_command_trains_with_names_of_the_peer_and_resumes(tmp_path, monkeypatch, capsys):
    recipe = write_files(tmp_path)

    def train(folder, *arguments):
        loss = ["--loss", "pml/MarginLoss", "--miner", "pml/DistanceWeightedMiner"]
        monkeypatch.setattr(
            "sys.argv", ["kinfold", "train", str(recipe), "--out", str(tmp_path / folder), *loss, *arguments]
        )
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0

    margin = ["--set", "loss.margin=0.3", "--set", "loss.learn_beta=true", "--set", "miner.cutoff=0.4"]
    assert train("run", *margin) == 0, capsys.readouterr().err
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["test"]["recall@1"] > 0.3
    assert 'name = "pml/MarginLoss"' in (tmp_path / "run" / "configuration.toml").read_text()
    assert train("again", *margin) == 0
    assert difference(tmp_path / "again", tmp_path / "run") == ""
    capsys.readouterr()
    assert train("wrong", "--set", "loss.marginn=0.3") != 0
    assert "did you mean 'margin'" in " ".join(capsys.readouterr().err.split())


def test_class_vectors_of_the_peer_are_trained(tmp_path):
    changes = {
        "loss": {"name": "pml/ProxyAnchorLoss"},
        "optimizer": {"loss_lr": 0.05},
        "sampler": {"name": "pml/MPerClassSampler", "batch_size": 16, "m": 4},
    }
    recipe = write_files(tmp_path, **changes)
    text = recipe.read_text().replace('[miner]\nname = "distance-weighted"\n', "").replace("per_class = 4\n", "")
    recipe.write_text(text)
    run = kinfold.train(recipe, tmp_path / "run")
    assert run.scores["test"]["recall@1"] > 0.3


def test_a_bench_compares_losses_of_both_libraries(tmp_path):
    methods = [
        {"name": "triplet"},
        {"name": "theirs", "loss": {"name": "pml/TripletMarginLoss", "margin": 0.1}},
    ]
    settings = suite(tmp_path, method=methods, seeds=[0, 1], base={"loss": {"name": "triplet"}})
    state, _ = run_inline(settings, tmp_path / "bench")
    assert not state.failed
    assert {row["method"] for row in read_results(tmp_path / "bench")} == {"triplet", "theirs"}
