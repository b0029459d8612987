"""The papers' tables and figures: what was published, what repeats it, and ours beside theirs.

tables/*.toml (what stands in the paper) -> published (the same as objects) -> plan (what must be run, and what that
needs) -> reproduce (a bench, a clock or a toy problem) -> comparison (ours beside the published numbers).
"""

from kinfold.papers.plan import Plan, PlanOptions, plan
from kinfold.papers.reproduce import Reproduction, reproduce
from kinfold.papers.small_scale import SmallScale

__all__ = ["Plan", "PlanOptions", "Reproduction", "SmallScale", "plan", "reproduce"]
