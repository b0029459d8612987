"""A dataset that Hugging Face's library saved with `save_to_disk`."""

from collections.abc import Mapping
from pathlib import Path

from kinfold.data.dataset import Dataset
from kinfold.data.labeled import convert
from kinfold.optional import import_optional


def hugging_face(root: Path | str, columns: Mapping[str, str] | None = None, split: str = "train") -> Dataset:
    """Read a folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote. Needs the package datasets.

    Images stay in the Arrow files, and are read when they are used.

    Args:
        root: The folder.
        columns: Columns with another name, as in {"label": "species"}. A single image column and a single column of
            class labels need none.
        split: Split of all rows, if the folder has no splits and no column split.

    Returns:
        A dataset of images or of rows of features.

    Raises:
        ValueError: It is not such a folder, or a column is missing.
        ImportError: datasets is not installed.
    """
    root = Path(root)
    library = import_optional("datasets", "datasets", "datasets", f"reading {root}")
    try:
        content = library.load_from_disk(str(root))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{root} is not a folder of Dataset.save_to_disk: {error}") from None
    return convert(content, columns=columns, split=split)
