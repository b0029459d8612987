"""Contents of a report with made-up data, of any size: what `kinfold.report.content.collect` would give."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

METHODS = (
    "margin",
    "multi-similarity",
    "proxy-anchor",
    "triplet",
    "dro-kl",
    "contrastive",
    "lifted",
    "softmax",
    "circle",
)
TILE = 48
COLUMNS = 64


def content(
    points: int = 240,
    classes: int | list[str] = 12,
    methods: int = 5,
    seeds: int = 3,
    pictures: int | None = None,
    spaces: int = 2,
    packed: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """`pictures`: how many thumbnails; None gives one to every point, 0 none at all, as feature files have."""
    rng = np.random.default_rng(seed)
    names = (
        [f"{number:03d}.{word}" for number, word in enumerate(_words(rng, classes))]
        if isinstance(classes, int)
        else classes
    )
    chosen = [
        METHODS[place % len(METHODS)] + f"-{place // len(METHODS)}" * (place >= len(METHODS))
        for place in range(methods)
    ]
    labels = rng.integers(0, len(names), points)
    count = points if pictures is None else pictures
    return {
        "title": "glyphs",
        "kind": "bench",
        "about": {
            "kinfold": "0.1.0",
            "folder": "bench/glyphs",
            "protocol": "classic",
            "data": ["glyphs"],
            "seeds": list(range(seeds)),
        },
        "missing": [],
        "inflated": False,
        "tables": [table(rng, chosen, seeds)],
        "training": [training(rng, chosen, title, seeds) for title in ("loss", "validation recall@1")],
        "spaces": [space(rng, f"{name}, seed 0", labels, names, count, packed) for name in chosen[:spaces]],
        "diagnostics": diagnostics(rng, chosen),
        "weights": [weights(name) for name in chosen],
        "thumbnails": thumbnails(rng, labels, count) if count else None,
    }


def empty() -> dict[str, Any]:
    """A folder in which nothing has finished yet."""
    return {
        "title": "nothing yet",
        "kind": "run",
        "about": {"kinfold": "0.1.0", "folder": "runs/new", "protocol": None, "data": [], "seeds": []},
        "missing": ["the run was interrupted before its first evaluation"],
        "inflated": False,
        "tables": [],
        "training": [],
        "spaces": [],
        "diagnostics": {"columns": [], "points": []},
        "weights": [],
        "thumbnails": None,
    }


def table(rng: np.random.Generator, methods: list[str], seeds: int) -> dict[str, Any]:
    keys = ("recall@1", "recall@2", "recall@4", "map@r", "rho@1")
    columns = [
        {"key": key, "title": key if key == "rho@1" else f"{key}, %", "factor": 1 if key == "rho@1" else 100,
         "decimals": 3 if key == "rho@1" else 1, "smaller_is_better": key == "rho@1"}
        for key in keys
    ]  # fmt: skip
    rows = []
    for place, method in enumerate(methods):
        base = 0.86 - 0.03 * place
        cells = {}
        for shift, key in enumerate(keys):
            mean = 0.1 + 0.05 * place if key == "rho@1" else min(0.99, base + 0.04 * shift - 0.3 * (key == "map@r"))
            cells[key] = {
                "mean": round(mean + float(rng.normal(0, 0.004)), 5),
                "half_width": round(float(rng.uniform(0.004, 0.012)), 5) if seeds > 1 else None,
                "count": seeds,
                "published": round(100 * mean + 1.2, 1) if key == "recall@1" and place < 3 else None,
                "bold": place == 0 and key == "recall@1" and seeds > 1,
                "note": "two of five seeds were interrupted" if place == 2 and key == "recall@1" else "",
            }
        command = f"kinfold train {method}.toml --out bench/glyphs/{method}"
        rows.append(
            {
                "method": method,
                "cells": cells,
                "command": command,
                "configuration": configuration(method),
                "quoted": None,
            }
        )
    quoted = {"recall@1": {"mean": None, "half_width": None, "count": 0, "published": 78.3, "bold": False, "note": ""}}
    rows.append(
        {"method": "hdc", "cells": quoted, "command": None, "configuration": None, "quoted": "Yuan et al. 2017"}
    )
    pairs = [(one, two) for place, one in enumerate(methods) for two in methods[place + 1 :]]
    return {
        "caption": "Retrieval on the test classes of glyphs",
        "columns": columns,
        "rows": rows,
        "notes": ["bold: the best, told apart from every other method"],
        "comparisons": [
            {
                "first": one,
                "second": two,
                "difference": 0.03 * (place % 4),
                "half_width": 0.011,
                "p": 0.2 / (1 + place) ** 2,
                "adjusted": min(1.0, 1.4 / (1 + place)),
                "told_apart": place % 4 > 1,
                "column": "recall@1",
            }
            for place, (one, two) in enumerate(pairs)
        ],
    }


def configuration(method: str) -> str:
    return f'[data]\nname = "glyphs"\n\n[loss]\nname = "{method}"\n\n[training]\nepochs = 40\nseed = 0\n'


def training(rng: np.random.Generator, methods: list[str], title: str, seeds: int) -> dict[str, Any]:
    series = []
    steps = np.arange(0, 4000, 50)
    for place, method in enumerate(methods):
        falling = (
            np.exp(-steps / (700 + 150 * place))
            if title == "loss"
            else (0.85 - 0.03 * place) * (1 - np.exp(-steps / 600))
        )
        runs = falling + rng.normal(0, 0.015, (seeds, len(steps)))
        rows = {"mean": runs.mean(0), "low": runs.min(0), "high": runs.max(0)}
        lists: dict[str, Any] = {key: [round(float(value), 4) for value in row] for key, row in rows.items()}
        if seeds == 1:
            lists["low"] = lists["high"] = None
        series.append({"name": method, "x": steps.tolist(), "count": seeds, **lists})
    return {"title": title, "x": "step", "series": series}


def space(
    rng: np.random.Generator, name: str, labels: np.ndarray, classes: list[str], pictures: int, packed: bool
) -> dict[str, Any]:
    """Classes are clouds on the plane, and the neighbours are those of the plane."""
    centres = rng.uniform(0.08, 0.92, (len(classes), 2))
    at = np.clip(centres[labels] + rng.normal(0, 0.32 / np.sqrt(len(classes) + 4) * 0.4, (len(labels), 2)), 0, 1).round(
        3
    )
    places, distances = neighbors(at, min(10, len(labels) - 1))
    scores = (1 - distances).round(3)
    thumbs = np.where(np.arange(len(labels)) < pictures, np.arange(len(labels)), -1)
    pack = packing if packed else (lambda array, kind: array.tolist())
    precision = (labels[places] == labels[:, None]).mean(1)
    order = np.argsort(precision, kind="stable")
    share = np.linspace(0, 1, 60)
    return {
        "name": name,
        "data": "glyphs",
        "split": "test",
        "distance": "cosine",
        "count": len(labels) * 2,
        "shown": len(labels),
        "map": {"x": pack(at[:, 0], "float32"), "y": pack(at[:, 1], "float32")},
        "labels": pack(labels, "int32"),
        "classes": classes,
        "thumbnails": pack(thumbs, "int32") if pictures else None,
        "neighbors": pack(places, "int32"),
        "neighbor_labels": pack(labels[places], "int16"),
        "neighbor_scores": pack(scores, "float32"),
        "neighbor_thumbnails": pack(thumbs[places], "int32") if pictures else None,
        "best": [_query(place, labels, classes, places, scores, thumbs, precision) for place in order[::-1][:8]],
        "worst": [_query(place, labels, classes, places, scores, thumbs, precision) for place in order[:8]],
        "confused": _confused(labels, classes, places[:, 0]),
        "curves": [
            {
                "title": "ROC",
                "x_label": "false accept rate",
                "y_label": "true accept rate",
                "log_x": True,
                "x": np.geomspace(1e-4, 1, 60).tolist(),
                "y": (np.geomspace(1e-4, 1, 60) ** rng.uniform(0.05, 0.15)).tolist(),
            },
            {
                "title": "precision and recall",
                "x_label": "recall",
                "y_label": "precision",
                "log_x": False,
                "x": share.tolist(),
                "y": (1 - 0.8 * share ** rng.uniform(2, 5)).tolist(),
            },
            {
                "title": "recall@k",
                "x_label": "k",
                "y_label": "recall@k",
                "log_x": True,
                "x": [1, 2, 4, 8, 16, 32],
                "y": [0.82, 0.88, 0.92, 0.95, 0.97, 0.98],
            },
        ],
        "histogram": _histogram(),
        "spectrum": {
            "whole": (8 * np.exp(-np.arange(64) / rng.uniform(8, 16))).tolist(),
            "classes": (3 * np.exp(-np.arange(35) / 14)).tolist(),
        },
        "diagnostics": {
            "rho@1": 0.12,
            "rho@2": 0.2,
            "density": 0.61,
            "uniformity": -2.9,
            "alignment": 0.31,
            "recall@1": 0.84,
        },
    }


def neighbors(at: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    places, distances = [], []
    for start in range(0, len(at), 500):
        apart = np.hypot(
            at[start : start + 500, None, 0] - at[None, :, 0], at[start : start + 500, None, 1] - at[None, :, 1]
        )
        apart[np.arange(len(apart)), start + np.arange(len(apart))] = np.inf
        near = np.argpartition(apart, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(near, np.take_along_axis(apart, near, 1).argsort(1, kind="stable"), 1)
        places.append(near)
        distances.append(np.take_along_axis(apart, near, 1))
    return np.concatenate(places), np.concatenate(distances)


def packing(array: np.ndarray, kind: str) -> dict[str, Any]:
    data = np.ascontiguousarray(array, kind).tobytes()
    return {"base64": base64.b64encode(data).decode(), "type": kind, "shape": list(array.shape)}


def diagnostics(rng: np.random.Generator, methods: list[str]) -> dict[str, Any]:
    points = []
    for place, method in enumerate(methods):
        values = {
            "rho@1": 0.1 + 0.04 * place,
            "density": 0.5 + float(rng.normal(0, 0.1)),
            "recall@1": 0.86 - 0.03 * place,
        }
        points.append({"method": method, "values": values})
    return {"columns": ["rho@1", "density", "recall@1"], "points": points}


def weights(name: str) -> dict[str, Any]:
    similarity = np.linspace(-0.3, 1, 27)
    kin = (-1 / (1 + np.exp((similarity - 0.6) * (4 + len(name) % 5)))).round(4).tolist()
    others = (1 / (1 + np.exp((0.5 - similarity) * (9 + len(name) % 7)))).round(4).tolist()
    return {"name": name, "similarity": similarity.round(4).tolist(), "kin": [None, None, *kin[2:]], "others": others}


def thumbnails(rng: np.random.Generator, labels: np.ndarray, count: int) -> dict[str, Any]:
    """One sprite sheet with a soft background, a shape for the class, and the grain that photographs have."""
    size = (COLUMNS * TILE, -(-count // COLUMNS) * TILE)
    coarse = rng.integers(70, 220, (size[1] // 12, size[0] // 12, 3), dtype=np.uint8)
    sheet = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(sheet)
    hues = np.random.default_rng(7).integers(20, 235, (int(labels.max()) + 1, 3))
    for place in range(count):
        label = int(labels[place % len(labels)])
        left, upper = place % COLUMNS * TILE, place // COLUMNS * TILE
        draw.regular_polygon(
            (left + 24, upper + 24, 17),
            3 + label % 6,
            rotation=place * 13,
            fill=tuple(hues[label]),
            outline=(20, 20, 20),
        )
    grain = rng.normal(0, 9, (size[1], size[0], 1))
    pixels = np.clip(np.asarray(sheet.filter(ImageFilter.GaussianBlur(0.6))) + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", quality=70, method=0)
    sheets = ["data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()]
    return {"tile": TILE, "columns": COLUMNS, "count": count, "sheets": sheets}


def _words(rng: np.random.Generator, count: int) -> list[str]:
    first = ("Laysan", "Sooty", "Crested", "Least", "Parakeet", "Rusty", "Painted", "Indigo", "Spotted", "Grey")
    second = ("Albatross", "Auklet", "Bunting", "Catbird", "Cormorant", "Grackle", "Kingfisher", "Wren")
    return [f"{rng.choice(first)}_{rng.choice(second)}" for _ in range(count)]


def _query(place, labels, classes, places, scores, thumbs, precision) -> dict[str, Any]:  # type: ignore[no-untyped-def]
    found = [
        {"label": classes[labels[other]], "thumbnail": int(thumbs[other]), "text": f"item {other}",
         "right": bool(labels[other] == labels[place]), "score": float(score)}
        for other, score in zip(places[place], scores[place], strict=True)
    ]  # fmt: skip
    asked = {"label": classes[labels[place]], "thumbnail": int(thumbs[place]), "text": f"item {place}"}
    return {"query": asked, "neighbors": found, "value": float(precision[place])}


def _confused(labels: np.ndarray, classes: list[str], nearest: np.ndarray) -> list[dict[str, Any]]:
    counts: dict[tuple[int, int], int] = {}
    for one, two in zip(labels.tolist(), labels[nearest].tolist(), strict=True):
        if one != two:
            pair = (min(one, two), max(one, two))
            counts[pair] = counts.get(pair, 0) + 1
    most = sorted(counts.items(), key=lambda entry: -entry[1])[:15]
    return [
        {
            "first": classes[one],
            "second": classes[two],
            "count": count,
            "share": count / int(np.isin(labels, [one, two]).sum()),
        }
        for (one, two), count in most
    ]


def _histogram() -> dict[str, Any]:
    edges = np.linspace(-0.5, 1, 61)
    middle = (edges[1:] + edges[:-1]) / 2
    kin, others = np.exp(-(((middle - 0.65) / 0.16) ** 2)), np.exp(-(((middle - 0.1) / 0.2) ** 2))
    return {"edges": edges.tolist(), "kin": (kin / kin.sum()).tolist(), "others": (others / others.sum()).tolist()}
