"""Recipes of the package: TOML files by name. Published tables are in `kinfold.papers`."""

from pathlib import Path

from kinfold.files.paths import describe_missing

__all__ = ["find_recipe", "list_recipes"]

FOLDER = Path(__file__).parent
# what reads a file of data that was given in place of a recipe
_DATA = {".npz": "features", ".npy": "features", ".parquet": "features", ".csv": "images --data table"}


def list_recipes() -> list[str]:
    """List the names of all recipes.

    Examples:
        >>> "glyphs" in list_recipes()
        True
    """
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml"))


def find_recipe(name: str) -> Path:
    """Return the file of a recipe.

    Args:
        name: The path of a .toml file, or a name of `list_recipes()`.

    Raises:
        ValueError: There is no such recipe; the message has the nearest name.
    """
    from kinfold.registry import suggest

    path = Path(name)
    if path.suffix.lower() in _DATA:
        recipe = _DATA[path.suffix.lower()]
        raise ValueError(f"{name} is data, not a recipe: kinfold train {recipe} --root {name}")
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise ValueError(describe_missing(path, "recipe"))
        return path
    if name not in list_recipes():
        if path.exists():
            raise ValueError(f"{name!r} is data, not a recipe: kinfold train images --root {name}")
        raise ValueError(
            f"recipe {name!r} not found{suggest(name, list_recipes())}; "
            f"give a .toml file or one of {', '.join(list_recipes())}"
        )
    return FOLDER / f"{name}.toml"
