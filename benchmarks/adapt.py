"""Does `adapt` reach the best baseline, and is it never worse than the input?

    python -m benchmarks.adapt --out FOLDER --plan standard --seeds 3 cub=CUB.npz flowers=FLOWERS.npz
        omniglot=OMNIGLOT.npz glyphs digits docstrings

An argument is a feature file with a split column, a file of gray images (arrays x, cls and test), whose pixels are the
features, or one of the built-in sets: `glyphs` (pixels of drawn characters), `digits` (of scikit-learn; classes 0 to 4
train) and `docstrings` (TF-IDF and SVD of docstrings of installed packages; a class is a module). A feature file whose
name ends in -reversed, as in cub-reversed=CUB.npz, trains on its test classes and tests on the others. `adapt` gets
minutes, or a plan with a fixed number of steps, which a busy machine does not change. Baselines: as given, half and
full whitening, LDA over shrinkages, and the recipe `features` with margin, multi-similarity and proxy-anchor. The
baseline is chosen by recall@1 + map@r on a fifth of the training classes, fitted to all of them and measured on the
test classes. Results that --out already holds are kept, so that a killed process continues. With --write the table
replaces the one in a page, between the lines `<!-- table of benchmarks.adapt -->` and `<!-- end of table -->`.
"""

import argparse
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kinfold
from kinfold import recipes
from kinfold.data import Dataset, Rows, create_dataset
from kinfold.models.linear_maps import fit_linear_map
from kinfold.models.moments import compute_moments
from kinfold.training import Run
from kinfold.training.config import read_tables

METRICS = ["recall@1", "map@r"]
LOSSES = ("margin", "multi-similarity", "proxy-anchor")
SHRINKAGES = (0.1, 0.3, 0.5, 0.7, 0.9)
MIN_DOCSTRINGS, MAX_DOCSTRINGS = 8, 40  # of a module
PACKAGES = ("numpy", "scipy", "sklearn", "torch", "matplotlib", "typer", "rich", "optuna")
Values = dict[str, float]
# letters alone, in order: numbers of examples, addresses of objects and the order of sets differ between processes
_WORD = re.compile(r"[^\W\d_]{2,}")


def load(argument: str) -> Dataset:
    """The rows of an argument, in the splits train and test."""
    name, _, path = argument.partition("=")
    if path:
        data = load_pixels(name, path) or kinfold.data.load("features", path)
        reversed_split = np.where(data.split == "test", "train", "test")
        return replace(data, split=reversed_split) if name.endswith("-reversed") else data
    return {"glyphs": load_glyphs, "digits": load_digits, "docstrings": load_docstrings}[name]()


def load_pixels(name: str, path: str) -> Dataset | None:
    """The pixels of a file of gray images; None for other files."""
    with np.load(path) as file:
        if "x" not in file.files:
            return None
        pixels = file["x"].reshape(len(file["x"]), -1).astype(np.float32)
        return create_dataset(name, Rows(pixels), file["cls"], np.where(file["test"], "test", "train"))


def load_glyphs() -> Dataset:
    """Every fourth drawn character as pixels, its classes divided as in the data set."""
    data = kinfold.data.load("glyphs")
    data = data.where(data.labels % 8 < 2, relabel=True)  # training and test classes alternate
    pixels = np.stack([np.asarray(data.items[row]).reshape(-1) for row in range(len(data))])
    return create_dataset("glyphs", Rows(pixels.astype(np.float32)), data.labels.numpy(), data.split)


def load_digits() -> Dataset:
    from sklearn.datasets import load_digits as load_sklearn_digits

    rows, labels = load_sklearn_digits(return_X_y=True)
    return create_dataset("digits", Rows(rows.astype(np.float32)), labels, np.where(labels < 5, "train", "test"))


def list_docstrings() -> Iterator[tuple[str, str]]:
    """Module and tokens of every class and function that the packages define, without importing hidden modules."""
    for package in PACKAGES:
        try:
            root = __import__(package)
        except ImportError:
            continue
        names = [package, *(info.name for info in pkgutil.iter_modules(root.__path__, f"{package}."))]
        for name in sorted(names):
            if "._" in name or "test" in name:
                continue
            try:
                module = __import__(name, fromlist=["_"])
            except Exception:  # an optional part of another project
                continue
            for entry in sorted(vars(module)):
                thing = getattr(module, entry)
                if not entry.startswith("_") and (inspect.isclass(thing) or inspect.isroutine(thing)):
                    tokens = _WORD.findall(inspect.getdoc(thing) or "")
                    if len(tokens) > 12:
                        yield name, " ".join(sorted(tokens))


def load_docstrings() -> Dataset:
    """TF-IDF of docstrings, reduced to 128 dimensions; classes alternate between training and test."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    groups: dict[str, dict[str, None]] = {}
    for name, text in list_docstrings():
        groups.setdefault(name, {})[text] = None
    kept = {name: [*texts][:MAX_DOCSTRINGS] for name, texts in groups.items() if len(texts) >= MIN_DOCSTRINGS}
    labels = np.repeat([*kept], [len(texts) for texts in kept.values()])
    texts = [text for texts in kept.values() for text in texts]
    split = np.repeat(
        ["train" if number % 2 == 0 else "test" for number in range(len(kept))], [*map(len, kept.values())]
    )
    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True).fit(
        [text for text, part in zip(texts, split, strict=True) if part == "train"]
    )
    counts = vectorizer.transform(texts)
    reduction = TruncatedSVD(128, random_state=0).fit(counts[split == "train"])
    return create_dataset("docstrings", Rows(reduction.transform(counts).astype(np.float32)), labels, split)


def get_rows(data: Dataset) -> torch.Tensor:
    return torch.as_tensor(data.items.array()).float()  # type: ignore[attr-defined]  # `Rows`


def measure(embeddings: torch.Tensor, data: Dataset) -> Values:
    return {
        name: float(value) for name, value in kinfold.metrics.evaluate(embeddings, data.labels, metrics=METRICS).items()
    }


def list_maps() -> dict[str, tuple[str, float | None]]:
    maps: dict[str, tuple[str, float | None]] = {"half-whitened": ("half-whiten", None), "whitened": ("whiten", 0.01)}
    return maps | {f"LDA, shrinkage {shrinkage:g}": ("lda", shrinkage) for shrinkage in SHRINKAGES}


def measure_baselines(train: Dataset, test: Dataset, seed: int, folder: Path) -> dict[str, Values]:
    """The metrics of every baseline, fitted to one dataset and measured on another."""
    rows, labels = get_rows(train), train.labels
    results = {"as given": measure(get_rows(test), test)}
    moments = compute_moments(rows, labels)
    kind: Any
    for name, (kind, shrinkage) in list_maps().items():
        linear_map = fit_linear_map(moments, kind, shrinkage=0.001 if kind == "half-whiten" else shrinkage)
        results[name] = measure(linear_map(get_rows(test).double()).float(), test)
    tables = read_tables(recipes.find_recipe("features"))
    for loss in LOSSES:
        path = folder / f"{loss}.json"
        if not path.is_file():
            sizes = train.class_sizes()
            batch = min(80, 5 * (len(sizes) - round(0.2 * len(sizes))))  # the recipe holds a fifth out
            changes = [f"loss.name={loss}", f"seed={seed}", f"data.split_seed={seed}", f"sampler.batch_size={batch}"]
            run = train_recipe(tables, folder / loss, changes, train)
            if run is None:
                continue
            path.write_text(json.dumps(measure(run.embed(get_rows(test)), test)))
        results[f"recipe, {loss}"] = json.loads(path.read_text())
    return results


def train_recipe(tables: dict[str, Any], folder: Path, changes: list[str], train: Dataset) -> Run | None:
    """Train the recipe, or continue; None where it does not fit this data.

    Half-whitening needs as many directions in which rows vary as the head has dimensions: with fewer, half of the
    dimensions are tried.
    """
    if (folder / "configuration.toml").is_file():
        return kinfold.train(None, folder, resume=True, dataset=train)
    try:
        return kinfold.train(tables, folder, changes=changes, dataset=train)
    except ValueError as error:
        dims = [change for change in changes if change.startswith("model.dim=")]
        if "directions only" not in str(error) or dims:
            print(f"{folder.name} left out: {error}")  # such as classes that are too few
            return None
    return train_recipe(tables, folder, [*changes, f"model.dim={get_rows(train).shape[1] // 2}"], train)


def hold_out(train: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """A fifth of the training classes, for the choice of the baseline."""
    classes = np.random.default_rng(seed).permutation(len(train.classes))[: max(2, len(train.classes) // 5)]
    mask = np.isin(train.labels.numpy(), classes)
    return train.where(~mask, relabel=True), train.where(mask, relabel=True)


def score(values: Values) -> float:
    return sum(values[name] for name in METRICS)


def run_set(argument: str, seed: int, minutes: float | None, plan: str | None, out: Path) -> dict[str, Any]:
    """Adapt one set with one seed, and measure its baselines; read the result where it is there."""
    name = argument.partition("=")[0]
    folder = out / f"{name}-{seed}"
    path = folder / "result.json"
    if path.is_file():
        stored: dict[str, Any] = json.loads(path.read_text())
        return stored
    folder.mkdir(parents=True, exist_ok=True)
    data = load(argument)
    adaptation = kinfold.adapt(data, folder=folder / "adapted", minutes=minutes, plan=plan, seed=seed)
    train, test = data.where(data.split != "test", relabel=True), data.subset("test")
    train = create_dataset(name, Rows(get_rows(train).numpy()), train.labels.numpy(), np.full(len(train), "train"))
    fitted, validation = hold_out(train, seed)
    for part in ("selection", "final"):
        (folder / part).mkdir(exist_ok=True)
    selection = measure_baselines(fitted, validation, seed, folder / "selection")
    best = max(selection, key=lambda key: score(selection[key]))
    final = measure_baselines(train, test, seed, folder / "final")
    result = {
        "name": name,
        "seed": seed,
        "plan": plan or f"{minutes:g} minutes",
        "seconds": sum(row.seconds for row in adaptation.steps),
        "winner": adaptation.winner,
        "verdict": adaptation.verdict,
        "test": {name: dict(values) for name, values in adaptation.test.items()},
        "baseline": best,
        "baselines": final,
    }
    path.write_text(json.dumps(result, indent=1))
    return result


def format_table(results: list[dict[str, Any]]) -> str:
    """Means over seeds as Markdown: input, adapted, chosen baseline, and the smallest end of the gain intervals."""
    head = ["data", "seeds", "winners"]
    head += [f"{metric}: {column}" for metric in METRICS for column in ("input", "adapted", "baseline")]
    head += ["lowest end of a gain", "chosen baselines"]
    lines = [head, ["---", "---:", "---", *["---:"] * 7, "---"]]
    for name in dict.fromkeys(result["name"] for result in results):
        chosen = [result for result in results if result["name"] == name]
        cells = []
        for metric in METRICS:
            cells.append(np.mean([result["test"][metric]["input"] for result in chosen]))
            cells.append(np.mean([result["test"][metric]["adapted"] for result in chosen]))
            cells.append(np.mean([result["baselines"][result["baseline"]][metric] for result in chosen]))
        low = min(result["test"][metric]["low"] for result in chosen for metric in METRICS)
        winners = ", ".join(dict.fromkeys(result["winner"] for result in chosen))
        baselines = "; ".join(dict.fromkeys(result["baseline"] for result in chosen))
        numbers = [f"{100 * cell:.1f}" for cell in cells] + [f"{100 * low:+.1f}"]
        lines.append([name, str(len(chosen)), winners, *numbers, baselines])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_table(page: Path, table: str) -> None:
    """Replace the table of a page."""
    begin, end = "<!-- table of benchmarks.adapt -->", "<!-- end of table -->"
    before, marker, rest = page.read_text().partition(begin)
    if not marker or end not in rest:
        raise ValueError(f"{page} has no lines {begin!r} and {end!r} to write between")
    page.write_text(f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, help="5 if no plan is given")
    parser.add_argument("--plan", help="quick, standard or thorough, instead of minutes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="a page with a place for the table")
    options = parser.parse_args()
    minutes = 5.0 if options.minutes is None and options.plan is None else options.minutes
    results = []
    for seed in range(options.seeds):
        for argument in options.sets:
            results.append(run_set(argument, seed, minutes, options.plan, options.out))
            print(format_table(results), flush=True)
    if options.write is not None:
        write_table(options.write, format_table(results))


if __name__ == "__main__":
    main()
