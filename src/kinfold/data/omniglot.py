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
    """The official split: 964 background characters train, 659 evaluation characters test; alphabets are coarse.

    `check` compares the counts with the official ones.
    """
    folder = SOURCE.find_folder(root, "omniglot/python", list(PARTS))
    paths = [f"{part}/{path}" for part in PARTS for path in list_images(folder / part)]
    strange = next((path for path in paths if path.count("/") != 3), None)
    if strange:
        raise ValueError(
            f"omniglot: {strange} does not lie in <part>/<alphabet>/<character>/. " + SOURCE.explain_download(folder)
        )
    places = [path.split("/") for path in paths]
    dataset = create_dataset(
        "omniglot",
        ImageFiles(folder, paths),
        labels=[f"{alphabet}/{character}" for _, alphabet, character, _ in places],
        split=[PARTS[part] for part, _, _, _ in places],
        coarse=[alphabet for _, alphabet, _, _ in places],
    )
    return SOURCE.check_complete(dataset, COUNTS) if check else dataset
