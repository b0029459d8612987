"""Files on disk: safe paths, atomic writes, locks, checksums, documents, state with tensors, caches.

| module | what it does |
|---|---|
| `paths` | read, append, create and delete below a folder without following links |
| `atomic` | write a file completely or not at all |
| `locks` | let one process at a time work in a folder |
| `checksums` | sha256 of files, strings and arrays |
| `documents` | read JSON and TOML files and check their shape; results with a checksum |
| `state` | nested state with tensors in one safetensors file |
| `cache` | `load_or_compute`: values that are computed once and kept in a folder |

No content of a file is executed, and nothing outside of the folder that the user named is written or deleted.
Import from the modules: `from kinfold.files.atomic import write_text`.
"""

__all__: list[str] = []
