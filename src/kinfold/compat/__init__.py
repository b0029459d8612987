"""Adapters to other libraries: pytorch-metric-learning, sentence-transformers and MTEB.

Importing this package imports none of them. An adapter imports its library when it is first used, and says how to
install it where it is missing.

- `LossForPML`, `MinerForPML`, `SamplerForPML`: objects of kinfold as objects of pytorch-metric-learning.
- `PMLLoss`, `PMLMiner`, `PMLSampler`: objects of pytorch-metric-learning as objects of kinfold. By name they are
  `pml/CircleLoss`, `pml/BatchHardMiner` and so on, wherever kinfold takes the name of a loss or miner.
- `SentenceLabelLoss`, `SentencePairLoss`, `LabelEvaluator`: losses and exact metrics for sentence-transformers.
- `ExactMetricsTask`: exact metrics of the embeddings of any model of MTEB.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinfold.compat.mteb import ExactMetricsTask as ExactMetricsTask
    from kinfold.compat.pml_export import LossForPML as LossForPML
    from kinfold.compat.pml_export import MinerForPML as MinerForPML
    from kinfold.compat.pml_export import SamplerForPML as SamplerForPML
    from kinfold.compat.pml_import import PMLLoss as PMLLoss
    from kinfold.compat.pml_import import PMLMiner as PMLMiner
    from kinfold.compat.pml_import import PMLSampler as PMLSampler
    from kinfold.compat.sentence_transformers import LabelEvaluator as LabelEvaluator
    from kinfold.compat.sentence_transformers import SentenceLabelLoss as SentenceLabelLoss
    from kinfold.compat.sentence_transformers import SentencePairLoss as SentencePairLoss

# name: module that it is imported from on first use
_LAZY = {
    "LossForPML": "pml_export",
    "MinerForPML": "pml_export",
    "SamplerForPML": "pml_export",
    "PMLLoss": "pml_import",
    "PMLMiner": "pml_import",
    "PMLSampler": "pml_import",
    "ExactMetricsTask": "mteb",
    "LabelEvaluator": "sentence_transformers",
    "SentenceLabelLoss": "sentence_transformers",
    "SentencePairLoss": "sentence_transformers",
}

__all__ = [
    "ExactMetricsTask",
    "LabelEvaluator",
    "LossForPML",
    "MinerForPML",
    "PMLLoss",
    "PMLMiner",
    "PMLSampler",
    "SamplerForPML",
    "SentenceLabelLoss",
    "SentencePairLoss",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__]
