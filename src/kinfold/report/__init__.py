"""Reports about runs and benchmarks: one offline page, and the same figures and tables as files for papers.

`collect_content` computes what a report shows, as plain values. `write_page` and `write_figures` draw it.

    content/         what is shown: result tables, charts, maps, queries
    charts           the description of a chart, drawn by both the page and matplotlib
    page/            the HTML file with its scripts and its style
    figures/         PNG, SVG, Markdown and LaTeX files
    neighbor_grid    a query and its neighbors as one image, for `kinfold search`
    drawable_text    text of any characters, for images and figures
"""

from kinfold.report.content import collect_content
from kinfold.report.figures import write_figures
from kinfold.report.page import write_page

__all__ = ["collect_content", "write_figures", "write_page"]
