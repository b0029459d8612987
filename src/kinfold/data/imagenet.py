"""ImageNet (ILSVRC 2012) split by classes: the first 500 of the 1,000 classes train, the others test."""

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
    """Read ImageNet with the classes in the order of their WordNet ids: the first half train, the second half test.

    The official parts train and val hold the same classes, so one part is read and its classes are split.

    Args:
        root: Folder that holds train or val, or a folder that holds it as ILSVRC2012.
        images: The official part to read: "train" (1,281,167 photos) or "val" (50,000, for quick experiments).
        check: Compare the counts with the official ones, and look for every file.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: Files are missing, or the copy is incomplete; the message says what to download.
    """
    if images not in COUNTS:
        raise ValueError(f"images must be 'train' or 'val', got {images!r}")
    folder = SOURCE.find_folder(root, "ILSVRC2012", [images]) / images
    paths = list_images(folder)
    misplaced = next((path for path in paths if path.count("/") != 1), None)
    if misplaced:
        raise ValueError(
            f"imagenet: {folder / misplaced} does not lie in a folder of its class. "
            + SOURCE.explain_download(Path(root))
        )
    labels = [path.split("/")[0] for path in paths]
    classes = sorted(set(labels))
    train = set(classes[: len(classes) // 2])
    dataset = create_dataset(
        "imagenet",
        ImageFiles(folder, paths),
        labels=labels,
        split=["train" if label in train else "test" for label in labels],
        classes=classes,
    )
    return SOURCE.check_complete(dataset, {"all": COUNTS[images]}) if check else dataset
