"""Losses and metrics of kinfold in sentence-transformers and MTEB, on a tiny random model."""

import pytest
import torch

import kinfold
from kinfold.compat import ExactMetricsTask, LabelEvaluator, SentenceLabelLoss, SentencePairLoss

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # those of the libraries
]
WORDS = ["red", "green", "blue", "cat", "dog", "bird", "sings", "runs", "sleeps"]
TEXTS = [f"{color} {animal} {verb}" for animal in WORDS[3:6] for color in WORDS[:3] for verb in WORDS[6:9]]
LABELS = [index // 9 for index in range(27)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two layers of width 16 with random weights, and one token per name."""
    st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = str(tmp_path_factory.mktemp("model"))
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(folder)
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    transformer = Transformer(folder)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    return st.SentenceTransformer(modules=[transformer, pooling], device="cpu")


def embed(model, texts):
    return model.encode(texts, convert_to_tensor=True, show_progress_bar=False)


def features(model, texts):
    return model.tokenize(texts)


def test_a_label_loss_has_the_value_of_the_loss(model):
    model.eval()
    loss = SentenceLabelLoss(model, "multi-similarity")
    value = loss([features(model, TEXTS)], torch.tensor(LABELS))
    expected = kinfold.losses.create("multi-similarity")(embed(model, TEXTS), LABELS)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="takes one column"):
        loss([features(model, TEXTS)] * 2, torch.tensor(LABELS))


def test_batch_all_triplets_are_those_of_the_library(model):
    from sentence_transformers import losses

    cosine = losses.BatchHardTripletLossDistanceFunction.cosine_distance
    x, y = torch.nn.functional.normalize(torch.randn(18, 8, dtype=torch.float64)), torch.arange(18) // 3
    peer = losses.BatchAllTripletLoss(model, distance_metric=cosine, margin=0.2)
    # squared distances of unit vectors are twice the cosine distance
    ours = SentenceLabelLoss(model, kinfold.losses.create("triplet", margin=0.4, squared=True, average="active"))
    expected = peer.compute_loss_from_embeddings([x], y)
    torch.testing.assert_close(ours.compute_loss_from_embeddings([x], y) / 2, expected, rtol=1e-6, atol=1e-9)


def test_pairs_have_the_value_of_multiple_negatives_ranking(model):
    from sentence_transformers import losses

    peer = losses.MultipleNegativesRankingLoss(model, scale=20.0)
    ours = SentencePairLoss(model, kinfold.losses.create("nt-xent", temperature=1 / 20))
    columns = [torch.randn(7, 16, dtype=torch.float64) for _ in range(3)]
    for count in (2, 3):  # with and without a column of negatives
        expected = peer.compute_loss_from_embeddings(columns[:count], None)
        torch.testing.assert_close(ours.compute_loss_from_embeddings(columns[:count]), expected, rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="have no classes"):
        SentencePairLoss(model, kinfold.losses.create("proxy-anchor", num_classes=2, dim=16))
    with pytest.raises(ValueError, match="two columns or more"):
        ours([features(model, TEXTS)])


def test_the_evaluator_returns_exact_metrics(model):
    model.eval()
    evaluator = LabelEvaluator(TEXTS, LABELS, metrics=["recall@1", "map@r"], name="animals")
    results = evaluator(model)
    expected = kinfold.metrics.evaluate(embed(model, TEXTS), LABELS, metrics=["recall@1", "map@r"])
    assert results == {f"animals_{key}": pytest.approx(value, abs=1e-9) for key, value in expected.items()}
    assert evaluator.primary_metric == "animals_map@r"
    halves = LabelEvaluator(TEXTS[::2], LABELS[::2], TEXTS[1::2], LABELS[1::2], metrics=["recall@1"])(model)
    x = embed(model, TEXTS)
    gallery = kinfold.metrics.evaluate(
        x[::2], LABELS[::2], gallery=x[1::2], gallery_labels=LABELS[1::2], metrics=["recall@1"]
    )
    assert halves["recall@1"] == pytest.approx(gallery["recall@1"])
    with pytest.raises(ValueError, match="primary_metric"):
        LabelEvaluator(TEXTS, LABELS, metrics=["recall@1"], primary_metric="map@r")
    with pytest.raises(ValueError, match="one label for each"):
        LabelEvaluator(TEXTS, LABELS[1:])


@pytest.mark.parametrize("kind", ["labels", "pairs", "proxies"])
def test_the_trainer_learns_with_a_loss_and_selects_by_the_evaluator(model, kind, tmp_path):
    import copy

    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import BatchSamplers

    student = copy.deepcopy(model)
    proxies = kinfold.losses.create("proxy-anchor", num_classes=3, dim=16)
    before = proxies.proxies.detach().clone()
    if kind == "pairs":
        data = Dataset.from_dict({"anchor": TEXTS[:-1:2], "positive": TEXTS[1::2]})
        loss = SentencePairLoss(student, "nt-xent")
    else:
        data = Dataset.from_dict({"sentence": TEXTS, "label": LABELS})
        chosen = proxies if kind == "proxies" else kinfold.losses.Mined("margin", "distance-weighted")
        loss = SentenceLabelLoss(student, chosen)
    evaluator = LabelEvaluator(TEXTS, LABELS, metrics=["recall@1", "map@r"])
    untrained = evaluator(student)["map@r"]
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path),
        num_train_epochs=4,
        per_device_train_batch_size=12,
        learning_rate=5e-3,
        batch_sampler=BatchSamplers.BATCH_SAMPLER if kind == "pairs" else BatchSamplers.GROUP_BY_LABEL,
        save_strategy="no",
        eval_strategy="epoch",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=student, args=arguments, train_dataset=data, loss=loss, evaluator=evaluator
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "eval_map@r" in entry]
    assert len(history) == 4
    if kind != "pairs":  # the pairs say nothing about classes
        assert history[-1]["eval_map@r"] > untrained
    if kind == "proxies":
        assert not torch.equal(before, proxies.proxies)


def test_the_scores_of_mteb_are_the_exact_metrics(model):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    task = ExactMetricsTask(TEXTS, LABELS, metrics=["recall@1", "map@r"], name="Animals")
    model.eval()
    result = mteb.evaluate(model, tasks=[task], cache=None, show_progress_bar=False)
    (scores,) = result.task_results[0].scores["test"]
    expected = kinfold.metrics.evaluate(embed(model, TEXTS), LABELS, metrics=["recall@1", "map@r"])
    assert scores["recall@1"] == pytest.approx(expected["recall@1"], abs=1e-9)
    assert scores["map@r"] == pytest.approx(expected["map@r"], abs=1e-9)
    assert scores["main_score"] == scores["map@r"]
    with pytest.raises(ValueError, match="one label for each"):
        ExactMetricsTask(TEXTS, LABELS[1:])


def test_a_classification_task_of_mteb_becomes_a_task_of_exact_metrics(model):
    pytest.importorskip("mteb", reason="mteb is not installed")
    from mteb.mocks.mock_tasks.classification import MockClassificationTask

    task = ExactMetricsTask.from_task(MockClassificationTask(), metrics=["recall@1"])
    task.load_data()
    assert task.metadata.name.endswith("ExactMetrics")
    assert len(task.texts) == len(task.labels) > 1
    with pytest.raises(ValueError, match="no split 'validation'"):
        ExactMetricsTask.from_task(MockClassificationTask(), split="validation")
