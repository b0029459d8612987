"""Comparison of kinfold with its peers; `python -m benchmarks.comparison --help`."""
