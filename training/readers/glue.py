# SPDX-License-Identifier: Apache-2.0
"""The nine GLUE tasks in the layout of the official download, one row of values each.

Reference:

- [Wang et al., 2018](https://arxiv.org/abs/1804.07461).
"""

import dataclasses
import os
from pathlib import Path

from .labelled_text import LabelledText, read_labelled_text


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """What sets one task's files apart from another's.

    Args:
        name: Its name here.
        folder: Its folder in the download.
        text: The column of the text, by name, or by number in a file without a header.
        metrics: The official ones, as `classifier_scores` calls them; the mean of them is what
            the benchmark averages over tasks.
        text_pair: The column of the second text; `None` for single sentences.
        label: The column of the label. Test files have none.
        file_labels: The labels as the files spell them, in the order of the ids; `None` for
            regression.
        class_names: The classes for people to read, in the same order.
        header: Whether `train.tsv` and `dev.tsv` name their columns; `test.tsv` always does.
        test_text: The column of the text in `test.tsv`, where it is another.
        dev_splits: The names of the development files.
        test_splits: The names of the test files.
    """

    name: str
    folder: str
    text: str | int
    metrics: tuple[str, ...]
    text_pair: str | None = None
    label: str | int = "label"
    file_labels: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    header: bool = True
    test_text: str | None = None
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    @property
    def regression(self) -> bool:
        """Whether the labels are scores."""
        return self.file_labels is None

    @property
    def num_classes(self) -> int:
        """How many outputs the model has: 1 for regression."""
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
            folder="CoLA",
            text=3,
            label=1,
            header=False,
            test_text="sentence",
            file_labels=("0", "1"),
            class_names=("unacceptable", "acceptable"),
            metrics=("mcc",),
        ),
        GlueTask(
            name="sst2",
            folder="SST-2",
            text="sentence",
            file_labels=("0", "1"),
            class_names=("negative", "positive"),
            metrics=("accuracy",),
        ),
        GlueTask(
            name="mrpc",
            folder="MRPC",
            text="#1 String",
            text_pair="#2 String",
            label="Quality",
            file_labels=("0", "1"),
            class_names=("not_equivalent", "equivalent"),
            metrics=("f1", "accuracy"),
        ),
        GlueTask(
            name="stsb",
            folder="STS-B",
            text="sentence1",
            text_pair="sentence2",
            label="score",
            metrics=("pearson", "spearman"),
        ),
        GlueTask(
            name="qqp",
            folder="QQP",
            text="question1",
            text_pair="question2",
            label="is_duplicate",
            file_labels=("0", "1"),
            class_names=("not_duplicate", "duplicate"),
            metrics=("f1", "accuracy"),
        ),
        GlueTask(
            name="mnli",
            folder="MNLI",
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
            folder="QNLI",
            text="question",
            text_pair="sentence",
            file_labels=_ENTAILMENT,
            class_names=_ENTAILMENT,
            metrics=("accuracy",),
        ),
        GlueTask(
            name="rte",
            folder="RTE",
            text="sentence1",
            text_pair="sentence2",
            file_labels=_ENTAILMENT,
            class_names=_ENTAILMENT,
            metrics=("accuracy",),
        ),
        GlueTask(
            name="wnli",
            folder="WNLI",
            text="sentence1",
            text_pair="sentence2",
            file_labels=("0", "1"),
            class_names=("not_entailment", "entailment"),
            metrics=("accuracy",),
        ),
    )
}


def find_task(name: str) -> GlueTask:
    """Finds a task by its name or its folder's: `sst2`, `SST-2` and `sst_2` are one.

    Raises:
        ValueError: If there is no such task.
    """
    if name == "all":
        raise ValueError("all of GLUE is what the program finetune_glue does")
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        raise ValueError(f"no GLUE task {name!r}, expected one of {', '.join(TASKS)}")
    return TASKS[key]


def read_split(data_dir: str | os.PathLike[str], task: GlueTask | str, split: str) -> LabelledText:
    """Reads one file of a task.

    Empty texts are kept, since scores are compared over all examples. Rows that are broken in
    the download itself (QQP has some) are skipped with a warning, and so are examples whose
    annotators did not agree (`-`).

    Args:
        data_dir: The folder that holds the tasks' folders, or the task's folder itself.
        task: A task or its name.
        split: The file without `.tsv`: `train`, `dev`, `test`; of MNLI `dev_matched`,
            `dev_mismatched`, `test_matched` and `test_mismatched`.

    Returns:
        The examples in the file's order, with `task.class_names`; without labels for a test
        split.

    Raises:
        ValueError: If there is no such task or split, or the file is not as it should be.
        FileNotFoundError: If the file is not there.
    """
    if isinstance(task, str):
        task = find_task(task)
    if split not in task.splits:
        raise ValueError(
            f"{task.folder} has no split {split!r}, expected one of {', '.join(task.splits)}"
        )
    is_test = split in task.test_splits
    data = read_labelled_text(
        _split_path(Path(data_dir), task, split),
        text=task.test_text if is_test and task.test_text else task.text,
        text_pair=task.text_pair,
        label=None if is_test else task.label,
        header=task.header or is_test,
        class_names=task.file_labels,
        regression=task.regression,
        allow_empty=True,
        skip_labels=("-",),
        on_bad_row="skip",
    )
    return dataclasses.replace(data, class_names=task.class_names)


def read_diagnostic(data_dir: str | os.PathLike[str]) -> LabelledText | None:
    """The diagnostic set, which a classifier of MNLI answers; `None` where it is not there.

    Looked for under the names that it has in the downloads: `AX/test.tsv`,
    `diagnostic/diagnostic.tsv` and `MNLI/diagnostic.tsv`.
    """
    for name in ("AX/test.tsv", "diagnostic/diagnostic.tsv", "MNLI/diagnostic.tsv"):
        path = Path(data_dir) / name
        if path.exists():
            return read_labelled_text(
                path, text="sentence1", text_pair="sentence2", label=None, header=True
            )
    return None


def _split_path(data_dir: Path, task: GlueTask, split: str) -> Path:
    """Takes the task's own folder too, but no other task's that happens to have the file."""
    inside = data_dir / task.folder / f"{split}.tsv"
    if not inside.exists() and data_dir.resolve().name.lower() == task.folder.lower():
        inside = data_dir / f"{split}.tsv"
    if not inside.exists():
        raise FileNotFoundError(
            f"{inside} is not there, expected {data_dir} to hold the GLUE download: "
            f"{task.folder}/{{{','.join(task.splits)}}}.tsv"
        )
    return inside
