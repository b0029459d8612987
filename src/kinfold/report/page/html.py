"""One HTML file that holds everything it shows: the content as JSON, with the style and the scripts of `assets`.

The page loads nothing. Its Content-Security-Policy allows its style and scripts by their digests, images from inside
the file, and nothing else. Text from data never becomes markup: in the file it is JSON without `<`, `>` and `&`, and
the scripts insert it as text nodes.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kinfold.files.atomic import write_text
from kinfold.files.documents import nan_to_null
from kinfold.files.paths import check_parent

ASSETS = Path(__file__).parent / "assets"
# in this order: each may use what is defined in those before
SCRIPTS = (
    *("elements", "styles", "axes", "caption", "chart", "scatter", "images", "tables", "results"),
    *("queries", "paint", "view", "search", "map", "sections", "outline", "main"),
)
AUDIT_SCRIPTS = ("elements", "images", "tables", "outline", "audit")
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_page(content: dict[str, Any], path: Path | str, scripts: Sequence[str] = SCRIPTS) -> Path:
    """Write a report as one offline HTML file, completely or not at all.

    Args:
        content: Result of `collect_content`. NaN and infinities are shown as missing.
        path: The .html file.
        scripts: The scripts that draw the content, in this order.

    Returns:
        The path.

    Raises:
        ValueError: The name does not end with .html, or its folder does not exist.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an .html file, got {path.name!r}")
    check_parent(path)
    write_text(path, render_page(content, scripts))
    return path


def render_page(content: dict[str, Any], scripts: Sequence[str] = SCRIPTS) -> str:
    """Return the text of the HTML file."""
    style = _read_asset("style.css")
    theme = _read_asset("theme.js")
    script = '"use strict";\n{\n' + "\n".join(_read_asset(f"{name}.js") for name in scripts) + "}\n"
    policy = (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {_digest(theme)} {_digest(script)}; base-uri 'none'; form-action 'none'"
    )
    title = str(content.get("title") or "kinfold").encode("utf-8", "replace").decode()
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "theme": theme,
        "content": embed_json(content),
        "script": script,
    }
    # one pass, so that a title such as {{script}} is not replaced
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _read_asset("template.html"))


def embed_json(value: Any) -> str:
    """Return JSON that is safe inside of a script element.

    Examples:
        >>> embed_json({"name": "</script>", "loss": float("nan")})
        '{"name":"\\\\u003c/script\\\\u003e","loss":null}'
    """
    text = json.dumps(nan_to_null(value), separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda letter: _ESCAPES[letter[0]], text)


def _read_asset(name: str) -> str:
    text = (ASSETS / name).read_text(encoding="utf-8")
    return text if name.endswith(".html") else f"\n{text}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
