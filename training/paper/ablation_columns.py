# SPDX-License-Identifier: Apache-2.0
"""The columns of an ablation's table: tasks, with the command that trains them and the metric."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from absl import logging

from ..readers import glue
from .ablation_config import NER, NER_FEATURES, SQUAD, AblationConfig
from .recipes import minilm_squad_v1


class Column(NamedTuple):
    """A task.

    Args:
        command: The module that trains the task, followed by its flags.
        own_encoder_flags: Additional flags for encoders that the study pre-trains, because the
            recipe wikitext2_cpu uses sequences of at most 64 tokens and no dropout.
        metric: The metric to report.
        directory_flag: The flag with the directory of its files.
        files: Its files, relative to this directory.
    """

    command: tuple[str, ...]
    own_encoder_flags: tuple[str, ...]
    metric: str
    directory_flag: str
    files: tuple[str, ...]


def column(config: AblationConfig, name: str) -> Column:
    """Returns the column of a task in `AblationConfig.tasks`."""
    if name == SQUAD:
        return _squad_column(config)
    if name.startswith(NER):
        return _ner_column(config, name)
    task = glue.TASKS[name]
    finetune = ("training.finetune", "--noexport", f"--task={name}")
    files = (f"--data_dir={config.glue_dir}", f"--train_rows={config.train_rows}")
    return Column(
        (*finetune, *files, *_finetuning_flags(config)),
        ("--sequence_length=64", "--dropout=0.1"),
        # The paper reports the accuracy of MRPC, and Spearman's correlation of STS-B.
        "accuracy" if "accuracy" in task.metrics else task.metrics[-1],
        "glue_dir",
        tuple(f"{task.directory}/{split}.tsv" for split in ("train", *task.dev_splits)),
    )


def _squad_column(config: AblationConfig) -> Column:
    finetune = ("training.finetune", "--noexport", "--task=question_answering")
    recipe = ("--recipe=minilm_squad_v1", f"--data_dir={config.squad_dir}")
    return Column(
        (*finetune, *recipe, f"--train_rows={config.train_rows}", *_finetuning_flags(config)),
        ("--sequence_length=64", "--doc_stride=24", "--max_query_length=24"),
        "f1",
        "squad_dir",
        (minilm_squad_v1.CONFIG.train_file, minilm_squad_v1.CONFIG.dev_file),
    )


def _ner_column(config: AblationConfig, name: str) -> Column:
    train, dev = config.ner_files
    files = (f"--data_dir={config.ner_dir}", f"--train_file={train}", f"--dev_file={dev}")
    rows = f"--train_rows={config.train_rows}"
    if name == NER:
        command = ("training.finetune", "--noexport", "--task=tagging", *files, rows)
        command += _finetuning_flags(config)
        encoder_flags = ("--sequence_length=64", "--dropout=0.1")
    else:
        command = (
            "training.paper.feature_tagging",
            f"--features={name.removeprefix(NER_FEATURES)}",
            f"--cache_dir={config.directory / 'features'}",
            f"--lstm_units={config.bilstm_units}",
            f"--epochs={config.feature_epochs}",
            f"--num_seeds={config.num_seeds}",
            *files,
            rows,
        )
        encoder_flags = ("--sequence_length=64",)
    return Column(command, encoder_flags, "f1", "ner_dir", config.ner_files)


def _finetuning_flags(config: AblationConfig) -> tuple[str, ...]:
    flags = (f"--num_seeds={config.num_seeds}", f"--epochs={config.epochs}")
    rate = config.finetuning_rate
    return flags if rate is None else (*flags, f"--learning_rate={rate}")


def with_existing_tasks(config: AblationConfig) -> AblationConfig:
    """Checks the files of the given tasks, or selects the paper's tasks whose files exist.

    Raises:
        FileNotFoundError: If a file of a given task does not exist, or if no task has its files.
    """
    absent = {}
    for name in config.task_names:
        its = column(config, name)
        directory = Path(getattr(config, its.directory_flag))
        missing = [file for file in its.files if not (directory / file).is_file()]
        if missing or directory == Path():
            absent[name] = f"--{its.directory_flag} must contain {', '.join(its.files)}. Received: "
            absent[name] += f"{getattr(config, its.directory_flag)!r}"
    present = tuple(name for name in config.task_names if name not in absent)
    if absent and (config.tasks or not present):
        message = next(iter(absent.values()))
        raise FileNotFoundError(
            f"{message}. To score other tasks, set --tasks, for example --tasks=sst2,mrpc"
        )
    for name, message in absent.items():
        logging.warning("without %s: %s", name, message)
    return config.replace(tasks=present) if absent else config
