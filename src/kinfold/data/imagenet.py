"""ImageNet (ILSVRC 2012) split by classes: the first 500 of the 1,000 train, the others test."""

from pathlib import Path
from typing import Literal

from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.dataset_source import DatasetSource
from kinfold.data.image_folder import list_images
from kinfold.data.items import ImageFiles

SOURCE = DatasetSource(
    name="imagenet",
    home="https://image-net.org/challenges/LSVRC/2012/ (after registration)",
    archives="ILSVRC2012_img_train.tar (one inner tar per class) or ILSVRC2012_img_val.tar (sorted into classes)",
    tree="""\
  train/n01440764/n01440764_18.JPEG ...  (1,000 folders)
  val/n01440764/ILSVRC2012_val_00000293.JPEG ...  (for images="val")""",
)
COUNTS = {"train": (1_281_167, 1000), "val": (50_000, 1000)}


def imagenet(root: Path | str, images: Literal["train", "val"] = "train", check: bool = True) -> Dataset:
    """Classes in the order of their WordNet ids: the first half train, the second half test.

    `images` says which of the official folders to take: train (1,281,167 photos) or val (50,000, for quick work). The
    official parts hold the same classes, so it is the classes that are split here. `check` compares the counts with
    the official ones.
    """
    if images not in COUNTS:
        raise ValueError(f"images must be 'train' or 'val', got {images!r}")
    folder = SOURCE.find_folder(root, "ILSVRC2012", [images]) / images
    paths = list_images(folder)
    strange = next((path for path in paths if path.count("/") != 1), None)
    if strange:
        raise ValueError(
            f"imagenet: {folder / strange} does not lie in a folder of its class. "
            + SOURCE.explain_download(Path(root))
        )
    words = [path.split("/")[0] for path in paths]
    classes = sorted(set(words))
    train = set(classes[: len(classes) // 2])
    dataset = create_dataset(
        "imagenet",
        ImageFiles(folder, paths),
        labels=words,
        split=["train" if word in train else "test" for word in words],
        classes=classes,
    )
    return SOURCE.check_complete(dataset, {"all": COUNTS[images]}) if check else dataset
