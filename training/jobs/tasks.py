# SPDX-License-Identifier: Apache-2.0
"""The tasks of `finetune`: the options of each, and which of them a command line means."""

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

from ..engine import config_flags, program
from ..engine.finetuning_config import FineTuningConfig
from ..engine.job import Job
from ..paper import recipes
from ..readers import glue, trec_files
from ..readers.data_files import exists
from ..readers.task_files import FileTask, data_kind, task_of_file
from . import reranking
from .classification import ClassificationJob, FewShotJob
from .multiple_choice import ChoiceJob
from .question_answering import QuestionJob
from .tagging import Tagging

# absl attributes the flags to the program, so that `--help` shows them.
flags.disclaim_key_flags()


@dataclasses.dataclass(frozen=True)
class FineTuningTask:
    """A value of `--task`.

    Args:
        config_class: The options.
        run: Reads the files that a config names, trains, and prints a report.
        settings: Options that the task sets, unless the command line does.
        job_class: How models of the task are scored and explained; `None` if they are not.
    """

    config_class: type[FineTuningConfig]
    run: Callable[[Any], None]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    job_class: type[Job] | None = None

    @property
    def options(self) -> list[str]:
        """The names of the options."""
        return list(self.config_class().to_dict())


def _task(job_class: type[Job], **settings: Any) -> FineTuningTask:
    run = functools.partial(program.fine_tune, job_class=job_class)
    return FineTuningTask(job_class.config_class, run, settings, job_class)


# The docstring of `training.finetune` says what each of them learns
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

# The task whose flags `--help` lists, and what is asked first about it
_DEFAULT = TASKS["classification"]
_FIRST = ("task", "train_file", "text", "label", "dev_file", "preset", "epochs", "output_dir")


def jobs_by_predict_method() -> dict[str, type[Job]]:
    """Returns the jobs by the verb of their task, for programs that score and explain models."""
    jobs = [task.job_class for task in TASKS.values() if task.job_class is not None]
    return {job.predict_method: job for job in jobs}


def jobs_by_kind() -> dict[str, type[Job]]:
    """Returns the jobs by the kind of the files that they are scored on, see `data_kind`."""
    jobs = {name: task.job_class for name, task in TASKS.items()}
    return {data_kind(name): job for name, job in jobs.items() if job is not None}


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines `--task`, `--recipe`, and a flag for each option of any task."""
    defined_names = _define_common_flags(flag_values)
    for task in TASKS.values():
        config_flags.define_flags(task.config_class(), flag_values, skip=defined_names)
        defined_names += task.options


def _define_common_flags(flag_values: flags.FlagValues) -> list[str]:
    description = (
        f"The task: {', '.join(TASKS)}; or a GLUE task of data_dir: {', '.join(glue.TASKS)}. "
        "Empty looks at the files."
    )
    flags.DEFINE_string("task", "", description, flag_values=flag_values)
    config_flags.define_recipe_flag(flag_values)
    return ["task", "recipe"]


def help_text() -> str:
    """Returns what `--help` prints: the flags of the task that is named beside it.

    Without one, those of classification, and the names of those that other tasks have.
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
        lines += ["", "Flags of other tasks, which --task=NAME --help describes:", ""]
        for line in _own_options():
            lines += textwrap.wrap(line, 100, initial_indent="  ", subsequent_indent=" " * 6)
    config_flags.define_flags(base, values, skip=defined_names)
    names = sorted(values, key=lambda name: (*_FIRST, name).index(name))
    return program.help_text([values[name] for name in names]) + "\n".join([*lines, ""])


def _own_options() -> list[str]:
    """Returns a line for each other class of options: its own, and of `_FIRST` what it lacks."""
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
    """Returns the names of the tasks by the class of their options, which some share."""
    names: dict[type, tuple[str, ...]] = {}
    for name, task in TASKS.items():
        names[task.config_class] = (*names.get(task.config_class, ()), name)
    return names


def task_from_flags(flag_values: flags.FlagValues = flags.FLAGS) -> tuple[FineTuningTask, Any]:
    """Returns the task that the flags mean, and its config.

    Where neither `--task` nor `--recipe` names it, the files tell it, and it is printed.

    Raises:
        FileNotFoundError: If the training file does not exist.
        ValueError: If there is no such task, a flag is for another task, a value is invalid, or the
            files do not tell the task; the message has what was looked at.
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
        name, reason, columns = _infer_task(values)
        if not values.get("process_id"):  # one of several processes
            print(f"task: {name}, since {reason} (--task names another)", flush=True)
        task, values = TASKS[name], {**columns, **values}
    for option in values:
        if option not in task.options:
            others = [other for other, its in TASKS.items() if option in its.options]
            raise ValueError(
                f"--{option} is a flag of --task={' and '.join(others)}, not of {name}"
            )
        if option in task.settings and not values[option]:
            value = values[option]
            raise ValueError(f"--task={name} contradicts --{option}={str(value).lower()}")
    base = task.config_class() if base is None else base
    if type(base) is not task.config_class:
        raise ValueError(
            f"--recipe={recipe} is for --task={_task_of_recipe(recipe, base)[0]}, not {name}"
        )
    settings = {
        option: value for option, value in task.settings.items() if not getattr(base, option)
    }
    return task, base.replace(**{**settings, **values})


def _find_task(name: str) -> FineTuningTask:
    if name in glue.TASKS:
        return TASKS["classification"]
    if name not in TASKS:
        raise ValueError(
            f"--task is {name!r}.{did_you_mean(name, (*TASKS, *glue.TASKS))} Expected one of "
            f"{', '.join(TASKS)}, or a GLUE task: {', '.join(glue.TASKS)}"
        )
    return TASKS[name]


def _task_of_recipe(recipe: str, config: FineTuningConfig) -> tuple[str, FineTuningTask]:
    for name, task in TASKS.items():
        if type(config) is task.config_class:
            return name, task
    raise ValueError(f"--recipe={recipe} is for another program: it has a {type(config).__name__}")


def _infer_task(values: Mapping[str, Any]) -> FileTask:
    """Returns the task of the files that the values of flags name."""
    folder = Path(values.get("data_dir", ""))
    if not values.get("train_file"):
        if not values.keys().isdisjoint(("documents", "queries", "qrels")):
            return FileTask("ranking", "a file of a collection is named")
        if trec_files.is_collection(folder):
            return FileTask("ranking", f"{folder} holds documents, queries and qrels")
        raise ValueError(
            "there is no --train_file to train on, and neither --recipe nor --task: expected one "
            f"of them, or in --data_dir, {str(folder)!r}, documents, queries and qrels"
        )
    path = folder / values["train_file"]
    if not exists(path):
        raise FileNotFoundError(f"{path} does not exist, expected a training file")
    if values.get("regression"):
        return FileTask("regression", "--regression is given")
    if values.get("multi_label"):
        return FileTask("multi_label", "--multi_label is given")
    if values.get("text_pair"):
        return FileTask("pairs", "--text_pair is given")
    return task_of_file(path, values.get("format", "auto"), values.get("text"))
