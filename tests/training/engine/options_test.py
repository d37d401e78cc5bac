# SPDX-License-Identifier: Apache-2.0
"""Checks the numbers that flags accept. No flag accepts NaN."""

import ast
import dataclasses
import importlib
from typing import get_type_hints

import pytest
from absl import flags

from tests.source_imports import source_files
from training.engine.config_flags import configuration, define_flags
from training.engine.options import CommandConfig, PositiveInt
from training.jobs.classification import FinetuneConfig
from training.pretraining.config import PretrainConfig

pytestmark = pytest.mark.backend_independent


@dataclasses.dataclass(frozen=True)
class Example(CommandConfig):
    rate: float = 0.5
    count: PositiveInt | None = None
    column: int = -1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": float("nan")}, "--rate must be a finite number"),
        ({"rate": float("inf")}, "--rate must be a finite number"),
        ({"count": 0}, "--count must be an integer above 0"),
        ({"column": 1.5}, r"--column must be an integer"),
    ],
)
def test_field_type_restricts_its_numbers(changes, message):
    assert Example(count=3, column=-2).count == 3
    with pytest.raises(ValueError, match=message):
        Example(**changes)


@pytest.mark.parametrize(
    ("config", "flag", "expected"),
    [
        (FinetuneConfig, "--learning_rate=nan", "a finite number of at least 0"),
        (FinetuneConfig, "--dropout=1", r"a number in \[0, 1\)"),
        (FinetuneConfig, "--seed=-1", r"an integer in \[0, 4294967296\)"),
        (PretrainConfig, "--phases=128:1.5,512:-0.5", r"a number in \(0, 1\]"),
    ],
)
def test_out_of_range_flag_raises(config, flag, expected):
    values = flags.FlagValues()
    define_flags(config(), values)
    values(["program", flag])
    with pytest.raises(ValueError, match=f"{flag.partition('=')[0]}.* must be {expected}"):
        configuration(config, values)


CONFIGS = [
    (module, node.name)
    for module, path in source_files().items()
    if module.startswith("training")
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Options"))
]


@pytest.mark.parametrize(("module", "name"), CONFIGS)
def test_every_command_config_rejects_nan(module, name):
    config_class = getattr(importlib.import_module(module), name)
    assert issubclass(config_class, CommandConfig)
    fields, hints = dataclasses.fields(config_class), get_type_hints(config_class)
    for field in fields:
        is_tuple = hints[field.name] == tuple[float, ...]
        if is_tuple or hints[field.name] in (float, float | None):
            value = (0.5, float("nan")) if is_tuple else float("nan")
            with pytest.raises(ValueError, match=rf"--{field.name} must be .*\. Received: nan"):
                config_class(**{field.name: value})
