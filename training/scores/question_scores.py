# SPDX-License-Identifier: Apache-2.0
"""Gold answers of question answering data sets, and their official metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from absl import logging

from keras_bert.data.squad import QuestionExample, load_json
from keras_bert.data.text_files import UTF_8

from ..readers import question_files, triviaqa
from ..readers.triviaqa import DocumentQuestion
from . import squad_scores
from .answer_rules import TRIVIA_WORDS, WORDS
from .squad_scores import GoldQuestion

DataSet = Literal["squad_v1", "squad_v2", "triviaqa"]


@dataclasses.dataclass(frozen=True)
class GoldAnswers:
    """The gold answers to the questions in a file."""

    questions: tuple[GoldQuestion, ...]
    data_set: DataSet

    def log_rule(self) -> None:
        """Logs how answers are compared, if this depends on their language."""
        rule = squad_scores.rule_of(self.questions)
        if self.data_set != "triviaqa" and rule is not WORDS:
            logging.info("answers are compared by %s", rule.name)

    def scores(self, predictions: Mapping[str, str]) -> dict[str, float]:
        """Returns the official scores, without SQuAD 2.0's totals. For Korean, also KLUE's."""
        klue_scores = squad_scores.score_klue(self.questions, predictions)
        if self.data_set != "squad_v2":
            rule = TRIVIA_WORDS if self.data_set == "triviaqa" else None
            return squad_scores.score_squad_v1(self.questions, predictions, rule) | klue_scores
        scores = squad_scores.score_squad_v2(self.questions, predictions) | klue_scores
        return {name: value for name, value in scores.items() if not name.endswith("total")}


def gold_answers(examples: Sequence[QuestionExample], has_unanswerable: bool) -> GoldAnswers:
    """Returns the gold answers to questions."""
    data_set: DataSet = "squad_v2" if has_unanswerable else "squad_v1"
    if any(isinstance(one, DocumentQuestion) for one in examples):
        data_set = "triviaqa"
    texts = {prediction_key(one): _gold_texts(one) for one in examples}
    return GoldAnswers(tuple(GoldQuestion(key, own) for key, own in texts.items()), data_set)


def read_gold(path: str, encoding: str = UTF_8) -> GoldAnswers:
    """Reads the gold answers in a file. TriviaQA's documents are not read.

    Raises:
        ValueError: If the file is invalid.
    """
    if question_files.has_rows(Path(path), encoding):
        file = question_files.read_questions(path, encoding=encoding)
        return gold_answers(file.examples, file.has_unanswerable)
    content = load_json(path, encoding)
    if triviaqa.is_triviaqa(content):
        answers = triviaqa.read_answers(content, Path(path))
        return GoldAnswers(tuple(GoldQuestion(*item) for item in answers.items()), "triviaqa")
    questions, is_version_2 = squad_scores.parse_gold(content, path)
    return GoldAnswers(tuple(questions), "squad_v2" if is_version_2 else "squad_v1")


def prediction_key(example: QuestionExample) -> str:
    """Returns the key for a question in a file of predictions."""
    return example.key if isinstance(example, DocumentQuestion) else example.id


def best_by_key(
    examples: Sequence[QuestionExample], texts: Iterable[str], scores: Iterable[float]
) -> dict[str, str]:
    """Returns the answer with the highest score for each key.

    For example, all documents for a TriviaQA question have the same key in the Wikipedia domain.
    """
    best: dict[str, tuple[float, str]] = {}
    for example, text, score in zip(examples, texts, scores, strict=True):
        key = prediction_key(example)
        if key not in best or score > best[key][0]:
            best[key] = score, text
    return {key: text for key, (_, text) in best.items()}


def answer_f1_scores(examples: Sequence[QuestionExample], texts: Sequence[str]) -> np.ndarray:
    """Returns the F1 of each answer in [0, 1], of shape `(examples,)`."""
    rule = TRIVIA_WORDS if any(isinstance(one, DocumentQuestion) for one in examples) else None
    golds = [GoldQuestion(one.id, _gold_texts(one)) for one in examples]
    return squad_scores.f1_scores(golds, texts, rule)


def _gold_texts(example: QuestionExample) -> tuple[str, ...]:
    if isinstance(example, DocumentQuestion):
        return (*example.aliases, *example.human_answers)
    return tuple(answer.text for answer in example.answers or ())
