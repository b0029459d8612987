"""Draw the way of the data through the rooms of the library: python docs/figures/way_of_the_data.py

Boxes are things, arrows are rooms. Black, white and grey only, so that it can be printed.
"""

from html import escape
from pathlib import Path

WIDTH, HEIGHT = 1180, 450
BOX, TALL, STEP = 120, 64, 202  # a box, and from one to the next
LEFT, TOP, LOW, LAST = 24, 110, 272, 370  # the first column, and the rows

HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" \
font-family="Helvetica, Arial, sans-serif" font-size="18">
<title>The way of the data</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0 8 4 0 8Z"/></marker></defs>
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"""


def box(column: float, y: int, *lines: str) -> str:
    """A thing, centred text in a rounded frame."""
    x = LEFT + column * STEP
    first = y + TALL / 2 + 6 - 10 * (len(lines) - 1)
    words = "".join(
        f'<text x="{x + BOX / 2:g}" y="{first + 20 * place:g}" text-anchor="middle">{escape(line)}</text>'
        for place, line in enumerate(lines)
    )
    return f'<rect x="{x:g}" y="{y}" width="{BOX}" height="{TALL}" rx="6" fill="#eee" stroke="black"/>{words}'


def room(x: float, y: float, *lines: str, anchor: str = "middle") -> str:
    """What does it, above its arrow."""
    first = y - 18 * (len(lines) - 1)
    style = f'text-anchor="{anchor}" font-weight="bold" font-size="17"'
    return "".join(
        f'<text x="{x:g}" y="{first + 18 * place:g}" {style}>{escape(line)}</text>' for place, line in enumerate(lines)
    )


def arrow(points: str, dashed: bool = False) -> str:
    style = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{points}" fill="none" stroke="black" stroke-width="1.5"{style} marker-end="url(#tip)"/>'


def along(column: float, y: int, *names: str) -> str:
    """From the box of a column to the next one."""
    start, middle = LEFT + column * STEP + BOX, y + TALL / 2
    return arrow(f"{start:g},{middle:g} {start + STEP - BOX:g},{middle:g}") + room(
        start + (STEP - BOX) / 2, middle - 8, *names
    )


def main() -> Path:
    centre = LEFT + BOX / 2
    embedding, value, result = (centre + column * STEP for column in (2, 5, 4))
    into_model = LEFT + STEP + BOX + (STEP - BOX) / 2
    parts = [
        HEAD,
        f'<rect x="8" y="30" width="{WIDTH - 16}" height="180" rx="10" fill="none" stroke="#888" stroke-width="1.5"/>',
        room(22, 54, "training", anchor="start"),
        box(0, TOP, "item"),
        along(0, TOP, "data", "samplers"),
        box(1, TOP, "batch"),
        along(1, TOP, "models"),
        box(2, TOP, "embeddings"),
        along(2, TOP, "pairs"),
        box(3, TOP, "similarity,", "relation"),
        along(3, TOP, "miners"),
        box(4, TOP, "the pairs", "that count"),
        along(4, TOP, "losses", "dro"),
        box(5, TOP, "value"),
        arrow(f"{value:g},{TOP} {value:g},66 {into_model:g},66 {into_model:g},{TOP + 2}", dashed=True),
        f'<text x="{(value + into_model) / 2:g}" y="58" text-anchor="middle">'
        "gradient; dL/dS is the weight of each pair</text>",
        arrow(f"{embedding:g},{TOP + TALL} {embedding:g},{LOW}"),
        room(embedding + 12, 246, "metrics", anchor="start"),
        box(2, LOW, "neighbours,", "scores"),
        along(2, LOW, "protocols"),
        box(3, LOW, "repeats", "over folds"),
        along(3, LOW, "bench"),
        box(4, LOW, "results,", "comparisons"),
        along(4, LOW, "report"),
        box(5, LOW, "one page"),
        box(2, LAST, "published", "table"),
        arrow(f"{LEFT + 2 * STEP + BOX:g},{LAST + TALL / 2:g} {result:g},{LAST + TALL / 2:g} {result:g},{LOW + TALL}"),
        room(LEFT + 3 * STEP + BOX / 2, LAST + TALL / 2 - 8, "recipes, reproduction"),
        "</svg>",
    ]
    path = Path(__file__).with_suffix(".svg")
    path.write_text("\n".join(parts) + "\n")
    return path


if __name__ == "__main__":
    print(main())
