"""Figures and a page of a published table that was run again: what the paper draws, with our numbers.

selection     which rows are shown, and how each looks
figures       which figures a table has
numbers       lines over an axis, bars, points with error bars
spaces        curves, spectra, maps with pictures
toys          the toy problem: points, embeddings, spectra
page          one offline page with all of it
index         one page over several tables, with the state of every row
"""

from kinfold.report.reproduction.figures import write_reproduction
from kinfold.report.reproduction.index import ReproductionIndex

__all__ = ["ReproductionIndex", "write_reproduction"]
