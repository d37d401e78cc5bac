# SPDX-License-Identifier: Apache-2.0
"""The tasks of `finetune`, their options, and how the task is inferred from the command line."""

from __future__ import annotations

import dataclasses
import functools
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from absl import flags

from keras_bert.checks import did_you_mean
from keras_bert.data.text_files import UTF_8

from ..engine import config_flags, program
from ..engine.finetuning_config import FineTuningConfig, LabeledFilesConfig
from ..engine.grid_search import HYPERPARAMETERS, Grid
from ..engine.job import Job
from ..paper import recipes
from ..readers import glue, trec_files
from ..readers.data_files import exists
from ..readers.task_files import FileTask, data_kind, task_of_file
from . import reranking
from .classification import ClassificationJob, FewShotJob, FinetuneConfig
from .multiple_choice import ChoiceJob
from .question_answering import QuestionJob
from .tagging import Tagging

# absl attributes the flags to the module that calls `define_flags`, so that `--help` shows them.
flags.disclaim_key_flags()


@dataclasses.dataclass(frozen=True)
class FineTuningTask:
    """A value of `--task`.

    Args:
        config_class: The class of the config.
        run: Reads the config's files, trains, and prints a report. If the config is a
            `LabeledFilesConfig`, it accepts a `grid` to search.
        settings: Options that the task sets unless they are given on the command line.
        job_class: The job that scores and explains models of the task, or `None`.
    """

    config_class: type[FineTuningConfig]
    run: Callable[..., None]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    job_class: type[Job] | None = None

    @property
    def options(self) -> list[str]:
        """The names of the options."""
        return list(self.config_class().to_dict())


def _task(job_class: type[Job], **settings: Any) -> FineTuningTask:
    run = functools.partial(program.fine_tune, job_class=job_class)
    return FineTuningTask(job_class.config_class, run, settings, job_class)


# See the docstring of `training.finetune` for what each task learns.
TASKS = {
    "classification": _task(ClassificationJob),
    "pairs": _task(ClassificationJob, text_pair="text_pair"),
    "regression": _task(ClassificationJob, regression=True),
    "multi_label": _task(ClassificationJob, multi_label=True),
    "few_shot": dataclasses.replace(_task(FewShotJob), job_class=None),
    "tagging": _task(Tagging),
    "question_answering": _task(QuestionJob),
    "multiple_choice": _task(ChoiceJob),
    "ranking": FineTuningTask(reranking.RerankConfig, reranking.run_program),
}

# The task whose flags `--help` lists, and the flags that it lists first
_DEFAULT = TASKS["classification"]
_FIRST = ("task", "train_file", "text", "label", "dev_file", "preset", "epochs", "output_dir")


def jobs_by_predict_method() -> dict[str, type[Job]]:
    """Returns the jobs by the prediction method of their task, to score and explain models."""
    jobs = [task.job_class for task in TASKS.values() if task.job_class is not None]
    return {job.predict_method: job for job in jobs}


def jobs_by_kind() -> dict[str, type[Job]]:
    """Returns the jobs by the type of their evaluation files, see `data_kind`."""
    jobs = {name: task.job_class for name, task in TASKS.items()}
    return {data_kind(name): job for name, job in jobs.items() if job is not None}


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines `--task`, `--recipe` and a flag for each option of any task."""
    defined_names = _define_common_flags(flag_values)
    for task in TASKS.values():
        config_flags.define_flags(
            task.config_class(), flag_values, skip=defined_names, lists=HYPERPARAMETERS
        )
        defined_names += task.options


def _define_common_flags(flag_values: flags.FlagValues) -> list[str]:
    description = (
        f"One of {', '.join(TASKS)}, or a GLUE task in data_dir: {', '.join(glue.TASKS)}. By "
        "default, the task is inferred from the files."
    )
    flags.DEFINE_string("task", "", description, flag_values=flag_values)
    config_flags.define_recipe_flag(flag_values)
    return ["task", "recipe"]


def help_text() -> str:
    """Returns what `--help` prints: the flags of the task given by `--task`.

    Without `--task`, lists the flags of classification, and the names of other tasks' flags.
    """
    values = flags.FlagValues()
    defined_names = _define_common_flags(values)
    values([word for word in sys.argv if word not in program.HELP_FLAGS], known_only=True)
    name, recipe = values["task"].value, values["recipe"].value
    base = recipes.load(recipe, FineTuningConfig) if recipe else None
    lines: list[str] = []
    if name:
        base = _find_task(name).config_class()
    elif base is None:
        base = _DEFAULT.config_class()
        lines += ["", "Flags of other tasks, described by --task=NAME --help:", ""]
        for line in _own_options():
            lines += textwrap.wrap(line, 100, initial_indent="  ", subsequent_indent=" " * 6)
    config_flags.define_flags(base, values, skip=defined_names)
    names = sorted(values, key=lambda name: (*_FIRST, name).index(name))
    return program.help_text([values[name] for name in names]) + "\n".join([*lines, ""])


def _own_options() -> list[str]:
    """Returns a line per config class with its own options, and the options that it lacks."""
    shared = _DEFAULT.options
    lines = []
    for config_class, names in tasks_by_config().items():
        if config_class is _DEFAULT.config_class:
            continue
        options = TASKS[names[0]].options
        own = [f"--{option}" for option in options if option not in shared]
        lacking = [f"--{option}" for option in _FIRST[1:] if option not in options]
        parts = [" ".join(own), f"no {' '.join(lacking)}" if lacking else ""]
        lines.append(f"{', '.join(names)}: {'; '.join(filter(None, parts))}")
    return lines


def tasks_by_config() -> dict[type, tuple[str, ...]]:
    """Returns the names of the tasks by config class. Some tasks share a class."""
    names: dict[type, tuple[str, ...]] = {}
    for name, task in TASKS.items():
        names[task.config_class] = (*names.get(task.config_class, ()), name)
    return names


def task_from_flags(
    flag_values: flags.FlagValues = flags.FLAGS,
) -> tuple[FineTuningTask, Any, Grid | None]:
    """Returns the task that the flags select, its config, and the grid if a flag has a list.

    The config has the first value of each list. Without `--task` and `--recipe`, the task is
    inferred from the files and printed.

    Raises:
        FileNotFoundError: If the training file does not exist.
        ValueError: If the task does not exist, if a flag belongs to a different task, if a value is
            invalid, or if the task cannot be inferred from the files. The message lists what was
            checked.
    """
    values: dict[str, Any] = {}
    for task in TASKS.values():
        values |= config_flags.given_flags(task.config_class, flag_values)
    name, recipe = values.pop("task", ""), flag_values["recipe"].value
    base = recipes.load(recipe, FineTuningConfig) if recipe else None
    if name:
        task = _find_task(name)
        if "task" in task.options:
            values["task"] = name if name in glue.TASKS else ""
    elif base is not None:
        name, task = _task_of_recipe(recipe, base)
    else:
        name, reason = _infer_task(values)
        if not values.get("process_id"):  # Only one of multiple processes prints.
            print(f"task: {name}, because {reason} (change it with --task)", flush=True)
        task = TASKS[name]
    for option in values:
        if option not in task.options:
            others = [other for other, its in TASKS.items() if option in its.options]
            raise ValueError(
                f"--{option} is a flag of --task={' and '.join(others)}, not of {name}"
            )
        if option in task.settings and not values[option]:
            value = values[option]
            raise ValueError(f"--{option} must not be {str(value).lower()} with --task={name}")
    lists = {
        option: values[option]
        for option in HYPERPARAMETERS
        if isinstance(values.get(option), tuple)
    }
    values |= {option: items[0] for option, items in lists.items()}
    base = task.config_class() if base is None else base
    if type(base) is not task.config_class:
        raise ValueError(
            f"--recipe={recipe} is for --task={_task_of_recipe(recipe, base)[0]}, not {name}"
        )
    settings = {
        option: value for option, value in task.settings.items() if not getattr(base, option)
    }
    config = base.replace(**{**settings, **values})
    if isinstance(config, FinetuneConfig) and config.train_file and not config.task:
        path = Path(config.data_dir, config.train_file)
        config = config.for_file(str(path)) if exists(path) else config
    if not lists:
        return task, config, None
    if not isinstance(config, LabeledFilesConfig):
        raise ValueError(
            f"--{next(iter(lists))} must be a single number with --task={name}, because it has no "
            "validation data to select a value with. Received: a list"
        )
    return task, config, Grid(name, config, lists)


def _find_task(name: str) -> FineTuningTask:
    if name in glue.TASKS:
        return TASKS["classification"]
    if name not in TASKS:
        raise ValueError(
            f"--task must be one of {', '.join(TASKS)}, or a GLUE task: {', '.join(glue.TASKS)}. "
            f"Received: {name!r}.{did_you_mean(name, (*TASKS, *glue.TASKS))}"
        )
    return TASKS[name]


def _task_of_recipe(recipe: str, config: FineTuningConfig) -> tuple[str, FineTuningTask]:
    for name, task in TASKS.items():
        if type(config) is task.config_class:
            return name, task
    raise ValueError(
        f"--recipe={recipe} belongs to a different command (it defines a {type(config).__name__})"
    )


def _infer_task(values: Mapping[str, Any]) -> FileTask:
    """Infers the task from the files given by the flags."""
    directory = Path(values.get("data_dir", ""))
    if not values.get("train_file"):
        if not values.keys().isdisjoint(("documents", "queries", "qrels")):
            return FileTask("ranking", "documents, queries or qrels are given")
        if trec_files.is_collection(directory):
            return FileTask("ranking", f"{directory} contains documents, queries and qrels")
        raise ValueError(
            "pass --train_file, --task or --recipe, or put documents, queries and qrels in "
            f"--data_dir. Received: no such files in {str(directory)!r}"
        )
    path = directory / values["train_file"]
    if not exists(path):
        raise FileNotFoundError(f"{path} does not exist. It must be a training file")
    if values.get("regression"):
        return FileTask("regression", "--regression is given")
    if values.get("multi_label"):
        return FileTask("multi_label", "--multi_label is given")
    if values.get("text_pair"):
        return FileTask("pairs", "--text_pair is given")
    return task_of_file(
        path,
        values.get("format", "auto"),
        values.get("text"),
        encoding=values.get("encoding", UTF_8),
    )
