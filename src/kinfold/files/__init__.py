"""Files on disk: safe paths, atomic writes, locks, checksums, JSON and TOML documents, tensors, caches.

| module | what it holds |
|---|---|
| `paths` | regular files below a folder, without following links |
| `atomic` | files that are written completely or not at all |
| `locks` | folders in which one process works at a time |
| `checksums` | sha256 of files and arrays |
| `documents` | JSON and TOML files, read and checked by one reader |
| `state` | nested state with tensors in one safetensors file |
| `cache` | computed values kept in a folder |

Nothing that a file says is executed, and nothing outside of the folder that the user named is written or deleted.
"""
