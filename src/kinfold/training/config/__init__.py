"""The configuration of a run.

| module | what it holds |
|---|---|
| `settings` | one dataclass per table of a recipe |
| `validation` | ranges of the settings, and combinations that are refused |
| `parsing` | TOML tables and `--set` changes to settings and back |
| `defaults` | what "auto" stands for with a loss |
| `resolution` | what "auto" stands for with a dataset |
"""

from kinfold.training.config.parsing import (
    apply_changes,
    configure,
    merge_tables,
    parse_table,
    read_tables,
    to_tables,
    to_toml,
)
from kinfold.training.config.settings import (
    DataConfig,
    EvaluationConfig,
    MemoryConfig,
    MixupConfig,
    ModelConfig,
    NamedConfig,
    OptimizerConfig,
    RunConfig,
    ScheduleConfig,
    TrainingConfig,
)

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "MemoryConfig",
    "MixupConfig",
    "ModelConfig",
    "NamedConfig",
    "OptimizerConfig",
    "RunConfig",
    "ScheduleConfig",
    "TrainingConfig",
    "apply_changes",
    "configure",
    "merge_tables",
    "parse_table",
    "read_tables",
    "to_tables",
    "to_toml",
]
