"""Folders, tables and feature files of one's own."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from kinfold.data import Batches, ImageError, ImageFiles, Rows, Warp
from kinfold.data.feature_file import features
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.image_folder import folder
from kinfold.data.image_table import table
from kinfold.data.images import decode

from .trees import picture, write_lines


def test_a_folder_has_a_class_for_each_sub_folder(tmp_path):
    for index, path in enumerate(("wren/1.jpg", "wren/deeper/2.PNG", "robin/1.jpg", "robin/.hidden.jpg")):
        picture(tmp_path / path, index)
    write_lines(tmp_path / "wren" / "notes.txt", "not an image")
    dataset = folder(tmp_path, split="test")
    assert dataset.classes == ("robin", "wren")
    assert dataset.labels.tolist() == [0, 1, 1]
    assert set(dataset.split) == {"test"}


def test_a_folder_of_splits_is_recognized(tmp_path):
    for index, path in enumerate(("train/wren/1.jpg", "test/robin/1.jpg", "validation/jay/1.jpg")):
        picture(tmp_path / path, index)
    dataset = folder(tmp_path)
    assert {split: dataset.subset(split).classes for split in ("train", "test", "validation")} == {
        "train": ("wren",),
        "test": ("robin",),
        "validation": ("jay",),
    }
    picture(tmp_path / "crow/1.jpg")
    with pytest.raises(ValueError, match="mixes folders of splits"):
        folder(tmp_path)


def test_a_folder_that_links_to_itself_is_read_once(tmp_path):
    picture(tmp_path / "wren/1.jpg")
    (tmp_path / "wren" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(folder(tmp_path)) == 1


def test_folders_without_images_or_classes_are_explained(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no images; put them into one sub-folder for each class"):
        folder(tmp_path)
    picture(tmp_path / "1.jpg")
    with pytest.raises(ValueError, match="lies in no sub-folder"):
        folder(tmp_path)


def test_a_table_has_all_its_columns(tmp_path):
    picture(tmp_path / "a.png", 1)
    picture(tmp_path / "b.png", 2)
    lines = ["a.png,wren,train,,2 1 8 6,bird", "", "b.png,fox,test,query,,mammal"]
    write_lines(tmp_path / "items.csv", "path,label,split,role,box,coarse", *lines)
    dataset = table(tmp_path / "items.csv")
    assert dataset.classes == ("fox", "wren")
    assert dataset.role is not None
    assert dataset.role.tolist() == ["", "query"]
    assert dataset.coarse_classes == ("bird", "mammal")
    assert decode(dataset.items[0]).size == (6, 5)
    assert decode(dataset.items[1]).size == (12, 8)
    assert str(dataset.items[1]).startswith("items.csv row 4:")


def test_a_table_may_name_its_columns_differently_and_keep_images_elsewhere(tmp_path):
    picture(tmp_path / "pictures" / "a.png")
    write_lines(tmp_path / "items.csv", "file,species", "a.png,7")
    columns = {"path": "file", "label": "species"}
    dataset = table(tmp_path / "items.csv", images=tmp_path / "pictures", columns=columns, split="test")
    assert dataset.classes == ("7",)
    assert dataset.split.tolist() == ["test"]
    decode(dataset.items[0])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["path,lable", "a.png,x"], r"no column 'label' \(did you mean 'lable'"),
        (["path,label", "a.png,x", "b.png"], "row 3 has 1 fields but the header 2"),
        (["path,label", "a.png,"], "row 2: label is empty"),
        (["path,label", ",x"], "row 2: path is empty"),
        (["path,label"], "has a header but no rows"),
        ([""], "is empty; its first line must name the columns"),
        (["path,label,split", "a.png,x,trian"], r"unknown split 'trian' \(did you mean 'train'"),
        (["path,label,role", "a.png,x,asker"], "unknown role 'asker'"),
        (["path,label,box", "a.png,x,1 2 3"], r"row 2: the box '1 2 3' must be four numbers"),
        (["path,label,box", "a.png,x,5 2 3 9"], r"row 2: the box '5 2 3 9' must be four numbers"),
    ],
)
def test_an_error_in_a_table_is_reported_with_its_row(tmp_path, lines, message):
    write_lines(tmp_path / "items.csv", *lines)
    with pytest.raises(ValueError, match=message):
        table(tmp_path / "items.csv")


def test_unknown_columns_endings_and_files_are_explained(tmp_path):
    write_lines(tmp_path / "items.csv", "path,label", "a.png,x")
    with pytest.raises(ValueError, match=r"unknown column 'lable' \(did you mean 'label'"):
        table(tmp_path / "items.csv", columns={"lable": "x"})
    with pytest.raises(ValueError, match="has no column 'kind'"):
        table(tmp_path / "items.csv", columns={"coarse": "kind"})
    write_lines(tmp_path / "items.xls", "nothing")
    with pytest.raises(ValueError, match=r"unknown kind of file '.xls'"):
        table(tmp_path / "items.xls")
    with pytest.raises(ValueError, match="there is no file"):
        table(tmp_path / "nothing.csv")
    (tmp_path / "bytes.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(ValueError, match="is not text in UTF-8"):
        table(tmp_path / "bytes.csv")


def test_parquet_says_that_it_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    write_lines(tmp_path / "items.parquet", "PAR1")
    with pytest.raises(ImportError, match=r'needs pyarrow: pip install "kinfold\[parquet\]"'):
        table(tmp_path / "items.parquet")


def test_parquet_tables_and_features(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"path": ["a.png", "b.png"], "label": [3, 1], "split": ["train", "test"], "box": [[2, 1, 8, 6], None]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "items.parquet")
    dataset = table(tmp_path / "items.parquet")
    assert dataset.labels.tolist() == [1, 0]
    assert dataset.items[0].box == (2, 1, 8, 6)
    assert dataset.items[1].box is None
    parquet.write_table(pyarrow.table({"embedding": [[1.0, 2.0], [3.0, 4.0]], "label": ["x", "y"]}), tmp_path / "f.pq")
    assert features(tmp_path / "f.pq").items[1].tolist() == [3.0, 4.0]
    ragged = {"embedding": [[1.0, 2.0], [3.0]], "label": ["x", "y"]}
    parquet.write_table(pyarrow.table(ragged), tmp_path / "ragged.parquet")
    with pytest.raises(ValueError, match=r"must be numbers of shape \(N, d\)"):
        features(tmp_path / "ragged.parquet")
    nameless = {"embedding": [[1.0], [3.0]], "label": ["x", None]}
    parquet.write_table(pyarrow.table(nameless), tmp_path / "nameless.parquet")
    with pytest.raises(ValueError, match="row 2: the label is empty"):
        features(tmp_path / "nameless.parquet")
    write_lines(tmp_path / "cut.parquet", "PAR1")
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        table(tmp_path / "cut.parquet")


def encoded(color):
    file = io.BytesIO()
    Image.new("RGB", (12, 8), color).save(file, "PNG")
    return file.getvalue()


def hugging_face_file(path, **more):
    """A Parquet file as Hugging Face's library writes one: structs of bytes and path, numbered classes with names."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    images = [{"bytes": encoded(color), "path": f"{color}.png"} for color in ("red", "green", "blue", "gray")]
    about = {"info": {"features": {"label": {"names": ["wren", "jay"], "_type": "ClassLabel"}}}}
    table = pyarrow.table({"image": images, "label": [1, 0, 0, 1], **more})
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(about)}), path, row_group_size=2)
    return path


def test_images_inside_a_parquet_file_are_read_as_images(tmp_path):
    path = hugging_face_file(tmp_path / "train.parquet", box=[None, [2, 1, 8, 6], None, None])
    dataset = table(path, split="test")
    assert dataset.classes == ("jay", "wren")
    assert [dataset.classes[label] for label in dataset.labels] == ["jay", "wren", "wren", "jay"]
    assert decode(dataset.items[0]).getpixel((0, 0)) == (255, 0, 0)
    assert decode(dataset.items[1]).size == (6, 5)
    part = dataset.where(dataset.labels == 1)
    assert decode(part.items[1]).getpixel((0, 0)) == (0, 0, 255)
    assert next(iter(Batches(part, Warp(4)))).images.shape == (2, 3, 4, 4)
    assert next(iter(Batches(part, Warp(4), workers=1))).images.shape == (2, 3, 4, 4)
    assert compute_fingerprint(part) != compute_fingerprint(dataset)
    with pytest.raises(ValueError, match="holds the images itself, in 'image': leave images= out"):
        table(path, images=tmp_path)


def test_a_column_of_bytes_is_a_column_of_images_under_any_name(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"photo": [encoded("red"), b"broken"], "label": ["a", "b"], "more": [{"x": 1}, {"x": 2}]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "items.parquet")
    with pytest.raises(ValueError, match=r"no column 'path'.* it has label, more, photo.*columns={'image'"):
        table(tmp_path / "items.parquet")
    dataset = table(tmp_path / "items.parquet", columns={"image": "photo"})
    assert decode(dataset.items[0]).size == (12, 8)
    with pytest.raises(ImageError, match=r"items.parquet row 2: the image is not an image in one of the formats"):
        decode(dataset.items[1])
    with pytest.raises(ValueError, match="'label' holds no bytes of images; columns that do: photo"):
        table(tmp_path / "items.parquet", columns={"image": "label"})
    with pytest.raises(ValueError, match="'more' holds Python objects or nested values"):
        table(tmp_path / "items.parquet", columns={"image": "photo", "coarse": "more"})
    with pytest.raises(ValueError, match="'photo' holds the bytes of images, not numbers or text"):
        features(tmp_path / "items.parquet", columns={"embedding": "photo"})


def test_structs_without_bytes_are_paths_and_a_mixture_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    picture(tmp_path / "a.png", 1)
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    path_only, bytes_only = {"bytes": None, "path": "a.png"}, {"bytes": encoded("red"), "path": None}
    for name, cells in (
        ("paths", [path_only, path_only]),
        ("mixed", [bytes_only, path_only]),
        ("empty", [bytes_only, None]),
    ):
        rows = {"image": pyarrow.array(cells, kind), "label": ["a", "b"]}
        parquet.write_table(pyarrow.table(rows), tmp_path / f"{name}.parquet")
    assert decode(table(tmp_path / "paths.parquet").items[1]).size == (12, 8)
    for name in ("mixed", "empty"):
        with pytest.raises(ValueError, match=rf"{name}.parquet row 2: image has no bytes"):
            table(tmp_path / f"{name}.parquet")


@pytest.mark.parametrize("note", ["[" * 100_000, "{}", '{"info": 3}', "not JSON"])
def test_unreadable_metadata_about_class_names_is_ignored(tmp_path, note):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = pyarrow.table({"path": ["a.png"], "label": [0]}).replace_schema_metadata({"huggingface": note})
    parquet.write_table(rows, tmp_path / "items.parquet")
    assert table(tmp_path / "items.parquet").classes == ("0",)


def test_two_columns_of_one_name_are_refused(tmp_path):
    write_lines(tmp_path / "items.csv", "path,label, label", "a.png,x,y")
    with pytest.raises(
        ValueError, match=r"items.csv has two columns 'label', at positions 2 and 3; rename or remove one"
    ):
        table(tmp_path / "items.csv")
    write_lines(tmp_path / "blank.csv", "path,label,,", "a.png,x,,")
    assert table(tmp_path / "blank.csv").classes == ("x",)


def test_features_of_an_npz_with_usual_names(tmp_path):
    arrays = {"feat": np.eye(3, dtype=np.float16), "cls": [7, 5, 7], "split": ["train", "test", "train"]}
    np.savez(tmp_path / "f.npz", **arrays)
    dataset = features(tmp_path / "f.npz")
    assert dataset.classes == ("5", "7")
    rows = dataset.subset("train").items
    assert isinstance(rows, Rows)
    assert rows.array().tolist() == [[1, 0, 0], [0, 0, 1]]


def test_features_with_custom_names(tmp_path):
    np.savez(tmp_path / "f.npz", clip=np.eye(2), kind=["a", "b"], family=["x", "x"], side=["query", "gallery"])
    columns = {"embedding": "clip", "label": "kind", "coarse": "family", "role": "side"}
    dataset = features(tmp_path / "f.npz", columns=columns, split="test")
    assert dataset.coarse_classes == ("x",)
    assert dataset.role is not None
    assert dataset.role.tolist() == ["query", "gallery"]
    with pytest.raises(ValueError, match=r"no column 'embeddings'.*columns="):
        features(tmp_path / "f.npz")


def test_features_of_an_npy_stay_on_disk(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(8.0).reshape(4, 2))
    np.save(tmp_path / "y.npy", np.array(["b", "a", "b", "a"]))
    dataset = features(tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert isinstance(dataset.items, Rows)
    assert isinstance(dataset.items.array(), np.memmap)
    selected = dataset.where(dataset.labels == 0)
    assert selected.items[1].tolist() == [6.0, 7.0]
    assert isinstance(selected.items[1], np.memmap)
    write_lines(tmp_path / "y.csv", "label,split", "b,train", "a,test", "b,train", "a,test")
    assert len(features(tmp_path / "x.npy", labels=tmp_path / "y.csv").subset("test")) == 2


def test_errors_in_feature_files_are_explained(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))
    with pytest.raises(ValueError, match="give the file of their labels"):
        features(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"2 embeddings but labels of shape \(3,\)"):
        features(tmp_path / "x.npy", labels=tmp_path / "y.npy")
    np.savez(tmp_path / "flat.npz", x=np.zeros(2), y=np.zeros(2))
    with pytest.raises(ValueError, match=r"must be numbers of shape \(N, d\)"):
        features(tmp_path / "flat.npz")
    with pytest.raises(ValueError, match="holds its labels itself"):
        features(tmp_path / "flat.npz", labels=tmp_path / "y.npy")
    np.savez(tmp_path / "nan.npz", x=np.array([[0.0], [np.nan]]), y=[0, 1])
    with pytest.raises(ValueError, match=r"row 1 \(counted from 0\) of the embeddings in .* holds NaN"):
        features(tmp_path / "nan.npz")
    write_lines(tmp_path / "no.npz", "not a zip")
    with pytest.raises(ValueError, match=r"not an .npz file"):
        features(tmp_path / "no.npz")


def test_python_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "f.npz", x=np.zeros((1, 1)), y=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="plain numbers and text"):
        features(tmp_path / "f.npz")
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="plain numbers or text"):
        features(tmp_path / "x.npy", labels=tmp_path / "x.npy")


def test_features_keep_the_pictures_of_their_column_path(tmp_path):
    columns = {"embeddings": np.eye(4), "labels": ["a", "a", "b", "b"], "split": ["train", "test"] * 2}
    np.savez(tmp_path / "rows.npz", **columns, path=["a/0.png", "a/1.png", "b/0.png", "b/1.png"])
    (tmp_path / "photos").mkdir()
    data = features(tmp_path / "rows.npz", images=tmp_path / "photos")
    rows = data.subset("test").items
    assert isinstance(rows, Rows)
    pictures = rows.take(np.array([1])).pictures
    assert pictures is not None
    assert pictures.paths.tolist() == ["b/1.png"]
    assert pictures[0].path == tmp_path / "photos" / "b" / "1.png"
    assert getattr(features(tmp_path / "rows.npz").items, "pictures", "") is None
    assert compute_fingerprint(data) == compute_fingerprint(features(tmp_path / "rows.npz"))
    with pytest.raises(ValueError, match="is no folder"):
        features(tmp_path / "rows.npz", images=tmp_path / "nowhere")
    np.savez(tmp_path / "rows.npz", **columns)
    with pytest.raises(ValueError, match="path"):
        features(tmp_path / "rows.npz", images=tmp_path / "photos")
    with pytest.raises(ValueError, match="4 rows but 2 pictures"):
        Rows(np.eye(4), pictures=ImageFiles(tmp_path, ["a", "b"]))
