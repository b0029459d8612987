"""Recipes that come with the package: TOML files by name. The tables of the papers are in `recipes.papers`."""

from pathlib import Path

FOLDER = Path(__file__).parent


def list_recipes() -> list[str]:
    """Every recipe, without its ending.

    >>> "glyphs" in names()
    True
    """
    paths = (path.relative_to(FOLDER) for path in FOLDER.rglob("*.toml"))
    return sorted(path.with_suffix("").as_posix() for path in paths if path.parts[0] != "papers")


def find_recipe(name: str) -> Path:
    """The file of a recipe: one of your own by its path, or one of ours by its name."""
    from kinfold.registry import suggest

    own = Path(name)
    if own.suffix == ".toml" or own.is_file():
        if not own.is_file():
            raise ValueError(f"there is no recipe {own}")
        return own
    path = FOLDER / f"{name}.toml"
    if name not in list_recipes():
        raise ValueError(
            f"recipe {name!r} not found{suggest(name, list_recipes())}; "
            f"give a .toml file or one of {', '.join(list_recipes())}"
        )
    return path
