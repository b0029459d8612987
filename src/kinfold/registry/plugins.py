"""Load a user's file or module that registers names.

Plugins are loaded only on request: a recipe or a run folder holds names, and never loads code.
"""

import importlib
import sys
from pathlib import Path

from kinfold.registry.lookup import list_added


def load(plugin: str) -> None:
    """Import a plugin, which must register at least one name.

    A file is imported under its own name, and its folder is added to the end of `sys.path`, so that worker processes
    can import it too.

    Args:
        plugin: Path of a .py file, or name of a module.

    Raises:
        ValueError: The plugin does not exist, cannot be imported, or registers nothing.
    """
    count_before = len(list_added())
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
    is_loaded = name in sys.modules
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise ValueError(f"plugin {plugin} cannot be loaded: {type(error).__name__}: {error}") from error
    if plugin.endswith(".py") and Path(module.__file__ or "").resolve() != file:
        raise ValueError(f"{plugin} cannot be loaded: {name!r} is the name of another module here; rename the file")
    if len(list_added()) == count_before and not is_loaded:
        raise ValueError(
            f'plugin {plugin} registers nothing: write @kinfold.register("losses", "my-loss") above a class of it'
        )
