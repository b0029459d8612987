"""The report as files for papers: figures by matplotlib, tables in Markdown and LaTeX."""

from kinfold.report.figures.files import write_figures

__all__ = ["write_figures"]
