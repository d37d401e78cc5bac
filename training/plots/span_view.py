# SPDX-License-Identifier: Apache-2.0
"""HTML page with predicted and gold answers highlighted in their passages."""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_bert import atomic

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 46em; margin: 2em auto; color: #222; }
h2 { font-size: 1em; margin: 2em 0 0.3em; }
p { margin: 0; }
mark.answer { background: #bcd9f5; }
mark.gold { background: none; border-bottom: 3px solid #2a7d4f; }
mark.both { background: #bcd9f5; border-bottom: 3px solid #2a7d4f; }
.score { color: #777; font-weight: normal; }
"""
_KINDS = {(True, False): "answer", (False, True): "gold", (True, True): "both"}

Span = tuple[int, int]


class AnsweredQuestion(NamedTuple):
    """A question with its passage, the predicted answer and the gold answers.

    Args:
        question: The question.
        context: The passage.
        answer: The start and end of the predicted span in characters; `None` for no answer.
        score: The probability of the predicted answer.
        golds: The spans of the gold answers; empty if the question is unanswerable.
    """

    question: str
    context: str
    answer: Span | None
    score: float
    golds: Sequence[Span] = ()


def write_span_view(path: str | os.PathLike[str], answered: Iterable[AnsweredQuestion]) -> Path:
    """Writes a self-contained page: predicted answers are highlighted, gold answers underlined.

    Args:
        path: The HTML file to write; its folder must exist.
        answered: The questions to show.

    Returns:
        The path.
    """
    path = Path(path)
    sections = "\n".join(map(_section, answered))
    page = (
        f'<!doctype html>\n<meta charset="utf-8">\n<title>Answers</title>\n<style>{_STYLE}</style>'
        '\n<p><mark class="answer">predicted answer</mark>, '
        f'<mark class="gold">gold answers</mark></p>\n{sections}\n'
    )
    atomic.write_text(path, page)
    return path


def _section(one: AnsweredQuestion) -> str:
    said = "no answer" if one.answer is None else html.escape(one.context[slice(*one.answer)])
    return (
        f'<h2>{html.escape(one.question)} <span class="score">{said} ({one.score:.0%})</span></h2>'
        f"\n<p>{marked(one)}</p>"
    )


def marked(one: AnsweredQuestion) -> str:
    """Returns the passage as HTML, with a mark around each span that is part of an answer.

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
