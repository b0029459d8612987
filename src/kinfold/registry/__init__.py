"""Names of everything that can be created by name. Listing names imports nothing.

A target is `module:attribute`; it is imported when its name is first used. Users add names with `register`, or with
entry points of their package in the groups `kinfold.losses`, `kinfold.miners` and so on.

- `builtin`: the table of built-in names. A new loss adds one line there.
- `lookup`: list, resolve, create and register names.
- `options`: check options against the signature of their target.
- `hints`: names and options of other libraries, for error messages.
- `documentation`: summaries and arguments of a name, read from docstrings.
- `plugins`: load a user's file that registers names.
"""

from kinfold.registry.lookup import (
    check_choice,
    check_known,
    create,
    kinds,
    list_added,
    names,
    register,
    resolve,
    suggest,
    targets,
)

__all__ = [
    "check_choice",
    "check_known",
    "create",
    "kinds",
    "list_added",
    "names",
    "register",
    "resolve",
    "suggest",
    "targets",
]
