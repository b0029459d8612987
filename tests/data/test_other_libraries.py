"""Data of other packages as their users have it: pandas, Hugging Face's datasets, WebDataset's own writer."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

import kinfold
from kinfold.data import Batches, Rows, check_images, convert, load, to_dataset
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.embedding import Encoder, embed_to_file

pytestmark = pytest.mark.integration
LABELS = ["wren", "wren", "robin", "robin"]
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 12, 3), dtype=np.uint8)
FEATURES = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)


def encode(pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def read(dataset):
    return next(iter(Batches(dataset))).images.permute(0, 2, 3, 1).numpy()


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas")


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    library = pytest.importorskip("datasets")
    library.disable_progress_bars()
    return library


def hub_images(datasets, labels=(1, 1, 0, 0)):
    data = datasets.Dataset.from_dict({"img": [encode(pixels) for pixels in PIXELS], "kind": [*labels]})
    data = data.cast_column("img", datasets.Image())
    return data.cast_column("kind", datasets.ClassLabel(names=["robin", "wren"]))


@pytest.mark.parametrize("cell", ["path", "bytes", "struct", "picture", "array"])
def test_a_data_frame_holds_images_in_any_form(pandas, tmp_path, cell):
    cells = []
    for index, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
        content = {"bytes": encode(pixels), "struct": {"bytes": encode(pixels), "path": "a"}, "array": pixels}
        cells.append({**content, "path": f"{index}.png", "picture": Image.fromarray(pixels)}[cell])
    frame = pandas.DataFrame({"path" if cell == "path" else "photo": cells, "label": pandas.Categorical(LABELS)})
    dataset = convert(frame, images=tmp_path if cell == "path" else None)
    assert dataset.classes == ("robin", "wren")
    assert np.array_equal(read(dataset), PIXELS)
    shuffled = convert(frame.iloc[[3, 0]], images=tmp_path if cell == "path" else None)
    assert np.array_equal(read(shuffled), PIXELS[[3, 0]])


def test_a_data_frame_holds_features_in_one_column_or_in_many(pandas):
    one = pandas.DataFrame({"embedding": [*FEATURES], "label": LABELS, "split": ["train", "test"] * 2})
    many = pandas.DataFrame(FEATURES).assign(label=LABELS)
    for frame in (one, many):
        dataset = convert(frame)
        assert isinstance(dataset.items, Rows)
        assert np.allclose(dataset.items.array(), FEATURES)
    assert convert(one).split.tolist() == ["train", "test"] * 2
    assert convert(pandas.DataFrame(FEATURES), pandas.Series(LABELS)).classes == ("robin", "wren")
    assert to_dataset(pandas.DataFrame(FEATURES), features=True).items[0].shape == (5,)


def test_missing_values_of_a_data_frame_are_named(pandas):
    frame = pandas.DataFrame({"path": ["a.png", "b.png"], "label": ["wren", None]})
    with pytest.raises(ValueError, match="the data frame row 2: label is empty"):
        convert(frame)
    with pytest.raises(ValueError, match="two columns 'a'"):
        convert(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_dataset_of_hugging_face_is_read_item_by_item(datasets, tmp_path):
    data = hub_images(datasets)
    dataset = convert(data)
    assert dataset.classes == ("robin", "wren")
    assert dataset.labels.tolist() == [1, 1, 0, 0]
    assert np.array_equal(read(dataset), PIXELS)
    assert np.array_equal(read(convert(data.select([2, 0]))), PIXELS[[2, 0]])
    same = compute_fingerprint(dataset)
    assert compute_fingerprint(convert(hub_images(datasets))) == same
    assert compute_fingerprint(convert(hub_images(datasets, (0, 1, 0, 0)))) != same
    data.save_to_disk(tmp_path / "saved")
    assert np.array_equal(read(load("hugging-face", tmp_path / "saved")), PIXELS)
    assert convert(tmp_path / "saved").classes == ("robin", "wren")
    with pytest.raises(ValueError, match=r"is not a folder of Dataset.save_to_disk"):
        load("hugging-face", tmp_path)


def test_splits_of_hugging_face_are_the_splits(datasets):
    data = hub_images(datasets)
    both = datasets.DatasetDict({"train": data.select([0, 1]), "test": data.select([2, 3])})
    dataset = convert(both)
    assert dataset.split.tolist() == ["train", "train", "test", "test"]
    assert np.array_equal(read(dataset.subset("test")), PIXELS[2:])
    assert len(to_dataset(both, features=False)) == 4
    with pytest.raises(ValueError, match="unknown split 'all'"):
        convert(datasets.DatasetDict({"all": data}))
    with pytest.raises(ValueError, match="a stream of Hugging Face has no length"):
        convert(data.to_iterable_dataset())


def test_features_of_hugging_face_train_a_run(datasets, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 8)
    rows = rng.normal(size=(8, 6))[labels] + 0.3 * rng.normal(size=(64, 6))
    data = datasets.Dataset.from_dict({"embedding": rows.tolist(), "label": [*map(str, labels)]})
    tables = {"model": {"dim": 4}, "sampler": {"name": "spc", "batch_size": 16, "per_class": 4}}
    run = kinfold.train({**tables, "training": {"steps": 4}}, tmp_path / "run", dataset=data)
    assert run.config.data.name == "passed"
    assert run.embed(data).shape == (64, 4)
    with pytest.raises(ValueError, match="passed in Python and is not stored"):
        kinfold.Run.open(tmp_path / "run").splits()
    assert len(kinfold.Run.open(tmp_path / "run", data).splits()["train"]) == 48


def test_shards_of_webdataset_itself_are_read(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    pattern = str(tmp_path / "birds-%02d.tar")
    with webdataset.ShardWriter(pattern, maxcount=2, verbose=0) as writer:
        for index, pixels in enumerate(PIXELS):
            about = {"species": LABELS[index]}
            writer.write({"__key__": f"{index:04}", "png": Image.fromarray(pixels), "cls": index // 2, "json": about})
    dataset = load("webdataset", tmp_path / "birds-{00..01}.tar", columns={"label": "json.species"})
    assert dataset.classes == ("robin", "wren")
    assert np.array_equal(read(dataset), PIXELS)
    assert load("webdataset", tmp_path).labels.tolist() == [0, 0, 1, 1]
    with webdataset.TarWriter(str(tmp_path / "evil.tar")) as writer:
        writer.write({"__key__": "0", "png": Image.fromarray(PIXELS[0]), "pyd": {"a": 1}})
    with pytest.raises(ValueError, match=r"'0.pyd' is a pickle"):
        load("webdataset", tmp_path / "evil.tar")
    with pytest.raises(ValueError, match="A stream, such as an IterableDataset"):
        convert(webdataset.WebDataset(str(tmp_path / "birds-00.tar"), shardshuffle=False))


@pytest.mark.parametrize("kind", ["pandas", "hugging face", "webdataset"])
def test_adapt_embed_and_the_check_of_images_take_them(kind, tmp_path, request):
    if kind == "pandas":
        data = request.getfixturevalue("pandas").DataFrame({"photo": [*map(encode, PIXELS)], "label": LABELS})
    elif kind == "hugging face":
        data = hub_images(request.getfixturevalue("datasets"))
    else:
        webdataset, data = pytest.importorskip("webdataset"), tmp_path / "birds.tar"
        with webdataset.TarWriter(str(data)) as writer:
            for index, pixels in enumerate(PIXELS):
                writer.write({"__key__": f"{index:04}", "png": Image.fromarray(pixels), "cls": index // 2})
    checked = check_images(convert(data))
    assert not checked.broken
    adaptation = kinfold.adapt(data, folder=tmp_path / "run", backbone="conv4")
    assert "2 training classes are too few" in adaptation.verdict
    embeddings = adaptation.embed(convert(data))  # a path itself would be that of one image
    assert len(embeddings) == 4
    assert embed_to_file(data, tmp_path / "four.npz", Encoder.from_run(adaptation.run)) == {}
    written = load("features", tmp_path / "four.npz").items
    assert isinstance(written, Rows)
    torch.testing.assert_close(torch.nn.functional.normalize(torch.from_numpy(written.array())), embeddings)
