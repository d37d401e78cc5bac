# SPDX-License-Identifier: Apache-2.0
"""What decides a run on SQuAD: one typed, frozen record, and the files it reads."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from keras_bert.data.squad import QuestionExample, SquadFile, read_squad
from training.engine.training_config import TrainingConfig
from training.readers.data_splits import Counts


@dataclasses.dataclass(frozen=True)
class SquadConfig(TrainingConfig):
    """Fine-tuning on questions in SQuAD's JSON, of version 1.1 or 2.0.

    Args:
        data_dir: the folder that the files lie in, where they are named without one.
        train_file: questions with answers.
        dev_file: likewise, to select the best epoch by, and for 2.0 the threshold; empty for
            train_articles.
        test_file: questions to answer at the end; empty for none.
        train_articles: how many articles of train_file to train on, the first by title, if the
            others take the place of dev_file; 0 trains on all.
        max_questions: how many questions of the training articles to train on, the first ones; 0
            for all.
        unanswerable: whether there are questions without an answer, as in 2.0: auto, yes or no;
            auto looks into train_file.
        skip_bad: whether what is malformed in a file is left out and counted, instead of refused.
        epochs: passes over the training windows.
        batch_size: windows in an optimizer step.
        sequence_length: the longest window in tokens, with the question.
        doc_stride: how many tokens further on in the passage the next window begins.
        max_query_length: the longest question in tokens; what is longer is cut.
        n_best: how many first and last tokens of a window, and answers of a question, are kept.
        max_answer_length: the longest answer in tokens.
        bilstm_units: width of each direction of a fresh BiLSTM between encoder and logits; 0 for
            none, negative takes the checkpoint's.
        output_dir: where models, answers, scores and plots go.
    """

    data_dir: str = ""
    train_file: str = ""
    dev_file: str = ""
    test_file: str = ""
    train_articles: int = 0
    max_questions: int = 0
    unanswerable: str = "auto"
    skip_bad: bool = False
    sequence_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    n_best: int = 20
    max_answer_length: int = 30
    bilstm_units: int = -1
    output_dir: str = "runs/finetune_squad"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("n_best", "max_answer_length")
        if self.unanswerable not in ("auto", "yes", "no"):
            raise ValueError(f"--unanswerable is {self.unanswerable!r}, expected auto, yes or no")


@dataclasses.dataclass(frozen=True)
class SquadData:
    """What a run trains, selects and answers.

    Args:
        train: the training questions.
        dev: the development questions, with their answers.
        test: the questions to answer at the end, or None.
        has_unanswerable: whether some have no answer.
        skipped: what was left out of the files, as messages.
    """

    train: tuple[QuestionExample, ...]
    dev: tuple[QuestionExample, ...]
    test: tuple[QuestionExample, ...] | None
    has_unanswerable: bool
    skipped: tuple[str, ...]

    def counts(self) -> Counts:
        """What each part consists of; questions whose answers are not known are only counted."""
        parts = {"train": self.train, "dev": self.dev, **({"test": self.test} if self.test else {})}
        return {name: _counts(examples) for name, examples in parts.items()}


def _counts(examples: Sequence[QuestionExample]) -> dict[str, int]:
    counts = {"questions": len(examples)}
    known = [bool(example.answers) for example in examples if example.answers is not None]
    if known:
        counts |= {"answerable": sum(known), "unanswerable": len(known) - sum(known)}
    return counts


def read_data(config: SquadConfig) -> SquadData:
    """Reads and checks every file before anything is trained.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if a file is malformed; the message names article, paragraph and question.
    """
    if not config.train_file:
        raise ValueError("expected --train_file, questions in SQuAD's JSON")
    if bool(config.dev_file) == bool(config.train_articles):
        raise ValueError(
            f"expected either --dev_file or --train_articles, received "
            f"--dev_file={config.dev_file} and --train_articles={config.train_articles}"
        )
    files = [_read(config, config.train_file)]
    train = files[0].examples
    if config.dev_file:
        files.append(_read(config, config.dev_file))
        dev = files[1].examples
    else:
        train, dev = split_by_title(train, config.train_articles)
    if config.test_file:
        files.append(_read(config, config.test_file, labelled=False))
    auto = files[0].has_unanswerable
    data = SquadData(
        train=train[: config.max_questions or None],
        dev=dev,
        test=files[-1].examples if config.test_file else None,
        has_unanswerable={"auto": auto, "yes": True, "no": False}[config.unanswerable],
        skipped=tuple(message for file in files for message in file.skipped),
    )
    _check(config, data)
    return data


def split_by_title(
    examples: Sequence[QuestionExample], count: int
) -> tuple[tuple[QuestionExample, ...], tuple[QuestionExample, ...]]:
    """The questions on the first articles in the order of their titles, and those on the others.

    Raises:
        ValueError: if there are not more articles than that.
    """
    titles = sorted({example.title for example in examples})
    if not 0 < count < len(titles):
        raise ValueError(
            f"--train_articles is {count}, expected at least 1 and less than the {len(titles)} "
            "articles that there are"
        )
    first = set(titles[:count])
    return (
        tuple(example for example in examples if example.title in first),
        tuple(example for example in examples if example.title not in first),
    )


def _check(config: SquadConfig, data: SquadData) -> None:
    for name, examples in (("train", data.train), ("dev", data.dev)):
        if not examples:
            raise ValueError(f"there are no {name} questions in the files of {config.data_dir!r}")
        unanswered = [example.id for example in examples if not example.answers]
        if unanswered and not data.has_unanswerable:
            raise ValueError(
                f"{name} question {unanswered[0]!r} has no answer; --unanswerable=yes allows that"
            )


def _read(config: SquadConfig, name: str, labelled: bool = True) -> SquadFile:
    path = os.path.join(config.data_dir, name)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is not there, expected questions in SQuAD's JSON")
    return read_squad(path, labelled=labelled, skip_bad=config.skip_bad)
