"""One HTML file that holds all it shows: the content as JSON, with the style and the scripts of `assets`.

Nothing is loaded from elsewhere, and nothing may be: the page carries a Content-Security-Policy that lets in its own
style and scripts by their digests, pictures from inside the file, and nothing else. Text from data never becomes
markup: here it is JSON without `<`, `>` and `&`, and the scripts put it on the page as text nodes.
"""

import base64
import hashlib
import html
import json
import math
import re
from pathlib import Path
from typing import Any

from kinfold.files.atomic import write_text

PARTS = Path(__file__).parent / "assets"
# in this order: each may use what stands in those before
SCRIPTS = (
    *("elements", "series", "axes", "chart", "scatter", "pictures", "tables", "results"),
    *("queries", "paint", "view", "search", "map", "sections", "main"),
)
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_page(content: dict[str, Any], path: Path | str) -> Path:
    """Write the report of `content` (what `kinfold.report.content.collect` gives); it appears whole or not at all.

    Values that are no numbers (NaN, infinities) become null, and the page shows them as missing.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an .html file, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
    write_text(path, page(content))
    return path


def page(content: dict[str, Any]) -> str:
    """The text of the file."""
    style = _part("style.css")
    theme = _part("theme.js")
    script = '"use strict";\n{\n' + "\n".join(_part(f"{name}.js") for name in SCRIPTS) + "}\n"
    policy = (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {_digest(theme)} {_digest(script)}; base-uri 'none'; form-action 'none'"
    )
    title = str(content.get("title") or "kinfold").encode("utf-8", "replace").decode()
    pieces = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "theme": theme,
        "content": embedded(content),
        "script": script,
    }
    # one pass: a title that looks like one of these marks stays a title
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: pieces[mark[1]], _part("template.html"))


def embedded(value: Any) -> str:
    """JSON that can stand inside a script element, whatever the strings in it are.

    >>> embedded({"name": "</script>", "loss": float("nan")})
    '{"name":"\\\\u003c/script\\\\u003e","loss":null}'
    """
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda letter: ESCAPES[letter[0]], text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def _part(name: str) -> str:
    text = (PARTS / name).read_text(encoding="utf-8")
    return text if name.endswith(".html") else f"\n{text}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
