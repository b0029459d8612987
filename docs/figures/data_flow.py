"""Draw the data flow through the packages of the library: python docs/figures/data_flow.py

Boxes are data, arrows are packages. Black, white and gray only, so that it can be printed.
"""

from html import escape
from pathlib import Path

WIDTH, HEIGHT = 1180, 450
BOX, TALL, STEP = 120, 64, 202  # a box, and from one to the next
LEFT, TOP, LOW, LAST = 24, 110, 272, 370  # the first column, and the rows

HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" \
font-family="Helvetica, Arial, sans-serif" font-size="18">
<title>Data flow</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0 8 4 0 8Z"/></marker></defs>
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"""


def box(column: float, y: int, *lines: str) -> str:
    """A box with centered text in a rounded frame."""
    x = LEFT + column * STEP
    first = y + TALL / 2 + 6 - 10 * (len(lines) - 1)
    text = "".join(
        f'<text x="{x + BOX / 2:g}" y="{first + 20 * row:g}" text-anchor="middle">{escape(line)}</text>'
        for row, line in enumerate(lines)
    )
    return f'<rect x="{x:g}" y="{y}" width="{BOX}" height="{TALL}" rx="6" fill="#eee" stroke="black"/>{text}'


def label(x: float, y: float, *lines: str, anchor: str = "middle") -> str:
    """The name of a package above its arrow."""
    first = y - 18 * (len(lines) - 1)
    style = f'text-anchor="{anchor}" font-weight="bold" font-size="17"'
    return "".join(
        f'<text x="{x:g}" y="{first + 18 * row:g}" {style}>{escape(line)}</text>' for row, line in enumerate(lines)
    )


def arrow(points: str, dashed: bool = False) -> str:
    style = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{points}" fill="none" stroke="black" stroke-width="1.5"{style} marker-end="url(#tip)"/>'


def connect(column: float, y: int, *names: str) -> str:
    """An arrow from the box of a column to the next one."""
    start, middle = LEFT + column * STEP + BOX, y + TALL / 2
    return arrow(f"{start:g},{middle:g} {start + STEP - BOX:g},{middle:g}") + label(
        start + (STEP - BOX) / 2, middle - 8, *names
    )


def main() -> Path:
    center = LEFT + BOX / 2
    embedding, value, result = (center + column * STEP for column in (2, 5, 4))
    into_model = LEFT + STEP + BOX + (STEP - BOX) / 2
    parts = [
        HEAD,
        f'<rect x="8" y="30" width="{WIDTH - 16}" height="180" rx="10" fill="none" stroke="#888" stroke-width="1.5"/>',
        label(22, 54, "training", anchor="start"),
        box(0, TOP, "item"),
        connect(0, TOP, "data", "samplers"),
        box(1, TOP, "batch"),
        connect(1, TOP, "models"),
        box(2, TOP, "embeddings"),
        connect(2, TOP, "pairs"),
        box(3, TOP, "similarity,", "relation"),
        connect(3, TOP, "miners"),
        box(4, TOP, "selected", "pairs"),
        connect(4, TOP, "losses", "dro"),
        box(5, TOP, "value"),
        arrow(f"{value:g},{TOP} {value:g},66 {into_model:g},66 {into_model:g},{TOP + 2}", dashed=True),
        f'<text x="{(value + into_model) / 2:g}" y="58" text-anchor="middle">'
        "gradient; dL/dS is the weight of each pair</text>",
        arrow(f"{embedding:g},{TOP + TALL} {embedding:g},{LOW}"),
        label(embedding + 12, 246, "metrics", anchor="start"),
        box(2, LOW, "neighbors,", "scores"),
        connect(2, LOW, "experi-", "ments"),
        box(3, LOW, "repeats", "over folds"),
        connect(3, LOW, "experi-", "ments"),
        box(4, LOW, "results,", "comparisons"),
        connect(4, LOW, "report"),
        box(5, LOW, "one page"),
        box(2, LAST, "published", "table"),
        arrow(f"{LEFT + 2 * STEP + BOX:g},{LAST + TALL / 2:g} {result:g},{LAST + TALL / 2:g} {result:g},{LOW + TALL}"),
        label(LEFT + 3 * STEP + BOX / 2, LAST + TALL / 2 - 8, "papers"),
        "</svg>",
    ]
    path = Path(__file__).with_suffix(".svg")
    path.write_text("\n".join(parts) + "\n")
    return path


if __name__ == "__main__":
    print(main())
