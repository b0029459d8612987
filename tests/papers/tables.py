"""Published tables and small data that several tests use."""

from functools import cache

from kinfold.papers import published
from kinfold.papers.small_scale import SmallScale


@cache
def table(name):
    return published.load_table(name)


@cache
def on_glyphs():
    return SmallScale(2)
