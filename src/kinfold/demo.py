"""A first look: the same small problem with several losses, and what each of them pays attention to.

    python -m kinfold.demo

Items are points in 32 dimensions of which 8 tell the class and 24 only disturb. A linear map is trained on half of the
classes and tested on the other half: does an item's nearest neighbour belong to its class? The last column asks the
untrained loss how much of its weight, the derivative by the similarities, lies on the hardest tenth of the pairs.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import kinfold
from kinfold.losses import Loss, Mined, parameter_groups

CLASSES, PER_CLASS, SIGNAL, NOISE, DIM = 40, 12, 8, 24, 16
STEPS, BATCH_CLASSES, BATCH_PER_CLASS = 150, 10, 4
# (loss, options, miner); a softer scale than the published one where the start is random and not a trained network
METHODS: list[tuple[str, dict[str, Any], str | None]] = [
    ("contrastive", {}, "distance-weighted"),
    ("triplet", {}, "semihard"),
    ("margin", {}, "distance-weighted"),
    ("binomial", {}, None),
    ("lifted", {}, None),
    ("multi-similarity", {}, None),
    ("histogram", {}, None),
    ("precision-at-k", {}, None),
    ("proxy-nca", {}, None),
    ("proxy-anchor", {"scale": 8.0}, None),
    ("normalized-softmax", {"temperature": 0.2}, None),
]


def problem(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points (classes x items, 32) and their labels."""
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    centres = torch.randn(CLASSES, SIGNAL, generator=generator)[labels]
    signal = centres + 0.35 * torch.randn(len(labels), SIGNAL, generator=generator)
    return torch.cat([signal, 1.5 * torch.randn(len(labels), NOISE, generator=generator)], dim=1), labels


def nearest_is_kin(embeddings: Tensor, labels: Tensor) -> float:
    """Share of items whose nearest neighbour has their label, in percent (recall@1)."""
    similarity = kinfold.pairs.cosine(embeddings, embeddings).fill_diagonal_(-torch.inf)
    return 100 * (labels[similarity.argmax(dim=1)] == labels).float().mean().item()


def hardest_tenth(loss: Loss | Mined, embeddings: Tensor, labels: Tensor) -> float:
    """Share of the pair weights that lies on the tenth of the pairs with the least similar kin and the most similar
    others, in percent."""
    weights = loss.pair_weights(embeddings, labels).abs()
    kin = labels[:, None] == (torch.arange(weights.shape[1]) if weights.shape[1] != len(labels) else labels)
    references = loss.proxies if isinstance(loss, Loss) and loss.proxies is not None else embeddings
    similarity = kinfold.pairs.cosine(embeddings, references.detach())
    hardness = torch.where(kin, -similarity, similarity)
    if references is embeddings:
        hardness.fill_diagonal_(-torch.inf)
    top = hardness.flatten().topk(hardness.numel() // 10).indices
    return 100 * (weights.flatten()[top].sum() / weights.sum().clamp(min=1e-12)).item()


def build(name: str, options: dict[str, Any], miner: str | None, classes: int) -> Loss | Mined:
    owner = {"num_classes": classes, "dim": DIM} if name in ("proxy-nca", "proxy-anchor", "normalized-softmax") else {}
    loss = kinfold.losses.create(name, **owner, **options)
    return loss if miner is None else Mined(loss, kinfold.miners.create(miner))


def train(loss: Loss | Mined, x: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> nn.Linear:
    model = nn.Linear(x.shape[1], DIM, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.randn(model.weight.shape, generator=generator) / x.shape[1] ** 0.5)
    optimizer = torch.optim.Adam(parameter_groups(model, loss, proxy_lr=0.05), lr=0.01)
    members = labels.reshape(classes, PER_CLASS)[:, 0]
    assert bool((members == torch.arange(classes)).all())
    for _ in range(STEPS):
        chosen = torch.randperm(classes, generator=generator)[:BATCH_CLASSES]
        items = torch.stack([torch.randperm(PER_CLASS, generator=generator)[:BATCH_PER_CLASS] for _ in chosen])
        index = (chosen[:, None] * PER_CLASS + items).flatten()
        optimizer.zero_grad()
        loss(model(x[index]), labels[index]).backward()
        optimizer.step()
    return model


def main(folder: Path = Path("results")) -> Path:
    """Run the comparison, print the table and write it to a file; its path is returned."""
    x, labels = problem(torch.Generator().manual_seed(0))
    half = CLASSES // 2
    seen, unseen = labels < half, labels >= half
    raw = nearest_is_kin(x[unseen], labels[unseen])
    rows = [("no training, raw points", raw, float("nan"))]
    for name, options, miner in METHODS:
        generator = torch.Generator().manual_seed(1)
        start = x[seen] @ torch.randn(x.shape[1], DIM, generator=generator)
        focus = hardest_tenth(build(name, options, miner, half), start, labels[seen])
        model = train(build(name, options, miner, half), x[seen], labels[seen], half, generator)
        with torch.no_grad():
            score = nearest_is_kin(model(x[unseen]), labels[unseen])
        title = " ".join([name, *(f"({key} {value:g})" for key, value in options.items())])
        rows.append((title if miner is None else f"{title} + {miner}", score, focus))
    lines = ["| loss | recall@1, unseen classes | weight on the hardest tenth |", "|---|---|---|"]
    lines += [
        f"| {name} | {score:.1f} % | {f'{focus:.0f} %' if focus == focus else ''} |" for name, score, focus in rows
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.md"
    path.write_text("\n".join(["# kinfold demo", "", (__doc__ or "").strip(), "", *lines, ""]))
    width = max(len(name) for name, *_ in rows)
    print(f"{'loss':{width}}  recall@1 (unseen)  weight on the hardest tenth")
    for name, score, focus in rows:
        print(f"{name:{width}}  {score:15.1f} %  {f'{focus:24.0f} %' if focus == focus else ''}")
    print(f"\nwritten to {path}")
    return path


if __name__ == "__main__":
    main()
