"""kinfold beside its peers; `python -m benchmarks.comparison --help`."""
