"""Published tables and figures of papers, run again.

Data flow, in the order of the modules:

    tables/*.toml   what the paper prints, and the settings of every row that its authors ran
    table_files     reads and checks such a file
    published       `load_table`: the same as objects
    plan            `plan_table`: what has to be run, and which data and weights that needs
      small_scale   the same rows on small data, for a laptop
      small_ratios  what they keep in proportion
      outline       a plan as text or JSON
    reproduce       `reproduce_table`: trains the rows as a bench, times steps, or runs a toy problem
      step_times    seconds of a training step
      figure_data   arrays for figures of an embedding space; kinfold.report.reproduction draws them
      map_pictures  the pictures of a map
      toy           the toy problem in two dimensions
    comparison      our numbers beside the published ones
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinfold.papers.plan import PlanOptions, ReproductionPlan, parse_weights, plan_table, plan_tables
    from kinfold.papers.published import PublishedRow, PublishedTable, list_tables, load_table
    from kinfold.papers.reproduce import Reproduction, reproduce_table
    from kinfold.papers.small_scale import SmallScale

__all__ = [
    "PlanOptions",
    "PublishedRow",
    "PublishedTable",
    "Reproduction",
    "ReproductionPlan",
    "SmallScale",
    "list_tables",
    "load_table",
    "parse_weights",
    "plan_table",
    "plan_tables",
    "reproduce_table",
]
_MODULES = {  # imported at first use, so that tables are listed without torch
    "plan": ("ReproductionPlan", "PlanOptions", "parse_weights", "plan_table", "plan_tables"),
    "published": ("PublishedRow", "PublishedTable", "list_tables", "load_table"),
    "reproduce": ("Reproduction", "reproduce_table"),
    "small_scale": ("SmallScale",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"kinfold.papers.{module}"), name)
    raise AttributeError(f"module 'kinfold.papers' has no attribute {name!r}")
