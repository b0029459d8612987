"""Draw what each uncertainty set makes of the same sorted losses: python docs/figures/dro_weights.py"""

from pathlib import Path

import matplotlib
import torch

from kinfold.dro import KL, Average, ChiSquare, KLBall, TopK

matplotlib.use("svg")
from matplotlib import pyplot

STYLES = {
    "Average()": (Average(), ":", "black"),
    "TopK(10)": (TopK(10), "-", "black"),
    "KL(gamma=0.2)": (KL(0.2), "--", "black"),
    "KLBall(effective=10)": (KLBall(effective=10), "-.", "black"),
    "ChiSquare(effective=10)": (ChiSquare(effective=10), "-", "0.6"),
}


def main() -> Path:
    losses = torch.sort(torch.rand(40, generator=torch.Generator().manual_seed(0)) ** 1.5, descending=True).values
    matplotlib.rcParams["svg.hashsalt"] = "kinfold"  # the same picture is the same file
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6))
    for title, (chosen, style, color) in STYLES.items():
        weights = chosen.weights(losses.double())
        axes.plot(
            range(1, 41), weights, linestyle=style, color=color, linewidth=1.6, label=title, drawstyle="steps-mid"
        )
    axes.set_xlabel("pairs, hardest first")
    axes.set_ylabel("weight")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path = Path(__file__).with_suffix(".svg")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    return path


if __name__ == "__main__":
    print(main())
