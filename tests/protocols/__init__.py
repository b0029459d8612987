"""Protocols: splits, repeats, statistics and tables."""
