"""Code of the user's, loaded on request, that registers names of its own.

Nothing is loaded because a file says so: a recipe and a run folder hold names only.
"""

import importlib
import sys
from pathlib import Path

from kinfold import registry


def load(plugin: str) -> None:
    """Import a .py file, or a module by its name; it must register something.

    A file is imported under its own name, with its folder at the end of `sys.path`, so that other processes find by
    that name what it registers.
    """
    before = len(registry.added())
    name = plugin
    if plugin.endswith(".py"):
        file = Path(plugin).resolve()
        if not file.is_file():
            raise ValueError(f"there is no plugin {plugin}")
        name = file.stem
        if not name.isidentifier():
            raise ValueError(
                f"{plugin} cannot be imported: rename it so that {name!r} becomes a Python name, as my_loss.py"
            )
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
    again = name in sys.modules
    try:
        module = importlib.import_module(name)
    except Exception as wrong:
        raise ValueError(f"plugin {plugin} cannot be loaded: {type(wrong).__name__}: {wrong}") from wrong
    if plugin.endswith(".py") and Path(module.__file__ or "").resolve() != file:
        raise ValueError(f"{plugin} cannot be loaded: {name!r} is the name of another module here; rename the file")
    if len(registry.added()) == before and not again:
        raise ValueError(
            f'plugin {plugin} registers nothing: write @kinfold.register("losses", "my-loss") above a class of it'
        )
