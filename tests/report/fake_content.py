"""Content of a report with fake data of any size, as `kinfold.report.collect_content` returns it."""

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


def make_content(
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
        [f"{number:03d}.{word}" for number, word in enumerate(_make_names(rng, classes))]
        if isinstance(classes, int)
        else classes
    )
    chosen = [
        METHODS[index % len(METHODS)] + f"-{index // len(METHODS)}" * (index >= len(METHODS))
        for index in range(methods)
    ]
    shown = [f"{name}, seed 0" for name in chosen[:spaces]]
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
        "tables": [make_table(rng, chosen, seeds)],
        "charts": {
            "training": [make_training(rng, chosen, title, seeds) for title in ("loss", "validation recall@1")],
            "curves": [*make_curves(rng, shown), *(make_histogram(name, number) for number, name in enumerate(shown))],
            "spectra": make_spectra(rng, shown),
            "diagnostics": make_diagnostics(rng, chosen),
            "weights": [make_weights(name) for name in chosen],
            "calibration": make_calibration_charts(),
        },
        "spaces": [make_space(rng, name, labels, names, count, packed) for name in shown],
        "calibrations": [make_calibration("margin, seed 0")],
        "thumbnails": make_thumbnails(rng, labels, count) if count else None,
    }


def make_empty() -> dict[str, Any]:
    """Content of a folder in which no run is finished."""
    return {
        "title": "nothing yet",
        "kind": "run",
        "about": {"kinfold": "0.1.0", "folder": "runs/new", "protocol": None, "data": [], "seeds": []},
        "missing": ["the run was interrupted before its first evaluation"],
        "inflated": False,
        "tables": [],
        "charts": {"training": [], "curves": [], "spectra": [], "diagnostics": [], "weights": [], "calibration": []},
        "calibrations": [],
        "spaces": [],
        "thumbnails": None,
    }


def make_table(rng: np.random.Generator, methods: list[str], seeds: int) -> dict[str, Any]:
    keys = ("recall@1", "recall@2", "recall@4", "map@r", "rho@1")
    columns = [
        {"key": key, "title": key if key == "rho@1" else f"{key}, %", "factor": 1 if key == "rho@1" else 100,
         "decimals": 3 if key == "rho@1" else 1, "smaller_is_better": key == "rho@1"}
        for key in keys
    ]  # fmt: skip
    rows = []
    for index, method in enumerate(methods):
        base = 0.86 - 0.03 * index
        cells = {}
        for shift, key in enumerate(keys):
            mean = 0.1 + 0.05 * index if key == "rho@1" else min(0.99, base + 0.04 * shift - 0.3 * (key == "map@r"))
            cells[key] = {
                "mean": round(mean + float(rng.normal(0, 0.004)), 5),
                "half_width": round(float(rng.uniform(0.004, 0.012)), 5) if seeds > 1 else None,
                "count": seeds,
                "published": round(100 * mean + 1.2, 1) if key == "recall@1" and index < 3 else None,
                "bold": index == 0 and key == "recall@1" and seeds > 1,
                "note": "two of five seeds were interrupted" if index == 2 and key == "recall@1" else "",
            }
        command = f"kinfold train {method}.toml --out bench/glyphs/{method}"
        rows.append(
            {
                "method": method,
                "cells": cells,
                "command": command,
                "configuration": make_config(method),
                "quoted": None,
            }
        )
    quoted = {"recall@1": {"mean": None, "half_width": None, "count": 0, "published": 78.3, "bold": False, "note": ""}}
    rows.append(
        {"method": "hdc", "cells": quoted, "command": None, "configuration": None, "quoted": "Yuan et al. 2017"}
    )
    pairs = [(one, two) for index, one in enumerate(methods) for two in methods[index + 1 :]]
    return {
        "caption": "Retrieval on the test classes of glyphs",
        "columns": columns,
        "rows": rows,
        "notes": ["bold: the best, significantly better than every other method"],
        "comparisons": [
            {
                "first": one,
                "second": two,
                "difference": 0.03 * (index % 4),
                "half_width": 0.011,
                "p": 0.2 / (1 + index) ** 2,
                "adjusted": min(1.0, 1.4 / (1 + index)),
                "significant": index % 4 > 1,
                "column": "recall@1",
            }
            for index, (one, two) in enumerate(pairs)
        ],
    }


def make_config(method: str) -> str:
    return f'[data]\nname = "glyphs"\n\n[loss]\nname = "{method}"\n\n[training]\nepochs = 40\nseed = 0\n'


def make_axis(label: str, **changes: Any) -> dict[str, Any]:
    axis = {"label": label, "scale": "linear", "limits": None, "integer": False, "include_zero": False}
    return {**axis, **changes}


def make_series(name: str, x: Any, y: Any, style: int | str = 0, low: Any = None, high: Any = None) -> dict[str, Any]:
    return {"name": name, "x": x, "y": y, "style": style, "low": low, "high": high}


def make_chart(
    title: str, x: dict[str, Any], y: dict[str, Any], series: list[dict[str, Any]], **changes: Any
) -> dict[str, Any]:
    chart = {"name": title, "title": title, "x": x, "y": y, "series": series}
    return {**chart, "kind": "line", "subject": "", "note": "", "spaces": [], **changes}


def make_training(rng: np.random.Generator, methods: list[str], title: str, seeds: int) -> dict[str, Any]:
    series = []
    steps = np.arange(0, 4000, 50)
    for index, method in enumerate(methods):
        falling = (
            np.exp(-steps / (700 + 150 * index))
            if title == "loss"
            else (0.85 - 0.03 * index) * (1 - np.exp(-steps / 600))
        )
        runs = falling + rng.normal(0, 0.015, (seeds, len(steps)))
        mean, low, high = (row.round(4).tolist() for row in (runs.mean(0), runs.min(0), runs.max(0)))
        bands = (None, None) if seeds == 1 else (low, high)
        series.append(make_series(method, steps.tolist(), mean, index, *bands))
    limits = None if title == "loss" else [0, 1]
    return make_chart(title, make_axis("step", integer=True), make_axis(title, limits=limits), series)


def make_curves(rng: np.random.Generator, spaces: list[str]) -> list[dict[str, Any]]:
    share, rates = np.linspace(0, 1, 60), np.geomspace(1e-4, 1, 60)
    curves = [
        ("ROC", make_axis("false-positive rate", scale="log"), "true-positive rate"),
        ("precision and recall", make_axis("recall"), "precision"),
        ("recall@k", make_axis("k", scale="log", integer=True), "recall@k"),
    ]
    values = {
        "ROC": lambda: (rates.tolist(), (rates ** rng.uniform(0.05, 0.15)).tolist()),
        "precision and recall": lambda: (share.tolist(), (1 - 0.8 * share ** rng.uniform(2, 5)).tolist()),
        "recall@k": lambda: ([1, 2, 4, 8, 16, 32], [0.82, 0.88, 0.92, 0.95, 0.97, 0.98]),
    }
    return [
        make_chart(
            title,
            x,
            make_axis(label, limits=[0, 1]),
            [make_series(name, *values[title](), number) for number, name in enumerate(spaces)],
            subject="glyphs, test classes",
            spaces=[*range(len(spaces))],
        )
        for title, x, label in curves
    ]


def make_histogram(name: str, number: int) -> dict[str, Any]:
    edges = np.linspace(-0.5, 1, 61)
    middle = (edges[1:] + edges[:-1]) / 2
    positives, negatives = np.exp(-(((middle - 0.65) / 0.16) ** 2)), np.exp(-(((middle - 0.1) / 0.2) ** 2))
    series = [
        make_series("positive pairs", edges.tolist(), (positives / positives.sum()).tolist(), "positive"),
        make_series("negative pairs", edges.tolist(), (negatives / negatives.sum()).tolist(), "negative"),
    ]
    y = make_axis("share of pairs", limits=[0, 1], include_zero=True)
    about = {"kind": "histogram", "subject": f"{name}, glyphs, test classes", "spaces": [number]}
    return make_chart("similarities", make_axis("cosine similarity"), y, series, **about)


def make_spectra(rng: np.random.Generator, spaces: list[str]) -> list[dict[str, Any]]:
    charts = []
    for title, largest, count in (
        ("singular values of the embedding space", 8, 64),
        ("singular values within a class", 3, 35),
    ):
        ranks = np.arange(count)
        series = [
            make_series(name, (ranks + 1).tolist(), (largest * np.exp(-ranks / rng.uniform(8, 16))).tolist(), number)
            for number, name in enumerate(spaces)
        ]
        x = make_axis("rank of the singular value", integer=True)
        y = make_axis("singular value", scale="log")
        charts.append(make_chart(title, x, y, series, spaces=[*range(len(spaces))]))
    return charts


def make_diagnostics(rng: np.random.Generator, methods: list[str]) -> list[dict[str, Any]]:
    values = {
        "rho@1": [0.1 + 0.04 * index for index in range(len(methods))],
        "density": [0.5 + float(rng.normal(0, 0.1)) for _ in methods],
    }
    return [
        make_chart(
            f"recall@1 against {name}",
            make_axis(f"{name} of the training classes"),
            make_axis("test recall@1", limits=[0, 1]),
            [
                make_series(method, [value], [0.86 - 0.03 * index], index)
                for index, (method, value) in enumerate(zip(methods, column, strict=True))
            ],
            kind="scatter",
            note=f"{len(methods)} methods",
        )
        for name, column in values.items()
    ]


def make_calibration(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "classes": "51 test classes",
        "sentences": ["threshold 0.277: pairs with at least this similarity are of the same class", "estimate"],
        "identification": [{"classes": 10, "threshold": 0.46, "extrapolated": False}],
    }


def make_calibration_charts() -> list[dict[str, Any]]:
    """A curve, and a single point on it."""
    far = np.geomspace(1e-4, 0.5, 20).round(6).tolist()
    series = [make_series("margin", far, np.sqrt(far).round(4).tolist(), 0), make_series("chosen", [0.01], [0.1], 1)]
    return [make_chart("ROC", make_axis("false-accept rate", scale="log"), make_axis("true-accept rate"), series)]


def make_weights(name: str) -> dict[str, Any]:
    similarity = np.linspace(-0.3, 1, 27)
    positives = (-1 / (1 + np.exp((similarity - 0.6) * (4 + len(name) % 5)))).round(4).tolist()
    negatives = (1 / (1 + np.exp((0.5 - similarity) * (9 + len(name) % 7)))).round(4).tolist()
    x = similarity.round(4).tolist()
    series = [
        make_series("positive pairs", x, [None, None, *positives[2:]], "positive"),
        make_series("negative pairs", x, negatives, "negative"),
    ]
    return make_chart(name, make_axis("similarity"), make_axis("dL/dS, mean over pairs", include_zero=True), series)


def make_space(
    rng: np.random.Generator, name: str, labels: np.ndarray, classes: list[str], pictures: int, packed: bool
) -> dict[str, Any]:
    """An embedding space in which classes are clouds in the plane, and neighbors are those in the plane."""
    centers = rng.uniform(0.08, 0.92, (len(classes), 2))
    at = np.clip(centers[labels] + rng.normal(0, 0.32 / np.sqrt(len(classes) + 4) * 0.4, (len(labels), 2)), 0, 1).round(
        3
    )
    nearest, distances = neighbors(at, min(10, len(labels) - 1))
    scores = (1 - distances).round(3)
    thumbs = np.where(np.arange(len(labels)) < pictures, np.arange(len(labels)), -1)
    pack = encode if packed else (lambda array, kind: array.tolist())
    precision = (labels[nearest] == labels[:, None]).mean(1)
    order = np.argsort(precision, kind="stable")
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
        "neighbors": pack(nearest, "int32"),
        "neighbor_labels": pack(labels[nearest], "int16"),
        "neighbor_scores": pack(scores, "float32"),
        "neighbor_thumbnails": pack(thumbs[nearest], "int32") if pictures else None,
        "best": [_query(index, labels, classes, nearest, scores, thumbs, precision) for index in order[::-1][:8]],
        "worst": [_query(index, labels, classes, nearest, scores, thumbs, precision) for index in order[:8]],
        "confused": _confused(labels, classes, nearest[:, 0]),
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
    nearest, distances = [], []
    for start in range(0, len(at), 500):
        apart = np.hypot(
            at[start : start + 500, None, 0] - at[None, :, 0], at[start : start + 500, None, 1] - at[None, :, 1]
        )
        apart[np.arange(len(apart)), start + np.arange(len(apart))] = np.inf
        near = np.argpartition(apart, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(near, np.take_along_axis(apart, near, 1).argsort(1, kind="stable"), 1)
        nearest.append(near)
        distances.append(np.take_along_axis(apart, near, 1))
    return np.concatenate(nearest), np.concatenate(distances)


def encode(array: np.ndarray, kind: str) -> dict[str, Any]:
    data = np.ascontiguousarray(array, kind).tobytes()
    return {"base64": base64.b64encode(data).decode(), "type": kind, "shape": list(array.shape)}


def make_thumbnails(rng: np.random.Generator, labels: np.ndarray, count: int) -> dict[str, Any]:
    """One sprite sheet with a soft background, a shape for the class, and the grain that photographs have."""
    size = (COLUMNS * TILE, -(-count // COLUMNS) * TILE)
    coarse = rng.integers(70, 220, (size[1] // 12, size[0] // 12, 3), dtype=np.uint8)
    sheet = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(sheet)
    hues = np.random.default_rng(7).integers(20, 235, (int(labels.max()) + 1, 3))
    for index in range(count):
        label = int(labels[index % len(labels)])
        left, upper = index % COLUMNS * TILE, index // COLUMNS * TILE
        draw.regular_polygon(
            (left + 24, upper + 24, 17),
            3 + label % 6,
            rotation=index * 13,
            fill=tuple(hues[label]),
            outline=(20, 20, 20),
        )
    grain = rng.normal(0, 9, (size[1], size[0], 1))
    pixels = np.clip(np.asarray(sheet.filter(ImageFilter.GaussianBlur(0.6))) + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", quality=70, method=0)
    sheets = ["data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()]
    return {"tile": TILE, "columns": COLUMNS, "count": count, "sheets": sheets}


def _make_names(rng: np.random.Generator, count: int) -> list[str]:
    first = ("Laysan", "Sooty", "Crested", "Least", "Parakeet", "Rusty", "Painted", "Indigo", "Spotted", "Gray")
    second = ("Albatross", "Auklet", "Bunting", "Catbird", "Cormorant", "Grackle", "Kingfisher", "Wren")
    return [f"{rng.choice(first)}_{rng.choice(second)}" for _ in range(count)]


def _query(index, labels, classes, nearest, scores, thumbs, precision) -> dict[str, Any]:
    neighbors = [
        {"label": classes[labels[other]], "thumbnail": int(thumbs[other]), "text": f"item {other}",
         "right": bool(labels[other] == labels[index]), "score": float(score)}
        for other, score in zip(nearest[index], scores[index], strict=True)
    ]  # fmt: skip
    query = {"label": classes[labels[index]], "thumbnail": int(thumbs[index]), "text": f"item {index}"}
    return {"query": query, "neighbors": neighbors, "value": float(precision[index])}


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
