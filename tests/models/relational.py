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
    relational_head = RelationalHead(width, dim, branches, branch_input, **options).double()
    g = source(seed)
    with torch.no_grad():
        for parameter in relational_head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64) * 0.7)
        relational_head.score.weight.copy_(torch.linspace(0.8, -1.6, relational_head.part_dim))
        relational_head.score.bias.fill_(0.1)
    return relational_head


def by_loops(relational_head, features):
    """z, v, e and r of one item at a time, from the equations: lists of Python numbers."""
    parts, dim = relational_head.parts, relational_head.part_dim
    weights = {name: tensor.tolist() for name, tensor in relational_head.named_parameters()}

    def affine(name, k, x):
        rows, bias = weights[f"{name}.weight"][k], weights[f"{name}.bias"][k]
        return [sum(w * value for w, value in zip(row, x, strict=True)) + b for row, b in zip(rows, bias, strict=True)]

    rows_by_name = {"z": [], "v": [], "e": [], "r": []}
    for y in features.tolist():
        size = len(y) // parts
        inputs = [y if relational_head.branch_input == FULL else y[k * size : (k + 1) * size] for k in range(parts)]
        v, e = [], []
        for k in range(parts):
            raw = affine("nodes", k, inputs[k])
            length = math.sqrt(sum(value * value for value in raw))
            v.append([value / length for value in raw])
            decoded = affine("decoders", k, v[k])
            e.append(sum((a - b) ** 2 for a, b in zip(inputs[k], decoded, strict=True)) / len(decoded))
        scores = [[0.0] * parts for _ in range(parts)]
        for i in range(parts):
            for j in range(parts):
                difference = zip(affine("sources", i, inputs[i]), affine("targets", j, inputs[j]), strict=True)
                weighted = zip(weights["score.weight"][0], difference, strict=True)
                scores[i][j] = max(0.0, sum(w * (a - b) for w, (a, b) in weighted) + weights["score.bias"][0])
        r = [[0.0] * parts for _ in range(parts)]
        z = []
        for j in range(parts):
            total = sum(scores[i][j] for i in range(parts))
            for i in range(parts):
                r[i][j] = scores[i][j] / total if total else 0.0
            u = [sum(r[i][j] * v[i][index] for i in range(parts)) for index in range(dim)]
            for row, bias in zip(weights["relation.weight"], weights["relation.bias"], strict=True):
                z.append(sum(w * value for w, value in zip(row, [*v[j], *u], strict=True)) + bias)
        for name, value in (("z", z), ("v", v), ("e", e), ("r", r)):
            rows_by_name[name].append(value)
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in rows_by_name.items()}
