"""Training from a recipe: what is trained, selected and written, and the errors of invalid recipes."""

import json
import math
import tomllib

import numpy as np
import pytest
import torch

import kinfold
from kinfold.data import Rows, create_dataset
from kinfold.distributed import World
from kinfold.training import Run, components, configure
from tests.training.problems import feature_file, features, images, recipe


def train_run(folder, changes=(), dataset=None, **tables):
    return kinfold.train(recipe(**tables), folder, changes=changes, dataset=dataset or features())


def test_training_improves_the_embedding_space_and_the_run_reports_it(tmp_path):
    run = train_run(tmp_path / "run", ["training.steps=60", "model.init=random", "evaluation.every=20"])
    first, *_, last = [event for event in run.events if event["event"] == "evaluation"]
    assert first["step"] == 0
    assert last["step"] == 60
    assert max(event["map@r"] for event in run.events if event["event"] == "evaluation") > first["map@r"] + 0.1
    raw = features().subset("test")
    assert isinstance(raw.items, Rows)
    before = kinfold.metrics.evaluate(torch.from_numpy(raw.items.array()), raw.labels, metrics=["map@r"])
    assert run.scores["test"]["map@r"] > before["map@r"]


def test_the_scores_are_those_of_the_model_of_the_run(tmp_path):
    run = train_run(tmp_path / "run")
    for split in ("validation", "test"):
        data = run.data(split)
        scores = kinfold.metrics.evaluate(run.embed(data), data.labels, metrics=["recall@1", "map@r"])
        assert scores == run.scores[split]
    again = Run.open(tmp_path / "run", features())
    assert torch.equal(again.embed(data), run.embed(data))


def test_the_run_ends_with_the_best_step_on_validation_classes(tmp_path):
    # steps so large that the scores go up and down
    run = train_run(tmp_path / "run", ["optimizer.lr=1.0", "evaluation.every=1", "training.steps=13"])
    evaluations = {event["step"]: event["map@r"] for event in run.events if event["event"] == "evaluation"}
    best = max(evaluations, key=lambda step: (evaluations[step], -step))
    assert run.scores["step"] == best < 13
    assert run.scores["validation"]["map@r"] == evaluations[best] > evaluations[13]
    assert run.scores["steps"] == 13


def test_selection_last_keeps_the_last_step_and_holds_no_classes_out(tmp_path):
    run = train_run(tmp_path / "run", ["evaluation.selection=last", "data.validation=none", "optimizer.lr=10.0"])
    assert run.scores["step"] == run.scores["steps"] == 20
    assert "validation" not in run.scores
    assert len(run.data("train").classes) == 16
    with pytest.raises(ValueError, match="no split 'validation'"):
        run.data("validation")


def test_the_oracle_takes_the_best_value_of_every_metric_and_is_marked(tmp_path):
    run = train_run(tmp_path / "run", ["evaluation.selection=test-oracle", "data.validation=0"])
    evaluations = [event for event in run.events if event["event"] == "evaluation"]
    assert {event["split"] for event in evaluations} == {"test"}
    assert run.scores["inflated"] is True
    for name in ("recall@1", "map@r"):
        assert run.scores["test"][name] == max(event[name] for event in evaluations)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        (["evaluation.patience_after=0"], 30),
        (["evaluation.patience_after=0.25"], 50),
        ([], 100),  # half of the steps by default
        (["evaluation.patience_after=0", "schedule.warmup=61"], 70),
        (["evaluation.patience_after=1"], 200),
    ],
)
def test_patience_stops_no_run_before_its_minimum_steps_and_the_warmup(tmp_path, changes, steps):
    all_changes = ["optimizer.lr=0", "training.steps=200", "evaluation.patience=3", *changes]
    run = train_run(tmp_path / "run", all_changes)
    assert run.scores["steps"] == steps
    assert run.scores["ended"] == ("all steps done" if steps == 200 else "no better value for too long")


def test_a_run_that_selects_the_start_is_marked(tmp_path):
    run = train_run(tmp_path / "run", ["optimizer.lr=30", "optimizer.name=sgd"])
    assert run.scores["selected_start"] is True
    assert (run.scores["step"], run.scores["start"]["test"]) == (0, run.scores["test"])
    untouched = train_run(tmp_path / "none", ["training.steps=0"])
    assert untouched.scores["selected_start"] is False  # no training was requested
    assert untouched.scores["start"]["test"] == untouched.scores["test"]
    last = train_run(tmp_path / "last", ["optimizer.lr=30", "optimizer.name=sgd", "evaluation.selection=last"])
    assert last.scores["selected_start"] is False


@pytest.mark.parametrize("selection", ["validation", "last", "test-oracle"])
def test_scores_of_the_start_are_those_of_the_weights_before_training(tmp_path, selection):
    run = train_run(tmp_path / "run", [f"evaluation.selection={selection}", "data.validation=0.25"])
    assert run.scores["selected_start"] is False
    for split, scores in run.scores["start"].items():
        data = run.data(split)
        assert kinfold.metrics.evaluate(run.embed_start(data), data.labels, metrics=["recall@1", "map@r"]) == scores
        assert scores["map@r"] < run.scores[split]["map@r"]
    assert set(run.scores["start"]) == {"validation", "test"}


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    runs = [train_run(tmp_path / f"{i}", [f"seed={seed}"]) for i, seed in enumerate([0, 0, 1])]
    weights = [run.model().head.weight for run in runs]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_folder_holds_everything_that_the_run_depends_on(tmp_path):
    run = kinfold.train(recipe(data={"name": "features", "root": str(feature_file(tmp_path))}), tmp_path / "run")
    written = tomllib.loads((run.folder / "configuration.toml").read_text())
    assert written["model"]["backbone"] == "features"
    assert written["model"]["init"] == "half-whiten"
    assert written["model"]["backbone_options"] == {"width": 12}
    assert written["evaluation"]["distance"] == "cosine"
    assert written["data"]["validation"] == 0.2
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["threads"] == torch.get_num_threads()
    assert environment["packages"]["torch"] == torch.__version__
    assert Run.open(run.folder).model().head.weight.shape == (8, 12)


def test_an_epoch_has_the_length_of_the_sampler(tmp_path):
    run = train_run(tmp_path / "run", training={"epochs": 3}, evaluation={"every": 1000, "diagnose": "never"})
    batches = len(kinfold.samplers.create("spc", run.data("train").labels, batch_size=24, per_class=4))
    assert run.scores["steps"] == 3 * batches


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", kinfold.list("losses"))
def test_every_loss_trains_by_its_name(name, tmp_path):
    run = train_run(tmp_path / "run", ["training.steps=3"], loss={"name": name})
    assert run.scores["ended"] == "all steps done"
    assert all(math.isfinite(event["loss"]) for event in run.events if event["event"] == "step")


@pytest.mark.parametrize("name", kinfold.list("miners"))
def test_every_miner_trains_by_its_name(name, tmp_path):
    run = train_run(tmp_path / "run", ["training.steps=3"], loss={"name": "contrastive"}, miner={"name": name})
    assert run.scores["steps"] == 3


@pytest.mark.parametrize("name", kinfold.list("samplers"))
def test_every_sampler_trains_by_its_name(name, tmp_path):
    run = train_run(tmp_path / "run", ["training.steps=6"], sampler={"name": name, "batch_size": 24})
    assert run.scores["steps"] == 6


@pytest.mark.parametrize("loss", ["n-pair", "generalized-lifted", "angular"])
def test_losses_on_raw_vectors_are_evaluated_by_euclidean_distance(loss, tmp_path):
    run = train_run(tmp_path / "run", ["training.steps=2"], loss={"name": loss})
    assert run.distance == "euclidean"


def test_losses_with_a_boundary_per_class_get_as_many_as_there_are_training_classes(tmp_path):
    config = configure(recipe(loss={"name": "margin", "num_classes": "auto"}))
    assert components.build_objective(config, 12).loss.beta.shape == (12,)
    assert not components.build_objective(config, 12).loss.compiles_tiles
    compiled = configure(recipe(loss={"name": "margin"}), ["training.compile_loss=true"])
    assert components.build_objective(compiled, 12).loss.compiles_tiles
    assert components.build_objective(configure(recipe(loss={"name": "margin"})), 12).loss.beta.shape == ()
    assert components.build_objective(configure(recipe(loss={"name": "proxy-nca"})), 12).loss.proxies.shape == (12, 8)


def test_only_class_vectors_are_sharded():
    objective = components.build_objective(configure(recipe(loss={"name": "proxy-nca"})), 12)
    components.shard_objective(objective, World())  # one process holds all
    assert objective.loss.proxies.shape == (12, 8)
    for changes in (
        {"loss": {"name": "margin"}},
        {"loss": {"name": "proxy-nca"}, "training": {"steps": 1, "nested_dims": [4, 8]}},
    ):
        with pytest.raises(ValueError, match="shard_classes needs a loss with class vectors"):
            components.shard_objective(components.build_objective(configure(recipe(**changes)), 12), World())


def test_proxies_have_their_own_learning_rate_and_no_weight_decay(tmp_path):
    rates = []
    kinfold.train(
        recipe(
            loss={"name": "proxy-anchor"},
            optimizer={"name": "adamw", "lr": 0.001, "head_lr": 0.002, "loss_lr": 0.1, "weight_decay": 0.5},
            schedule={"name": "cosine", "warmup": 5},
        ),
        tmp_path / "run",
        dataset=images(),
        changes=["model.backbone=conv4", "model.backbone_options={width = 16}", "data.name=table"],
        callbacks=[lambda event: rates.append(event.values) if event.kind == "step" else None],
    )
    assert rates[4]["lr-backbone"] == pytest.approx(0.001)
    assert rates[4]["lr-head"] == pytest.approx(0.002)
    assert rates[4]["lr-loss"] == pytest.approx(0.1)
    assert rates[0]["lr-loss"] == pytest.approx(0.02)
    assert rates[-1]["lr-loss"] < 0.01
    from kinfold.training.loop.optimizers import build_parameter_groups

    config = configure(recipe(loss={"name": "proxy-anchor"}, optimizer={"weight_decay": 0.5}))
    groups = build_parameter_groups(torch.nn.Linear(2, 2), components.build_objective(config, 3), config.optimizer)
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]


@pytest.mark.parametrize(
    ("changes", "tables"),
    [
        (["training.precision=bfloat16"], {}),
        (["training.precision=float64"], {}),
        (["training.micro_batch=7"], {}),
        ([], {"memory": {"size": 50, "start": 3}, "miner": {"name": "semihard"}, "loss": {"name": "triplet"}}),
        ([], {"mixup": {"alpha": 2.0}}),
        (["optimizer.clip=0.1", "optimizer.name=rmsprop"], {}),
        (["model.head=mlp", "model.head_options={hidden = 64, dropout = 0.2}"], {}),
        (["evaluation.diagnose=always"], {}),
    ],
)
def test_every_training_option_trains_to_the_end(changes, tables, tmp_path):
    run = train_run(tmp_path / "run", changes, **tables)
    assert run.scores["steps"] == 20
    assert run.scores["test"]["recall@1"] > 0.5
    if changes == ["evaluation.diagnose=always"]:
        evaluations = [event for event in run.events if event["event"] == "evaluation"]
        assert all(math.isfinite(event["train rho@2"]) for event in evaluations)
        assert set(run.scores["train_space"]) == {"rho@1", "rho@2", "density", "intra", "inter"}


def test_a_memory_adds_the_loss_against_earlier_batches():
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels, ids = torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(6)
    config = configure(recipe(memory={"size": 100, "start": 1, "weight": 0.5}))
    objective = components.build_objective(config, 3)
    plain = objective.loss(embeddings, labels)
    assert objective(embeddings, labels, ids, 0) == plain  # not yet
    memory_loss = objective.loss(
        embeddings,
        labels,
        ids=ids,
        ref_embeddings=torch.cat([embeddings, embeddings]).detach(),
        ref_labels=torch.cat([labels, labels]),
        ref_ids=torch.cat([ids, ids]),
    )
    torch.testing.assert_close(objective(embeddings, labels, ids, 1), plain + 0.5 * memory_loss)


def test_queries_are_evaluated_against_their_gallery(tmp_path):
    data = features()
    role = np.array(["query", "gallery"] * (len(data) // 2))
    data = create_dataset(
        "shop", data.items, data.labels.numpy(), data.split, role=np.where(data.split == "test", role, "")
    )
    run = train_run(tmp_path / "run", dataset=data)
    test = run.data("test")
    embeddings, query = run.embed(test), torch.from_numpy(test.role == "query")
    expected = kinfold.metrics.evaluate(
        embeddings[query], test.labels[query], embeddings[~query], test.labels[~query], metrics=["recall@1", "map@r"]
    )
    assert run.scores["test"] == expected


def test_data_without_test_classes_has_no_test_scores(tmp_path):
    run = train_run(tmp_path / "run", dataset=features(test=False))
    assert "test" not in run.scores
    assert run.scores["validation"]["recall@1"] > 0.5


def test_a_loss_that_is_not_finite_ends_the_run_with_the_last_good_weights(tmp_path):
    x = np.full((96, 12), 1e30, dtype=np.float32) * np.random.default_rng(0).normal(size=(96, 12)).astype(np.float32)
    data = create_dataset("huge", Rows(x), np.repeat(np.arange(24), 4), np.repeat("train", 96))
    run = train_run(
        tmp_path / "run",
        ["model.init=random", "evaluation.selection=last"],
        dataset=data,
        loss={"name": "n-pair"},
    )
    assert run.scores["ended"] == "the loss or the weights were not finite at step 0"
    assert all(parameter.isfinite().all() for parameter in run.model().parameters())
    assert run.events[-1]["loss"] is None


def test_weights_that_are_not_finite_end_the_run_with_the_best_earlier_weights(tmp_path):
    class Ruin(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.nan

    def ruin(event):
        if event.kind == "step" and event.step == 12:
            loss = captured["objective"].loss
            captured["objective"].compute_batch_loss = lambda embeddings, labels, ids: loss(
                Ruin.apply(embeddings), labels, ids=ids
            )

    captured = {}
    from kinfold.distributed import World
    from kinfold.training.builder import RunBuilder
    from kinfold.training.launch import finish_run
    from kinfold.training.run_folder import RunFolder

    builder = RunBuilder(configure(recipe()), features(), World())
    folder = RunFolder(tmp_path / "run")
    trainer = builder.build_trainer(folder, [ruin])
    captured["objective"] = trainer.objective
    folder.begin("", {})
    trainer.fit()
    finish_run(builder, trainer, folder)
    scores = json.loads(folder.scores.read_text())
    assert scores["ended"] == "the loss or the weights were not finite at step 13"
    assert scores["step"] <= 10
    assert scores["test"]["recall@1"] > 0.5


def test_tensorboard_gets_losses_and_scores(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train_run(tmp_path / "run", ["training.tensorboard=true"])
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/lr-head", "validation/map@r"} <= set(events.Tags()["scalars"])
    assert [entry.step for entry in events.Scalars("validation/map@r")] == [0, 10, 20]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.validation=0"], "no validation classes.*do without: --set evaluation.selection=last$"),
        (
            ["data.validation=0", "evaluation.patience=3"],
            "do without: --set evaluation.selection=last --set evaluation.patience=none$",
        ),
        (["data.validation=0.01"], "choose another data.validation"),
        (["model.backbone=conv4"], "holds rows of features, which the backbone 'conv4' does not take"),
        (["sampler.batch_size=25"], "25"),
        (["loss.k=3"], "has no option 'k'"),
        (
            ["loss.name=triplet", "optimizer.loss_lr=0.1"],
            "optimizer.loss_lr=0.1 is for parameters of the loss, and this loss has none to train; leave it out",
        ),
        (["loss.name=margin", "loss.marginn=3"], "did you mean 'margin'"),
        (["loss.name=proxy-nca", "memory.size=9"], "cannot use a memory of samples: leave the memory out"),
        (["loss.name=proxy-nca", "miner.name=hard"], "there is nothing to mine"),
        (["mixup.layers=['block1']"], "it can mix at input"),
        (["evaluation.metrics=['map@r', 'recal@1']"], "recall@"),
    ],
)
def test_an_invalid_configuration_is_refused_before_anything_is_written(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train_run(tmp_path / "run", changes)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_files_is_never_overwritten(tmp_path):
    run = train_run(tmp_path / "run")
    before = (run.folder / "scores.json").read_bytes()
    with pytest.raises(ValueError, match="is not empty: continue it with --resume"):
        train_run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty: choose another folder"):
        train_run(tmp_path / "other")
    assert (run.folder / "scores.json").read_bytes() == before
    assert kinfold.train(None, run.folder, resume=True, dataset=features()).scores == run.scores
    with pytest.raises(ValueError, match="keeps its own configuration"):
        kinfold.train(recipe(), run.folder, resume=True)
    with pytest.raises(ValueError, match="is not the folder of a run"):
        Run.open(tmp_path / "other")


def test_training_does_not_change_the_global_random_state(tmp_path):
    torch.manual_seed(3)
    np.random.seed(3)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    train_run(
        tmp_path / "run",
        ["model.head=mlp", "model.head_options={dropout = 0.5}"],
        loss={"name": "triplet"},
        miner={"name": "random"},
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()
