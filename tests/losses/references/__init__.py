"""Slow reference values of the losses, for comparison with the library.

Every function is written as loops over single pairs, so that it can be read next to its formula. All arithmetic is in
double precision. The functions return the value of the reduction "mean".

Notation used in the docstrings:

* ``a`` is an anchor row, ``P`` and ``N`` are its positives and negatives among the reference rows.
* ``[z]+`` is ``max(z, 0)``.
* ``s`` (cos) is the cosine of two rows, ``d`` the Euclidean distance of the two rows after scaling to unit length,
  ``d*`` the Euclidean distance of the rows as given, ``dot`` their plain inner product.
* An anchor is *valid* when it has at least one positive and at least one negative.
* A mean over nothing is zero. A loss that averages over valid anchors or over triplets is zero when there are none, and
  this includes its regularizer.

Every module of this package is imported here. A decorator of `catalog` makes a function the reference of a loss, and
names the options that are compared.
"""

import pkgutil
from importlib import import_module

from tests.losses.references.catalog import (
    DETACHED_WEIGHTS,
    OPTIONS,
    PROXY_REFERENCES,
    REFERENCES,
    TRIPLET_REFERENCES,
)

__all__ = ["DETACHED_WEIGHTS", "OPTIONS", "PROXY_REFERENCES", "REFERENCES", "TRIPLET_REFERENCES"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
