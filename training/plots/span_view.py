# SPDX-License-Identifier: Apache-2.0
"""Writes an HTML page that highlights predicted and gold answers in their passages."""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from . import page

_KINDS = {(True, False): "answer", (False, True): "gold", (True, True): "both"}

LEGEND = page.Html(
    '<p><mark class="answer">predicted answer</mark>, <mark class="gold">gold answers</mark></p>'
)

Span = tuple[int, int]


class AnsweredQuestion(NamedTuple):
    """A question with its passage, the predicted answer and the gold answers.

    Args:
        question: The question.
        context: The passage.
        answer: The start and end of the predicted span in characters, or `None` for no answer.
        score: The probability of the predicted answer, or `None` if unknown.
        golds: The spans of the gold answers. Empty if the question is unanswerable.
    """

    question: str
    context: str
    answer: Span | None
    score: float | None
    golds: Sequence[Span] = ()


def write_span_view(path: str | os.PathLike[str], answered: Iterable[AnsweredQuestion]) -> Path:
    """Writes a self-contained page. Predicted answers are highlighted, gold answers underlined."""
    return page.write_page(path, "Answers", [LEGEND, *map(answered_question, answered)])


def answered_question(one: AnsweredQuestion) -> page.Html:
    """Returns a question, the predicted answer with its probability, and the marked passage."""
    answer = "no answer" if one.answer is None else html.escape(one.context[slice(*one.answer)])
    score = "" if one.score is None else f" ({one.score:.0%})"
    return page.Html(
        f'<h3>{html.escape(one.question)} <span class="faint">{answer}{score}</span></h3>'
        f"\n<p>{marked(one)}</p>"
    )


def marked(one: AnsweredQuestion) -> str:
    """Returns the passage as HTML, with the predicted and gold answers marked.

    Example:

    >>> marked(AnsweredQuestion("Who?", "By <Goethe>.", (4, 10), 0.9, [(4, 10)]))
    'By &lt;<mark class="both">Goethe</mark>&gt;.'
    """
    spans = [*([one.answer] if one.answer else []), *one.golds]
    edges = sorted({0, len(one.context), *(edge for span in spans for edge in span)})
    parts = []
    for start, end in itertools.pairwise(edges):
        text = html.escape(one.context[start:end])
        is_answer = one.answer is not None and one.answer[0] <= start < one.answer[1]
        is_gold = any(first <= start < last for first, last in one.golds)
        kind = _KINDS.get((is_answer, is_gold))
        parts.append(f'<mark class="{kind}">{text}</mark>' if kind else text)
    return "".join(parts)
