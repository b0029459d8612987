"""What a report shows, computed from the folders of runs."""

from kinfold.report.content.collect import collect_content

__all__ = ["collect_content"]
