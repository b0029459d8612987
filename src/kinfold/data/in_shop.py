"""In-Shop Clothes Retrieval of DeepFashion: 7,982 garments, with queries and a gallery (Liu et al., CVPR 2016)."""

from pathlib import Path

from kinfold import registry
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.dataset_source import DatasetSource
from kinfold.data.items import ImageFiles

SOURCE = DatasetSource(
    name="in-shop",
    home="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
    archives="Img/img.zip, Eval/list_eval_partition.txt and (for boxes) Anno/list_bbox_inshop.txt",
    tree="""\
  Eval/list_eval_partition.txt
  Anno/list_bbox_inshop.txt  (only for boxes=True)
  Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg ...  (img/ beside Eval/ serves as well)""",
)
COUNTS = {"train": (25882, 3997), "query": (14218, 3985), "gallery": (12612, 3985)}
PARTS = {"train": ("train", ""), "query": ("test", "query"), "gallery": ("test", "gallery")}


def in_shop(root: Path | str, boxes: bool = False, check: bool = True) -> Dataset:
    """Read In-Shop: 25,882 photos train; 14,218 queries and 12,612 gallery photos test, marked by `role`.

    Coarse labels are the shop's departments, such as WOMEN/Dresses.

    Args:
        root: Folder that holds Eval, Anno and Img (or img), or a folder that holds it under its official name.
        boxes: Crop every photo to its garment.
        check: Compare the counts with those of the papers, and look for every file.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: Files are missing, or the copy is incomplete; the message says what to download.
    """
    partition = "Eval/list_eval_partition.txt"
    needed = [partition, "Anno/list_bbox_inshop.txt"] if boxes else [partition]
    folder = SOURCE.find_folder(root, "In-shop Clothes Retrieval Benchmark", needed)
    rows = SOURCE.read_rows(folder / partition, fields=3, header=2)  # image_name item_id evaluation_status
    for path, _, part in rows:
        if part not in PARTS:
            near = registry.suggest(part, PARTS)
            raise ValueError(f"in-shop: {path} has the status {part!r}{near}; it is {', '.join(PARTS)}")
    paths = [path for path, _, _ in rows]
    image_folder = folder / "Img" if (folder / "Img" / "img").is_dir() else folder
    box_array = None
    if boxes:
        listing = folder / "Anno/list_bbox_inshop.txt"
        # image_name clothes_type pose_type x_1 y_1 x_2 y_2
        box_rows = {row[0]: row[3:] for row in SOURCE.read_rows(listing, fields=7, header=2)}
        box_array = SOURCE.parse_boxes(listing, box_rows, paths)
    dataset = create_dataset(
        "in-shop",
        ImageFiles(image_folder, paths, box_array, source="list_eval_partition.txt", rows=range(3, len(rows) + 3)),
        labels=[item for _, item, _ in rows],
        split=[PARTS[part][0] for _, _, part in rows],
        coarse=["/".join(path.split("/")[1:3]) for path in paths],
        role=[PARTS[part][1] for _, _, part in rows],
    )
    return SOURCE.check_complete(dataset, COUNTS) if check else dataset
