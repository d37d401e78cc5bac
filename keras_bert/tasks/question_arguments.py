# SPDX-License-Identifier: Apache-2.0
"""Tells questions on passages from ids among what users hand to `fit`, and reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_bert.tasks.text_arguments import is_data_frame

if TYPE_CHECKING:
    from keras_bert.data.squad import QuestionExample, SpanAnswer

QUESTION_FORMS = (
    'a list of dicts of "question", "context" and "answers", a dict or data frame of such '
    "columns, a data set of Hugging Face's, or a list of QuestionExamples"
)


def is_questions(x: Any) -> bool:
    """Whether `x` holds questions in one of `QUESTION_FORMS`, rather than ids."""
    if _is_columns(x):
        return "question" in x
    if hasattr(x, "column_names"):
        return "question" in x.column_names
    if not isinstance(x, (list, tuple)):
        return False
    if not x:
        return True
    return "question" in x[0] if isinstance(x[0], Mapping) else hasattr(x[0], "question")


def question_examples(x: Any) -> list[QuestionExample]:
    """The questions of any form, those without an `id` numbered from 0.

    Raises:
        ValueError: If a question lacks a field, or an answer is not where it is said to lie; the
            message says which.
    """
    rows = _rows_of_columns(x) if _is_columns(x) else x
    return [_example(row, index) for index, row in enumerate(rows)]


def labelled_examples(x: Any) -> list[QuestionExample]:
    """The questions of any form, each with its answers.

    Raises:
        ValueError: As `question_examples`, and if it is not known whether there is an answer.
    """
    examples = question_examples(x)
    for example in examples:
        if example.answers is None:
            raise ValueError(
                f"Question {example.id!r} has no answers to learn from; where the passage holds "
                "none, give an empty list."
            )
    return examples


def _is_columns(x: Any) -> bool:
    return isinstance(x, Mapping) or is_data_frame(x)


def _rows_of_columns(x: Any) -> Iterator[dict[str, Any]]:
    names = [name for name in ("id", "question", "context", "answers") if name in x]
    columns = [list(x[name]) for name in names]
    lengths = dict(zip(names, map(len, columns), strict=True))
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The columns of the questions differ in length: {lengths}.")
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _example(row: Any, index: int) -> QuestionExample:
    from keras_bert.data.squad import QuestionExample

    if isinstance(row, QuestionExample):
        return row
    where = f"Question {index}"
    if not isinstance(row, Mapping):
        raise ValueError(f"{where} is {row!r}; expected {QUESTION_FORMS}.")
    question, context = (_text(row, name, where) for name in ("question", "context"))
    answers = _answers(row.get("answers"), context, where)
    return QuestionExample(str(row.get("id", index)), question, context, answers)


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: {name} is {value!r} of type {type(value).__name__}; expected a string."
        )
    return value


def _answers(answers: Any, context: str, where: str) -> tuple[SpanAnswer, ...] | None:
    """Answers as SQuAD's file has them, a list of dicts, or as a dict of two lists."""
    from keras_bert.data.squad import SpanAnswer, check_span

    if answers is None:
        return None
    if isinstance(answers, Mapping):
        texts, starts = _field(answers, "text", where), _field(answers, "answer_start", where)
        answers = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    spans = tuple(
        answer
        if isinstance(answer, SpanAnswer)
        else SpanAnswer(_field(answer, "text", where), int(_field(answer, "answer_start", where)))
        for answer in answers
    )
    for span in spans:
        check_span(span.text, span.start, context, where)
    return spans


def _field(answer: Any, name: str, where: str) -> Any:
    if not isinstance(answer, Mapping) or name not in answer:
        raise ValueError(f'{where}: an answer is {answer!r}; expected "text" and "answer_start".')
    return answer[name]


def paired(question: Any, context: Any) -> tuple[list[str], list[str]]:
    """Questions and their passages as two lists; one passage may serve all questions.

    Raises:
        ValueError: If they differ in number.
    """
    if isinstance(question, str):
        question = [question]
    for name, value in (("question", question), ("context", context)):
        if not hasattr(value, "__iter__"):
            raise ValueError(
                f"{name} is {value!r} of type {type(value).__name__}; expected a string or a list "
                "of strings."
            )
    questions: Sequence[str] = list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise ValueError(f"There are {len(questions)} questions and {len(contexts)} contexts.")
    return list(questions), contexts
