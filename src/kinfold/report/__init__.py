"""Reports about runs and benchmarks: one offline page, and the same figures and tables as files for papers.

`collect_content` computes what a report shows, as plain values. `write_page` and `write_figures` draw it.

    content       what is shown: result tables, curves, maps, queries, pair weights
    charts        one description for each chart, drawn by the page and by matplotlib
    page          the HTML file, its scripts and its style
    figures       PNG, SVG, Markdown and LaTeX files
    neighbor_grid a query and its neighbors as one picture, for `kinfold search`
"""

from kinfold.report.content import collect_content
from kinfold.report.figures import write_figures
from kinfold.report.page import write_page

__all__ = ["collect_content", "write_figures", "write_page"]
