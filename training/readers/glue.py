# SPDX-License-Identifier: Apache-2.0
"""The nine GLUE tasks in the layout of the official download.

Reference:
    [Wang et al., 2018](https://arxiv.org/abs/1804.07461).
"""

import dataclasses
import os
import warnings
from pathlib import Path

from .data_files import Header
from .labeled_text import LabeledText, TextColumns, read_labeled_text
from .row_values import BadRows


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """The files and metrics of a GLUE task.

    Args:
        name: The task's name, such as `sst2`.
        directory: The task's directory in the download.
        text: The column of the text, by name, or by index if the file has no header.
        metrics: The official metrics, see `classifier_scores`. GLUE averages their mean over the
            tasks.
        text_pair: The column of the second text. Empty for single sentences.
        label: The column of the label. Test files have no labels.
        file_labels: The labels in the files, in the order of their IDs. `None` for regression.
        class_names: Readable names of the classes, in the same order.
        header: Whether `train.tsv` and `dev.tsv` have a header. `test.tsv` always has one.
        test_text: The column of the text in `test.tsv`, if it is different.
        dev_splits: The names of the validation files.
        test_splits: The names of the test files.
    """

    name: str
    directory: str
    text: str
    metrics: tuple[str, ...]
    text_pair: str = ""
    label: str = "label"
    file_labels: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    header: Header = "yes"
    test_text: str | None = None
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    @property
    def regression(self) -> bool:
        """Whether the labels are scores."""
        return self.file_labels is None

    @property
    def num_classes(self) -> int:
        """The number of outputs of the model: 1 for regression."""
        return 1 if self.file_labels is None else len(self.file_labels)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the files, without `.tsv`."""
        return ("train", *self.dev_splits, *self.test_splits)


_ENTAILMENT = ("entailment", "not_entailment")
_MATCHES = ("matched", "mismatched")

TASKS = {
    task.name: task
    for task in (
        GlueTask(
            name="cola",
            directory="CoLA",
            text="3",
            label="1",
            header="no",
            test_text="sentence",
            file_labels=("0", "1"),
            class_names=("unacceptable", "acceptable"),
            metrics=("mcc",),
        ),
        GlueTask(
            name="sst2",
            directory="SST-2",
            text="sentence",
            file_labels=("0", "1"),
            class_names=("negative", "positive"),
            metrics=("accuracy",),
        ),
        GlueTask(
            name="mrpc",
            directory="MRPC",
            text="#1 String",
            text_pair="#2 String",
            label="Quality",
            file_labels=("0", "1"),
            class_names=("not_equivalent", "equivalent"),
            metrics=("f1", "accuracy"),
        ),
        GlueTask(
            name="stsb",
            directory="STS-B",
            text="sentence1",
            text_pair="sentence2",
            label="score",
            metrics=("pearson", "spearman"),
        ),
        GlueTask(
            name="qqp",
            directory="QQP",
            text="question1",
            text_pair="question2",
            label="is_duplicate",
            file_labels=("0", "1"),
            class_names=("not_duplicate", "duplicate"),
            metrics=("f1", "accuracy"),
        ),
        GlueTask(
            name="mnli",
            directory="MNLI",
            text="sentence1",
            text_pair="sentence2",
            label="gold_label",
            file_labels=("contradiction", "entailment", "neutral"),
            class_names=("contradiction", "entailment", "neutral"),
            metrics=("accuracy",),
            dev_splits=tuple(f"dev_{match}" for match in _MATCHES),
            test_splits=tuple(f"test_{match}" for match in _MATCHES),
        ),
        GlueTask(
            name="qnli",
            directory="QNLI",
            text="question",
            text_pair="sentence",
            file_labels=_ENTAILMENT,
            class_names=_ENTAILMENT,
            metrics=("accuracy",),
        ),
        GlueTask(
            name="rte",
            directory="RTE",
            text="sentence1",
            text_pair="sentence2",
            file_labels=_ENTAILMENT,
            class_names=_ENTAILMENT,
            metrics=("accuracy",),
        ),
        GlueTask(
            name="wnli",
            directory="WNLI",
            text="sentence1",
            text_pair="sentence2",
            file_labels=("0", "1"),
            class_names=("not_entailment", "entailment"),
            metrics=("accuracy",),
        ),
    )
}


def find_task(name: str) -> GlueTask:
    """Finds a task by its name or directory: `sst2`, `SST-2` and `sst_2` are equivalent.

    Raises:
        ValueError: If the task is unknown.
    """
    if name == "all":
        raise ValueError(
            "the GLUE task must be a single task. Received: all. To run all tasks, use the command "
            "finetune_glue"
        )
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        raise ValueError(f"the GLUE task must be one of {', '.join(TASKS)}. Received: {name!r}")
    return TASKS[key]


def read_split(data_dir: str | os.PathLike[str], task: GlueTask | str, split: str) -> LabeledText:
    """Reads one of a task's files.

    Empty texts are kept, because official scores cover all examples. Invalid rows in the download
    (QQP has some) are skipped with a warning. Examples without agreement between the annotators
    (`-`) are also skipped.

    Args:
        data_dir: The directory of the GLUE download, or the task's directory itself.
        task: A task or its name.
        split: The file without `.tsv`: `train`, `dev` or `test`. For MNLI: `train`, `dev_matched`,
            `dev_mismatched`, `test_matched` or `test_mismatched`.

    Returns:
        The examples in the order of the file, with `task.class_names`. A test split has no labels.

    Raises:
        ValueError: If the task or split is unknown, or the file is invalid.
        FileNotFoundError: If the file does not exist.
    """
    if isinstance(task, str):
        task = find_task(task)
    if split not in task.splits:
        raise ValueError(
            f"the split of {task.directory} must be one of {', '.join(task.splits)}. Received: "
            f"{split!r}"
        )
    is_test = split in task.test_splits
    path, bad = _split_path(Path(data_dir), task, split), BadRows(collect=True)
    columns = TextColumns(
        text=task.test_text if is_test and task.test_text else task.text,
        text_pair=task.text_pair,
        label=task.label,
        header="yes" if is_test else task.header,
        quoting="none",
        allow_empty=True,
        regression=task.regression,
        skip_labels=("-",),
    )
    data = read_labeled_text(path, columns, task.file_labels, labeled=not is_test, bad=bad)
    if bad.messages:
        total = len(bad.messages) + len(data)
        warnings.warn(
            f"skipped {len(bad.messages)} of {total} rows: {bad.messages[0]}", stacklevel=2
        )
    return dataclasses.replace(data, class_names=task.class_names)


def read_diagnostic(data_dir: str | os.PathLike[str]) -> LabeledText | None:
    """Reads the diagnostic set for MNLI classifiers, or returns `None` if it does not exist.

    Its file name depends on the download: `AX/test.tsv`, `diagnostic/diagnostic.tsv` or
    `MNLI/diagnostic.tsv`.
    """
    for name in ("AX/test.tsv", "diagnostic/diagnostic.tsv", "MNLI/diagnostic.tsv"):
        path = Path(data_dir) / name
        if path.exists():
            columns = TextColumns(
                text="sentence1", text_pair="sentence2", header="yes", quoting="none"
            )
            return read_labeled_text(path, columns, labeled=False)
    return None


def _split_path(data_dir: Path, task: GlueTask, split: str) -> Path:
    """Returns the split's path. `data_dir` may also be the task's own directory."""
    inside = data_dir / task.directory / f"{split}.tsv"
    if not inside.exists() and data_dir.resolve().name.lower() == task.directory.lower():
        inside = data_dir / f"{split}.tsv"
    if not inside.exists():
        raise FileNotFoundError(
            f"{data_dir} must be the GLUE download, with "
            f"{task.directory}/{{{','.join(task.splits)}}}.tsv. Received: no {inside}"
        )
    return inside
