# SPDX-License-Identifier: Apache-2.0
"""Configures `ablation`: the flags that each study uses, and their defaults."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from keras_bert import minilm
from keras_bert.config import BertConfig

from ..engine.options import (
    CommandConfig,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnusedFlags,
    check_one_of,
)
from ..readers import glue
from .feature_tagging_job import ROWS as FEATURES
from .recipes import wikitext2_cpu

RECIPE = wikitext2_cpu.CONFIG
SQUAD, NER = "squad", "ner"
# Prefix of the tasks that train a BiLSTM on frozen features, such as ner_last
NER_FEATURES = "ner_"
_TASKS = (*glue.TASKS, SQUAD, NER, *(NER_FEATURES + features for features in FEATURES))
_PRETRAINING = ("tasks", "data_dir", "num_steps", "pretraining_learning_rate")
_ENCODER = (*_PRETRAINING, "encoder")


class StudySettings(NamedTuple):
    """The flags of a study.

    Args:
        tasks: The tasks that the study's table in the paper has.
        flags: The flags that not every study has.
        pretraining_learning_rate: Default peak learning rate of pre-training.
        learning_rate: Default peak learning rate of fine-tuning. `None` if `finetune` chooses it.
    """

    tasks: tuple[str, ...]
    flags: tuple[str, ...]
    pretraining_learning_rate: float = RECIPE.optimization.learning_rate
    learning_rate: float | None = 5e-4


STUDY_SETTINGS: Mapping[str, StudySettings] = {
    "tasks": StudySettings(("mnli", "qnli", "mrpc", "sst2", SQUAD), ("bilstm_units", *_ENCODER)),
    # The recipe's learning rate is too high for the larger sizes.
    "size": StudySettings(("mnli", "mrpc", "sst2"), ("sizes", "match_flops", *_PRETRAINING), 1e-3),
    "masking": StudySettings(("mnli", NER, f"{NER_FEATURES}concatenated_last_4"), _ENCODER),
    "features": StudySettings((NER,), ("preset", "bilstm_units", "feature_epochs"), 0.0, None),
    "steps": StudySettings(("mnli",), ("num_points", *_ENCODER)),
}
_OF_SOME_STUDIES = {name for options in STUDY_SETTINGS.values() for name in options.flags}


@dataclasses.dataclass(frozen=True)
class AblationConfig(CommandConfig):
    """The data and settings for an ablation.

    Args:
        study: What differs between the rows: tasks (the pre-training tasks), size, masking (how
            selected tokens are replaced), features (for a frozen encoder) or steps (the number of
            pre-training steps).
        tasks: The columns of the table. GLUE tasks, such as sst2 and mnli, squad, ner, and
            feature-based ner, such as ner_last and ner_concatenated_last_4. Defaults to the paper's
            columns whose files exist.
        data_dir: Directory of WikiText-2's token files.
        glue_dir: Directory of the GLUE download.
        squad_dir: Directory of the files for the recipe minilm_squad_v1.
        ner_dir: Directory of the ner_files.
        ner_files: The training and validation file for ner, words and labels in columns.
        output_dir: Directory for all runs and the table. Defaults to runs/STUDY_ablation.
        preset: The encoder for --study=features, as in finetune.
        num_steps: Training steps per pre-training run.
        num_points: Number of presets along a pre-training run for --study=steps.
        encoder: The size of the encoder, except for --study=size and features.
        sizes: The encoders, as layers x hidden size x attention heads. Only for --study=size.
        match_flops: Whether to also train each size with the same number of FLOPs as the first
            size.
        pretraining_learning_rate: Peak learning rate of pre-training. Defaults to the learning rate
            in the recipe wikitext2_cpu, or to 1e-3 with --study=size.
        bilstm_units: Units per direction of the BiLSTM on an encoder or on features. In the paper,
            768 on features.
        feature_epochs: Number of epochs on features.
        train_rows: Number of examples to fine-tune on per task, in a random sample. 0 uses all.
        num_seeds: Number of fine-tuning runs per table cell.
        epochs: Number of epochs per fine-tuning run.
        learning_rate: Peak learning rate of fine-tuning. Defaults to 5e-4, or with --study=features
            to the default of finetune.
    """

    study: str = "tasks"
    tasks: tuple[str, ...] = ()
    data_dir: str = "wikitext-2"
    glue_dir: str = "glue"
    squad_dir: str = ""
    ner_dir: str = ""
    ner_files: tuple[str, ...] = ("wnut17train.conll", "emerging.dev.conll")
    output_dir: str = ""
    preset: str = minilm.NAME
    num_steps: PositiveInt = 2500
    num_points: PositiveInt = 5
    encoder: str = "4x128x2"
    sizes: tuple[str, ...] = ("2x64x1", "2x128x2", "4x128x2", "4x256x4")
    match_flops: bool = False
    pretraining_learning_rate: PositiveFloat | None = None
    bilstm_units: PositiveInt = 128
    feature_epochs: PositiveInt = 10
    train_rows: NonNegativeInt = 8000
    num_seeds: PositiveInt = 3
    epochs: PositiveInt = 3
    learning_rate: NonNegativeFloat | None = None

    def unused_flags(self) -> UnusedFlags:
        used = {*STUDY_SETTINGS[self.study].flags}
        tasks = self.task_names
        if any(name.startswith(NER_FEATURES) for name in tasks):
            used |= {"bilstm_units", "feature_epochs"}
        yield sorted(_OF_SOME_STUDIES - used), f"it does not apply to --study={self.study}"
        reason = "it does not apply to --tasks=" + ",".join(tasks)
        if not any(name in glue.TASKS for name in tasks):
            yield ["glue_dir"], reason
        if SQUAD not in tasks:
            yield ["squad_dir"], reason
        if not any(name.startswith(NER) for name in tasks):
            yield ["ner_dir", "ner_files"], reason

    def __post_init__(self) -> None:
        check_one_of(self, study=tuple(STUDY_SETTINGS))
        super().__post_init__()
        unknown = [name for name in self.task_names if name not in _TASKS]
        if unknown or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(
                f"--tasks must be distinct names in {', '.join(_TASKS)}. Received: "
                f"{','.join(self.tasks)}"
            )
        if len(self.ner_files) != 2:
            raise ValueError(
                "--ner_files must be a training and a validation file. Received: "
                f"{','.join(self.ner_files)}"
            )
        Size.parsed(self.encoder)
        if not self.sizes or len(set(self.parsed_sizes())) < len(self.sizes):
            raise ValueError(f"--sizes must be distinct sizes. Received: {','.join(self.sizes)}")
        if self.study == "steps" and self.num_steps % self.num_points:
            raise ValueError(
                f"--num_steps must be a multiple of --num_points, which is {self.num_points}. "
                f"Received: {self.num_steps}"
            )

    @property
    def task_names(self) -> tuple[str, ...]:
        """The columns of the table."""
        return self.tasks or STUDY_SETTINGS[self.study].tasks

    @property
    def directory(self) -> Path:
        """The directory for all runs and the table."""
        return Path(self.output_dir or f"runs/{self.study}_ablation")

    @property
    def pretraining_rate(self) -> float:
        """The peak learning rate of pre-training."""
        default = STUDY_SETTINGS[self.study].pretraining_learning_rate
        return self.pretraining_learning_rate or default

    @property
    def finetuning_rate(self) -> float | None:
        """The peak learning rate of fine-tuning. `None` if `finetune` chooses it."""
        default = STUDY_SETTINGS[self.study].learning_rate
        return default if self.learning_rate is None else self.learning_rate

    def parsed_sizes(self) -> list[Size]:
        """Returns the sizes.

        Raises:
            ValueError: If a size is invalid.
        """
        return list(map(Size.parsed, self.sizes))


class Size(NamedTuple):
    """An encoder size. Feed-forward layers have four times the hidden size."""

    num_layers: int
    hidden_dim: int
    num_heads: int

    @classmethod
    def parsed(cls, text: str) -> Size:
        """Parses a size such as 4x128x2."""
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
        if match is None:
            raise ValueError(
                f"a size must be layers x hidden size x heads, such as 4x128x2. Received: {text!r}"
            )
        size = cls(*map(int, match.groups()))
        if size.hidden_dim % size.num_heads:
            raise ValueError(
                "a size must have a hidden size divisible by the number of heads. Received: "
                f"{text!r}"
            )
        return size

    def __str__(self) -> str:
        return "x".join(map(str, self))

    def config(self) -> BertConfig:
        """Returns the encoder's config, with the vocabulary size of the recipe wikitext2_cpu."""
        sizes = {**self._asdict(), "intermediate_dim": 4 * self.hidden_dim}
        return BertConfig(vocabulary_size=RECIPE.text.vocabulary_size, **sizes)

    def step_flops(self) -> int:
        """Returns the FLOPs per example in a training step of the recipe wikitext2_cpu."""
        from ..costs import model_flops

        (phase,) = RECIPE.optimization.plan()
        slots = round(0.15 * phase.sequence_length)
        return model_flops.training_flops(self.config(), 1, phase.sequence_length, slots, False)
