"""The papers' tables and figures, run anew: what was published, beside what we get.

recipes.papers (what stands in the paper) -> plan (what must be run and is needed) -> run (a bench, a clock or a toy) ->
results (ours beside the published numbers, with the caveats).
"""

from kinfold.reproduction.plan import Choices, Plan, plan
from kinfold.reproduction.run import Found, reproduce
from kinfold.reproduction.small import Small

__all__ = ["Choices", "Found", "Plan", "Small", "plan", "reproduce"]
