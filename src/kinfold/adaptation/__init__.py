"""Adaptation: from labeled rows or images to a space that is significantly better than the input, or the input itself.

| module | what it holds |
|---|---|
| `launch` | `adapt`: plan, ladder, the run of the winner, the test classes |
| `plan`, `trial` | minutes to numbers of splits, candidates and steps |
| `class_splits` | repeated splits of the training classes |
| `candidates` | what is tried at each step |
| `measuring` | a candidate, fitted to some classes and measured on others |
| `map_families` | many linear maps of the same rows at once |
| `decisions` | when a step is taken |
| `linear_stage`, `trained_stages` | the closed-form steps, the trained steps |
| `race` | successive halving and finalists of a trained step |
| `image_network` | features of images, computed once, and fine-tuning |
| `ladder` | the steps in their order |
| `folder`, `recording` | what is stored, so that a killed process continues |
| `final_fit` | the winner, fitted to all training classes |
| `final_comparison` | input and winner on the test classes |
| `verdict` | what to do, in a sentence |
| `result` | `Adaptation`: table, verdict, run |
"""

from kinfold.adaptation.launch import adapt
from kinfold.adaptation.result import Adaptation

__all__ = ["Adaptation", "adapt"]
