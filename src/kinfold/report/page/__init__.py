"""The report as one offline HTML file."""

from kinfold.report.page.html import write_page

__all__ = ["write_page"]
