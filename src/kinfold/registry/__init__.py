"""The names of everything that can be created by name, and where each one lives. Listing imports nothing.

A target is `module:attribute`. It is imported when it is first resolved, so a name costs nothing until it is used.
Others add names by `register`, or by entry points of their package in the groups `kinfold.losses` and so on.
"""

import difflib
import importlib
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from typing import Any, TypeVar, overload

from kinfold.registry.options import check_options

_TARGETS: dict[str, dict[str, str]] = {
    "losses": {
        "similarity-margin": "kinfold.losses.similarity_margin:SimilarityMargin",
        "similarity-contrastive": "kinfold.losses.similarity_contrastive:SimilarityContrastive",
        "contrastive": "kinfold.losses.contrastive:Contrastive",
        "triplet": "kinfold.losses.triplet:Triplet",
        "margin": "kinfold.losses.margin:Margin",
        "binomial": "kinfold.losses.binomial:Binomial",
        "lifted": "kinfold.losses.lifted:Lifted",
        "generalized-lifted": "kinfold.losses.generalized_lifted:GeneralizedLifted",
        "n-pair": "kinfold.losses.n_pair:NPair",
        "angular": "kinfold.losses.angular:Angular",
        "histogram": "kinfold.losses.histogram:Histogram",
        "multi-similarity": "kinfold.losses.multi_similarity:MultiSimilarity",
        "quadruplet": "kinfold.losses.quadruplet:Quadruplet",
        "snr": "kinfold.losses.snr:SNR",
        "fastap": "kinfold.losses.fastap:FastAP",
        "precision-at-k": "kinfold.losses.precision_at_k:PrecisionAtK",
        "ranked-list": "kinfold.losses.ranked_list:RankedList",
        "hap2s": "kinfold.losses.hap2s:HAP2S",
        "nt-xent": "kinfold.losses.nt_xent:NTXent",
        "supcon": "kinfold.losses.supcon:SupCon",
        "circle": "kinfold.losses.circle:Circle",
        "smooth-ap": "kinfold.losses.smooth_ap:SmoothAP",
        "proxy-nca": "kinfold.losses.proxy_nca:ProxyNCA",
        "proxy-anchor": "kinfold.losses.proxy_anchor:ProxyAnchor",
        "soft-triple": "kinfold.losses.soft_triple:SoftTriple",
        "normalized-softmax": "kinfold.losses.normalized_softmax:NormalizedSoftmax",
        "softmax": "kinfold.losses.softmax:Softmax",
        "arcface": "kinfold.losses.arcface:ArcFace",
        "cosface": "kinfold.losses.cosface:CosFace",
        "dro-max": "kinfold.dro.presets:dro_max",
        "dro-topk": "kinfold.dro.presets:dro_topk",
        "dro-topk-pn": "kinfold.dro.presets:dro_topk_pn",
        "dro-kl": "kinfold.dro.presets:dro_kl",
        "dro-kl-grouped": "kinfold.dro.presets:dro_kl_grouped",
        "dro-kl-ball": "kinfold.dro.presets:dro_kl_ball",
        "dro-chi2": "kinfold.dro.presets:dro_chi2",
    },
    "sets": {
        "average": "kinfold.dro.average:Average",
        "simplex": "kinfold.dro.simplex:Simplex",
        "top-k": "kinfold.dro.top_k:TopK",
        "kl": "kinfold.dro.kl:KL",
        "kl-ball": "kinfold.dro.kl_ball:KLBall",
        "chi-square": "kinfold.dro.chi_square:ChiSquare",
    },
    "miners": {
        "all": "kinfold.miners.all:All",
        "multi-similarity": "kinfold.miners.multi_similarity:MultiSimilarity",
        "semihard-band": "kinfold.miners.semihard_band:SemihardBand",
        "semihard-pairs": "kinfold.miners.semihard_pairs:SemihardPairs",
        "distance-weighted-pairs": "kinfold.miners.distance_weighted_pairs:DistanceWeightedPairs",
        "random": "kinfold.miners.random:Random",
        "semihard": "kinfold.miners.semihard:Semihard",
        "softhard": "kinfold.miners.softhard:Softhard",
        "hard": "kinfold.miners.hard:Hard",
        "distance-weighted": "kinfold.miners.distance_weighted:DistanceWeighted",
        "drml-hard": "kinfold.miners.drml_hard:DRMLHard",
    },
    "samplers": {
        "spc": "kinfold.samplers.spc:SPCSampler",
        "spc-r": "kinfold.samplers.spc_r:SPCRSampler",
        "ddm": "kinfold.samplers.ddm:DDMSampler",
        "gc": "kinfold.samplers.gc:GCSampler",
        "frd": "kinfold.samplers.frd:FRDSampler",
        "random": "kinfold.samplers.random:RandomSampler",
    },
    "datasets": {
        "glyphs": "kinfold.data.glyphs:glyphs",
        "cub": "kinfold.data.cub:cub",
        "cars": "kinfold.data.cars:cars",
        "sop": "kinfold.data.sop:sop",
        "in-shop": "kinfold.data.in_shop:in_shop",
        "imagenet": "kinfold.data.imagenet:imagenet",
        "omniglot": "kinfold.data.omniglot:omniglot",
        "folder": "kinfold.data.image_folder:folder",
        "table": "kinfold.data.image_table:table",
        "features": "kinfold.data.feature_file:features",
    },
    "backbones": {
        "conv4": "kinfold.models.conv4:Conv4",
        "features": "kinfold.models.precomputed:PrecomputedFeatures",
        "efficientnet-lite0": "kinfold.models.efficientnet_lite:EfficientNetLite0",
        "bn-inception": "kinfold.models.bn_inception:BNInception",
        "resnet50": "kinfold.models.resnet:ResNet50",
        "densenet201": "kinfold.models.torchvision_models:densenet201",
        "googlenet": "kinfold.models.torchvision_models:googlenet",
        "timm": "kinfold.models.timm_models:TimmBackbone",
        "transformers": "kinfold.models.transformers_models:TransformersBackbone",
    },
    "heads": {
        "identity": "kinfold.models.heads:identity",
        "linear": "kinfold.models.heads:linear",
        "mlp": "kinfold.models.heads:mlp",
        "relational": "kinfold.models.relational:RelationalHead",
        "independent": "kinfold.models.independent:IndependentHeads",
    },
    "metrics": {
        "recall@k": "kinfold.metrics.retrieval:recall",
        "precision@k": "kinfold.metrics.retrieval:precision",
        "r-precision": "kinfold.metrics.retrieval:r_precision",
        "map@r": "kinfold.metrics.retrieval:map_at_r",
        "map@c": "kinfold.metrics.retrieval:map_at_c",
        "map@1000": "kinfold.metrics.retrieval:map_at_1000",
        "map@c-printed": "kinfold.metrics.retrieval:map_at_c_printed",
        "map@1000-printed": "kinfold.metrics.retrieval:map_at_1000_printed",
        "map": "kinfold.metrics.retrieval:mean_average_precision",
        "mrr": "kinfold.metrics.retrieval:mean_reciprocal_rank",
        "nmi": "kinfold.metrics.named:nmi",
        "ami": "kinfold.metrics.named:ami",
        "f1": "kinfold.metrics.named:f1",
        "nmi-coarse": "kinfold.metrics.named:nmi_coarse",
        "ami-coarse": "kinfold.metrics.named:ami_coarse",
        "f1-coarse": "kinfold.metrics.named:f1_coarse",
        "rho@k": "kinfold.metrics.named:rho",
        "uniformity": "kinfold.metrics.named:uniformity",
        "alignment": "kinfold.metrics.named:alignment",
        "intra": "kinfold.metrics.named:intra",
        "inter": "kinfold.metrics.named:inter",
        "density": "kinfold.metrics.named:density",
        "roc-auc": "kinfold.metrics.named:roc_auc",
        "pr-auc": "kinfold.metrics.named:pr_auc",
        "eer": "kinfold.metrics.named:eer",
        "tar@far=x": "kinfold.metrics.named:tar_at_far",
    },
}

_ADDED: list[tuple[str, str, str]] = []

Target = TypeVar("Target", bound=Callable[..., Any])


def kinds() -> list[str]:
    """What there are names of."""
    return [*_TARGETS, "recipes", "tables"]


def names(kind: str) -> list[str]:
    """Registered names of one kind, in the order of the documentation.

    >>> names("miners")[:2]
    ['all', 'multi-similarity']
    """
    if kind == "recipes":  # files, not classes
        from kinfold import recipes

        return recipes.list_recipes()
    if kind == "tables":
        from kinfold.papers import published

        return published.list_tables()
    return [*_kind(kind)]


def targets(kind: str) -> dict[str, str]:
    """Where each name of a kind lives, as `module:attribute`; nothing is imported."""
    return {**_kind(kind)}


def resolve(kind: str, name: str) -> Any:
    """The class or function registered under `name`."""
    targets = _kind(kind)
    if not isinstance(name, str):
        raise ValueError(f"a name in {kind} is a word, got {name!r}; kinfold.list({kind!r}) shows all")
    if name not in targets:
        hint = f"{suggest(name, targets)}; kinfold.list({kind!r}) shows all, and --plugin FILE adds your own"
        raise ValueError(f"unknown name {name!r} in {kind}{hint}")
    module, attribute = targets[name].split(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if found is None:
        where = (
            "the main program, which other processes do not see: put it into a file" if module == "__main__" else module
        )
        raise ValueError(f"{name!r} in {kind} is registered as {targets[name]}, but there is no {attribute} in {where}")
    return found


def create(kind: str, name: str, **options: Any) -> Any:
    """Make the object registered under `name`; options that it does not have or take are refused, with the nearest."""
    target: Callable[..., Any] = resolve(kind, name)
    check_options(name, target, options, suggest)
    return target(**options)


@overload
def register(kind: str, name: str) -> Callable[[Target], Target]: ...
@overload
def register(kind: str, name: str, target: str) -> None: ...
def register(kind: str, name: str, target: str | None = None) -> Callable[[Target], Target] | None:
    """Add a new name, so that it can be created, listed and used in a recipe like our own.

    Above a class or function it is a decorator; with `target`, a `module:attribute`, nothing is imported.

    >>> @register("miners", "nothing")  # doctest: +SKIP
    ... class Nothing(kinfold.miners.Miner): ...
    """
    if target is not None:
        _add(kind, name, target)
        return None

    def decorated(found: Target) -> Target:
        if "." in found.__qualname__:
            raise ValueError(f"{found.__qualname__} must stand at the top of its file to be registered as {name!r}")
        _add(kind, name, f"{found.__module__}:{found.__qualname__}")
        return found

    return decorated


def _add(kind: str, name: str, target: str) -> None:
    targets = _kind(kind)
    if name in targets and targets[name] != target:
        raise ValueError(f"{name!r} is already registered in {kind} as {targets[name]}; choose another name")
    if target.count(":") != 1:
        raise ValueError(f"target {target!r} must look like 'package.module:attribute'")
    if name not in targets:
        _ADDED.append((kind, name, target))
    targets[name] = target


def added() -> list[tuple[str, str, str]]:
    """What was registered beside our own names: (kind, name, target), for processes that shall know it too."""
    return [*_ADDED]


def suggest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` with the closest known word, or nothing where none is close."""
    close = difflib.get_close_matches(word.replace("_", "-"), [*known], n=1, cutoff=0.5) or difflib.get_close_matches(
        word, [*known], n=1, cutoff=0.5
    )
    return f" (did you mean {close[0]!r}?)" if close else ""


def _kind(kind: str) -> dict[str, str]:
    if kind not in _TARGETS:
        raise ValueError(f"unknown kind {kind!r}{suggest(kind, kinds())}; the kinds are {', '.join(kinds())}")
    _add_installed()
    return _TARGETS[kind]


@cache
def _add_installed() -> None:
    """Names that installed packages bring along; ours cannot be replaced by installing something."""
    installed = metadata.entry_points()  # once for all kinds: it looks at every installed package
    for kind, targets in _TARGETS.items():
        for point in installed.select(group=f"kinfold.{kind}"):
            if targets.setdefault(point.name, point.value) != point.value:
                warnings.warn(
                    f"{point.value} is not used: {point.name!r} in {kind} is {targets[point.name]} already",
                    stacklevel=2,
                )
