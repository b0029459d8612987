"""Names and options that users of other libraries type, and what they are called here."""

import re
from collections.abc import Collection

# what is typed, without case, separators and the endings of classes: what it is called here. The first one that is
# valid is suggested. Spellings of our names, such as NTXentLoss for nt-xent, need no entry.
ALIASES: dict[str, tuple[str, ...]] = {
    # losses
    "additiveangularmargin": ("arcface",),
    "aamsoftmax": ("arcface",),
    "amsoftmax": ("cosface",),
    "additivemarginsoftmax": ("cosface",),
    "binomialdeviance": ("binomial",),
    "batchalltriplet": ("triplet", "all-triplets"),
    "batchhardsoftmargintriplet": ("soft-margin-triplet",),
    "batchhardtriplet": ("triplet", "hard"),
    "crossentropy": ("softmax",),
    "generalizedliftedstructure": ("generalized-lifted",),
    "infonce": ("nt-xent",),
    "largemargincosine": ("cosface",),
    "liftedstructure": ("lifted",),
    "liftedstructured": ("lifted",),
    "mnr": ("nt-xent",),
    "mnrl": ("nt-xent",),
    "ms": ("multi-similarity",),
    "multiplenegativesranking": ("nt-xent",),
    "normsoftmax": ("normalized-softmax",),
    "npairs": ("n-pair",),
    "onlinecontrastive": ("contrastive",),
    "proxy": ("proxy-anchor",),
    "proxyncapp": ("normalized-softmax",),
    "siglip": ("sigmoid",),
    "signaltonoiseratiocontrastive": ("snr",),
    "simclr": ("nt-xent",),
    "supervisedcontrastive": ("supcon",),
    "tripletmargin": ("triplet", "all-triplets"),
    # miners
    "batcheasyhard": ("easy-hard",),
    "batchhard": ("hard",),
    "hardest": ("hard",),
    "hardnegative": ("hard",),
    "hardtriplets": ("hard",),
    "batchsemihard": ("semihard",),
    "semihardnegative": ("semihard",),
    "semihardtriplets": ("semihard",),
    "embeddingsalreadypackagedastriplets": ("all",),
    # samplers
    "balanced": ("spc",),
    "balancedbatch": ("spc",),
    "classbalanced": ("spc",),
    "groupbylabel": ("spc",),
    "mperclass": ("spc",),
    "pk": ("spc",),
    # metrics
    "meanaverageprecision": ("map",),
    "meanaverageprecisionatr": ("map@r",),
    "meanreciprocalrank": ("mrr",),
    "precisionat1": ("recall@1", "precision@k", "recall@k"),
    "recallat1": ("recall@1", "recall@k"),
    # options
    "alpha": ("positive_scale", "scale", "angle"),
    "anneal": ("temperature",),
    "anchorsperclass": ("per_class",),
    "base": ("threshold",),
    "beta": ("negative_scale",),
    "centersperclass": ("centers",),
    "cutoff": ("lower_cutoff",),
    "delta": ("threshold",),
    "embdim": ("dim",),
    "embeddingdim": ("dim",),
    "embeddingsize": ("dim",),
    "featuredim": ("dim",),
    "gamma": ("scale", "temperature"),
    "imbalance": ("balance",),
    "itemsperclass": ("per_class",),
    "la": ("scale",),
    "lengthbeforenewiter": ("batches",),
    "m": ("per_class", "margin"),
    "marginminus": ("negative_threshold",),
    "marginplus": ("positive_threshold",),
    "nbins": ("bins",),
    "nclasses": ("num_classes",),
    "negmargin": ("negative_margin", "margin"),
    "negstrategy": ("negative",),
    "nonzerolosscutoff": ("upper_cutoff",),
    "nu": ("beta_regularization",),
    "numbins": ("bins",),
    "numcenters": ("centers",),
    "numinstances": ("per_class",),
    "posmargin": ("positive_margin",),
    "posstrategy": ("positive",),
    "s": ("scale",),
    "samplesperclass": ("per_class",),
    "softmaxscale": ("temperature", "scale"),
    "subcenters": ("centers",),
    "t": ("temperature",),
    "tau": ("temperature",),
    "tn": ("temperature",),
    "typeoftriplets": ("difficulty",),
    "variant": ("form",),
}
# classes of pytorch-metric-learning without a counterpart, which are created as pml/NAME
_ONLY_THERE = (
    "AngularMiner",
    "DynamicSoftMarginLoss",
    "HDCMiner",
    "InstanceLoss",
    "LargeMarginSoftmaxLoss",
    "P2SGradLoss",
    "SphereFaceLoss",
    "UniformHistogramMiner",
)
_ENDINGS = re.compile(r"(loss|miner|sampler|reducer)$")


def find_alias(text: str, choices: Collection[str]) -> str | None:
    """Return the choice that another spelling or another library's name means, or None.

    Args:
        text: What the user wrote.
        choices: Valid strings.

    Examples:
        >>> find_alias("NTXentLoss", ["nt-xent"]), find_alias("embedding_size", ["dim"])
        ('nt-xent', 'dim')
    """
    if text in _ONLY_THERE:
        return f"pml/{text}"
    plain = _simplify(text)
    for choice in choices:
        if _simplify(choice) == plain:
            return choice
    return next((name for name in ALIASES.get(plain, ()) if name in choices), None)


def _simplify(text: str) -> str:
    plain = re.sub(r"[^a-z0-9@]", "", text.lower())
    return _ENDINGS.sub("", plain) or plain
