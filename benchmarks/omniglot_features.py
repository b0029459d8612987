"""Features of Omniglot by a network that never saw a drawing: EfficientNet-lite0 with ImageNet weights, frozen.

    python -m benchmarks.omniglot_features FOLDER OUT.npz

FOLDER holds images_background and images_evaluation. Of the 20 drawings of each character the first 8 are taken, at
64 x 64 pixels: a minute or two on one core. `kinfold embed omniglot --backbone efficientnet-lite0 --weights imagenet`
takes all of them at 224 pixels, with thirty times the work. The 964 background characters are the split "train", the
659 others "test".
"""

import argparse
from pathlib import Path

import numpy as np

import kinfold
from kinfold.data import Dataset, Pipeline, Warp, create_pipeline
from kinfold.embedding import Encoder, embed_to_file

SIZE, DRAWINGS = 64, 8


def first_drawings(data: Dataset) -> Dataset:
    """The first of each class, in the order of the data set."""
    labels = data.labels.numpy()
    counts = np.zeros(labels.max() + 1, dtype=int)
    position = np.empty(len(labels), dtype=int)
    for row, label in enumerate(labels):
        position[row] = counts[label]
        counts[label] += 1
    return data.where(position < DRAWINGS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    network = kinfold.models.create("efficientnet-lite0", weights="imagenet").eval()
    resize = Pipeline(Warp(SIZE), Warp(SIZE), create_pipeline("efficientnet-lite").normalize, "RGB")
    embed_to_file(
        first_drawings(kinfold.data.load("omniglot", options.folder)),
        options.out,
        Encoder(
            network.features,
            resize,
            {"backbone": "efficientnet-lite0", "weights": "imagenet", "size": SIZE, "drawings": DRAWINGS},
        ),
        progress=lambda stage, share: print(f"\r{stage}: {100 * share:.0f} %", end="", flush=True),
    )
    print(f"\n{options.out}")


if __name__ == "__main__":
    main()
