"""A small folder of photos for the recipe `images`: 40 classes of CUB-200-2011 at a short side of 96 pixels.

    python -m benchmarks.cub_photos CUB.tar FOLDER

The archive holds one folder for each class, as in images.tgz of CUB-200-2011 with every photo made smaller. Of its
first 40 classes 20 train, 10 validate and 10 test, with the first 20 photos of each.
"""

import argparse
import shutil
import tarfile
from pathlib import Path, PurePosixPath

SPLITS = {"train": range(20), "validation": range(20, 30), "test": range(30, 40)}
PHOTOS = 20  # of each class


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    with tarfile.open(options.archive) as archive:
        members = {PurePosixPath(member.name): member for member in archive if member.isfile()}
        classes = sorted({path.parent.name for path in members})
        for split, chosen in SPLITS.items():
            for name in (classes[number] for number in chosen):
                for path in sorted(path for path in members if path.parent.name == name)[:PHOTOS]:
                    target = options.folder / split / name / path.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source = archive.extractfile(members[path])
                    assert source is not None  # it is a file
                    with source, target.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
    print(options.folder)


if __name__ == "__main__":
    main()
