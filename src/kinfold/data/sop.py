"""Stanford Online Products: 22,634 products of 12 kinds in photos of their sellers (Oh Song et al., CVPR 2016)."""

from pathlib import Path

from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.dataset_source import DatasetSource
from kinfold.data.items import ImageFiles

SOURCE = DatasetSource(
    name="sop",
    home="https://cvgl.stanford.edu/projects/lifted_struct/",
    archives="Stanford_Online_Products.zip",
    tree="""\
  Stanford_Online_Products/
    Ebay_train.txt  Ebay_test.txt
    bicycle_final/111085122871_0.JPG ...  (and eleven more folders)""",
)
COUNTS = {"train": (59551, 11318), "test": (60502, 11316)}
SUPER_CATEGORIES = 12


def sop(root: Path | str, check: bool = True) -> Dataset:
    """Read Stanford Online Products: 59,551 photos of 11,318 products train, 60,502 of 11,316 test, the official split.

    Coarse labels are the 12 kinds of products. The lists may also be in `Info_Files`, and the photos in `images`.

    Args:
        root: The folder Stanford_Online_Products, or a folder that holds it.
        check: Compare the counts with those of the papers, and look for every file.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: Files are missing, or the copy is incomplete; the message says what to download.
    """
    folder, lists = _find_lists(Path(root))
    images = folder / "images" if (folder / "images").is_dir() else folder
    paths: list[str] = []
    products: list[int] = []
    split: list[str] = []
    numbers: list[int] = []
    for part in ("train", "test"):
        listing = lists / f"Ebay_{part}.txt"
        rows = SOURCE.read_rows(listing, fields=4, header=1)  # image_id class_id super_class_id path
        numbers += SOURCE.parse_integers(listing, [row[0] for row in rows])
        products += SOURCE.parse_integers(listing, [row[1] for row in rows])
        paths += [row[3] for row in rows]
        split += [part] * len(rows)
    dataset = create_dataset(
        "sop",
        ImageFiles(images, paths, source="Ebay_train.txt and Ebay_test.txt, image_id", rows=numbers),
        labels=products,
        split=split,
        # bicycle_final/...: the folder names the kind
        coarse=[path.split("/")[0].removesuffix("_final") for path in paths],
    )
    if check:
        SOURCE.check_complete(dataset, COUNTS)
        kinds = len(dataset.coarse_classes or ())
        if kinds != SUPER_CATEGORIES:
            raise ValueError(
                f"sop: expected {SUPER_CATEGORIES} super-categories, found {kinds}; check=False ignores it"
            )
    return dataset


def _find_lists(root: Path) -> tuple[Path, Path]:
    """The folder of the dataset, and the one with its lists."""
    for folder in (root, root / "Stanford_Online_Products"):
        if (folder / "Info_Files" / "Ebay_train.txt").is_file() and (folder / "Info_Files" / "Ebay_test.txt").is_file():
            return folder, folder / "Info_Files"
    folder = SOURCE.find_folder(root, "Stanford_Online_Products", ["Ebay_train.txt", "Ebay_test.txt"])
    return folder, folder
