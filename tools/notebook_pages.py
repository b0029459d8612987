"""A hook of MkDocs that shows the notebooks of docs/notebooks as pages of the site.

A page has the cells of its notebook in their order, with the outputs that the notebook stores; nothing is run. Links of
other pages to a notebook lead to its page. In the repository the same links lead to the notebook itself.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

_LINK = re.compile(r"\]\((?P<path>(?:[\w./-]*/)?[\w-]+)\.ipynb\)")
_FENCE = "````"  # longer than those inside of cells


def on_files(files: "Files", *, config: "MkDocsConfig") -> "Files":
    """Add a page for every notebook."""
    from mkdocs.structure.files import File

    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        assert notebook.abs_src_path is not None
        content = render_notebook(Path(notebook.abs_src_path))
        files.append(File.generated(config, notebook.src_uri.removesuffix(".ipynb") + ".md", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link to the pages of notebooks."""
    return _LINK.sub(r"](\g<path>.md)", markdown)


def render_notebook(path: Path) -> str:
    """Return the cells of a notebook and their outputs as Markdown.

    Args:
        path: The notebook.

    Raises:
        ValueError: A cell has an output that is not text.
    """
    notebook = json.loads(path.read_text())
    cells = [part for cell in notebook["cells"] for part in _render_cell(cell, path.name)]
    download = f'<a href="../{path.name}" download>Download this notebook</a>'
    return "\n\n".join([*cells, download]) + "\n"


def _render_cell(cell: dict[str, Any], name: str) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"{_FENCE}python\n{source}\n{_FENCE}"
    for output in cell["outputs"]:
        text = output["text"] if output["output_type"] == "stream" else output.get("data", {}).get("text/plain")
        if text is None:
            raise ValueError(f"{name} has an output that is not text: {output['output_type']}")
        yield f"{_FENCE}text\n{''.join(text).rstrip()}\n{_FENCE}"
