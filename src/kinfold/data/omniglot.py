"""Omniglot: 1,623 handwritten characters of 50 alphabets, 20 drawings each (Lake et al., Science 2015)."""

from pathlib import Path

from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.dataset_source import DatasetSource
from kinfold.data.image_folder import list_images
from kinfold.data.items import ImageFiles

SOURCE = DatasetSource(
    name="omniglot",
    home="https://github.com/brendenlake/omniglot",
    archives="python/images_background.zip and python/images_evaluation.zip",
    tree="""\
  images_background/Alphabet_of_the_Magi/character01/0709_01.png ...
  images_evaluation/Angelic/character01/0965_01.png ...""",
)
COUNTS = {"train": (19280, 964), "test": (13180, 659)}
PARTS = {"images_background": "train", "images_evaluation": "test"}


def omniglot(root: Path | str, check: bool = True) -> Dataset:
    """Read Omniglot: 964 background characters train, 659 evaluation characters test, the official split.

    Coarse labels are the alphabets.

    Args:
        root: Folder that holds images_background and images_evaluation, or a clone of the official repository.
        check: Compare the counts with the official ones, and look for every file.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: Files are missing, or the copy is incomplete; the message says what to download.
    """
    folder = SOURCE.find_folder(root, "omniglot/python", list(PARTS))
    paths = [f"{part}/{path}" for part in PARTS for path in list_images(folder / part)]
    misplaced = next((path for path in paths if path.count("/") != 3), None)
    if misplaced:
        raise ValueError(
            f"omniglot: {misplaced} does not lie in <part>/<alphabet>/<character>/. " + SOURCE.explain_download(folder)
        )
    parts = [path.split("/") for path in paths]
    dataset = create_dataset(
        "omniglot",
        ImageFiles(folder, paths),
        labels=[f"{alphabet}/{character}" for _, alphabet, character, _ in parts],
        split=[PARTS[part] for part, _, _, _ in parts],
        coarse=[alphabet for _, alphabet, _, _ in parts],
    )
    return SOURCE.check_complete(dataset, COUNTS) if check else dataset
