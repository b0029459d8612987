"""Heads of DRML in the middle of training, and their equations as loops over plain numbers."""

import math

import torch

from kinfold.models.relational import RelationalHead

CHUNK, FULL = "chunk", "full"


def source(seed):
    return torch.Generator().manual_seed(seed)


def values(*shape, seed=0):
    return torch.randn(shape, generator=source(seed), dtype=torch.float64)


def head(width=12, dim=6, branches=3, branch_input=CHUNK, seed=1, **options):
    """In the middle of training: no weight or bias is where it started; scores of about half of the edges are zero."""
    made = RelationalHead(width, dim, branches, branch_input, **options).double()
    g = source(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64) * 0.7)
        made.score.weight.copy_(torch.linspace(0.8, -1.6, made.part_dim))
        made.score.bias.fill_(0.1)
    return made


def by_loops(made, features):
    """z, v, e and r of one item at a time, from the equations: lists of Python numbers."""
    parts, dim = made.parts, made.part_dim
    weights = {name: tensor.tolist() for name, tensor in made.named_parameters()}

    def affine(name, k, x):
        rows, bias = weights[f"{name}.weight"][k], weights[f"{name}.bias"][k]
        return [sum(w * value for w, value in zip(row, x, strict=True)) + b for row, b in zip(rows, bias, strict=True)]

    found = {"z": [], "v": [], "e": [], "r": []}
    for y in features.tolist():
        size = len(y) // parts
        seen = [y if made.branch_input == FULL else y[k * size : (k + 1) * size] for k in range(parts)]
        v, e = [], []
        for k in range(parts):
            raw = affine("nodes", k, seen[k])
            length = math.sqrt(sum(value * value for value in raw))
            v.append([value / length for value in raw])
            decoded = affine("decoders", k, v[k])
            e.append(sum((a - b) ** 2 for a, b in zip(seen[k], decoded, strict=True)) / len(decoded))
        scores = [[0.0] * parts for _ in range(parts)]
        for i in range(parts):
            for j in range(parts):
                difference = zip(affine("sources", i, seen[i]), affine("targets", j, seen[j]), strict=True)
                weighted = zip(weights["score.weight"][0], difference, strict=True)
                scores[i][j] = max(0.0, sum(w * (a - b) for w, (a, b) in weighted) + weights["score.bias"][0])
        r = [[0.0] * parts for _ in range(parts)]
        z = []
        for j in range(parts):
            total = sum(scores[i][j] for i in range(parts))
            for i in range(parts):
                r[i][j] = scores[i][j] / total if total else 0.0
            u = [sum(r[i][j] * v[i][place] for i in range(parts)) for place in range(dim)]
            for row, bias in zip(weights["relation.weight"], weights["relation.bias"], strict=True):
                z.append(sum(w * value for w, value in zip(row, [*v[j], *u], strict=True)) + bias)
        for name, value in (("z", z), ("v", v), ("e", e), ("r", r)):
            found[name].append(value)
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}
