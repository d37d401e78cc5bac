# SPDX-License-Identifier: Apache-2.0
"""Creates the bias sections of reports, for one model or for a comparison of two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from keras_bert import insight
from keras_bert.text.word_search import count_words

from . import page
from .insight_report import Report

_LARGEST_CHANGES = 8

Text = str | tuple[str, str]


@dataclasses.dataclass(frozen=True)
class ClassifierBias:
    """A classifier's error rates by slice, and its counterfactual tests.

    Attributes:
        rates: The `ErrorRates` by model. Empty if the texts have no labels.
        changes: The `Counterfactuals` by model. Empty if no text contains a listed word.
        count: The number of texts.
    """

    rates: Mapping[str, insight.ErrorRates]
    changes: Mapping[str, insight.Counterfactuals]
    count: int

    def add_to(self, report: Report) -> None:
        """Adds the sections."""
        if not self.changes:
            report.leave_out(
                f"Counterfactual tests: the {self.count:,} rows contain no word from the English "
                "lists. For other languages, call keras_bert.insight.counterfactuals with swaps."
            )
        else:
            blocks, numbers = _measured(report, "counterfactuals", self.changes)
            changes = next(iter(self.changes.values())).largest(_LARGEST_CHANGES)
            names = list(changes[0])
            rows = [
                [
                    " / ".join(change[name]) if isinstance(change[name], tuple) else change[name]
                    for name in names
                ]
                for change in changes
            ]
            columns = [name.replace("_", " ") for name in names]
            blocks.append(page.table(columns, rows, "Rows with the largest changes"))
            report.add("Counterfactual tests", blocks, counterfactuals=numbers)
            self._add_directions(report)
        if not self.rates:
            report.leave_out("Errors by slice: the data file has no labels.")
        else:
            blocks, numbers = _measured(report, "error_rates", self.rates)
            report.add("Error rates by slice", blocks, error_rates=numbers)

    def _add_directions(self, report: Report) -> None:
        try:
            directions = {name: changes.directions() for name, changes in self.changes.items()}
        except ValueError as error:
            report.leave_out(f"Direction of the changes: {error}")
            return
        blocks, numbers = _measured(report, "swap_directions", directions)
        report.add("Direction of the changes", blocks, swap_directions=numbers)

    def errors_first(self, order: Sequence[int], examples: int) -> list[int]:
        """Reorders examples so that up to half of the shown examples are errors.

        Args:
            order: The indices of the examples.
            examples: The number of examples to show.
        """
        wrong = next(iter(self.rates.values())).errors if self.rates else np.zeros(0)
        if wrong.dtype != bool:
            return list(order)
        errors = [index for index in order if index < len(wrong) and wrong[index]]
        first, others = errors[: examples // 2], errors[examples // 2 :]
        is_wrong = set(errors)
        return [*first, *(index for index in order if index not in is_wrong), *others]


def measure_classifiers(
    models: Mapping[str, Any], texts: Sequence[Text], labels: Sequence[Any], batch_size: int
) -> ClassifierBias:
    """Measures the error rates and counterfactual tests of classifiers.

    Slices are texts of similar length, texts with the same label, and texts with listed words.
    """
    logging.info("predicting %d rows, and copies with swapped words", len(texts))
    swaps = insight.default_swaps()
    mentions = {kind: insight.contains_any(lines) for kind, lines in swaps.items()}
    rates, changes = {}, {}
    if len(labels):
        lengths = np.array(list(map(count_words, texts)))
        first, second = (int(bound) for bound in np.quantile(lengths, [1 / 3, 2 / 3]))
        slices: dict[str, Any] = {
            f"up to {first} words": lengths <= first,
            f"{first + 1} to {second} words": (lengths > first) & (lengths <= second),
            f"more than {second} words": lengths > second,
        }
        if not next(iter(models.values())).is_regression:
            slices |= {f"label {name}": np.array(labels) == name for name in dict.fromkeys(labels)}
        slices |= {f"words of {kind}": mentions_of for kind, mentions_of in mentions.items()}
        rates = {
            name: insight.error_rates(model, texts, labels, slices, batch_size)
            for name, model in models.items()
        }
    if any(mentions_of(text) for mentions_of in mentions.values() for text in texts):
        changes = {
            name: insight.counterfactuals(model, texts, swaps, batch_size)
            for name, model in models.items()
        }
    return ClassifierBias(rates, changes, len(texts))


def add_stereotypes(
    report: Report,
    models: Mapping[str, Any],
    batch_size: int,
    *,
    crows_pairs: str = "",
    winobias: tuple[str, str] = ("", ""),
    stereoset: str = "",
) -> None:
    """Adds a section for each measure of stereotypes in masked LMs.

    Args:
        report: The report.
        models: The masked LMs by name.
        batch_size: The batch size.
        crows_pairs: The CrowS-Pairs file. Empty omits the section.
        winobias: The WinoBias files with stereotypical and with anti-stereotypical sentences.
        stereoset: The StereoSet file.
    """
    measures: dict[str, tuple[str, str, str, Callable[[Any], insight.Result]]] = {
        "crows_pairs": (
            "CrowS-Pairs",
            crows_pairs,
            "--crows_pairs",
            lambda model: insight.crows_pairs(model, crows_pairs, batch_size),
        ),
        "winobias": (
            "WinoBias",
            winobias[0],
            "--winobias_pro and --winobias_anti",
            lambda model: insight.winobias_pronouns(model, *winobias, batch_size),
        ),
        "stereoset": (
            "StereoSet",
            stereoset,
            "--stereoset",
            lambda model: insight.stereoset(model, stereoset, batch_size),
        ),
    }
    for name, (title, path, flag, measure) in measures.items():
        if not path:
            report.leave_out(f"{title}: {flag} was not given.")
            continue
        logging.info("measuring: %s", title)
        results = {which: measure(model) for which, model in models.items()}
        blocks, numbers = _measured(report, name, results)
        report.add(f"Stereotypes: {title}", blocks, **{name: numbers})
    logging.info("measuring: templates")
    try:
        templates = {
            which: insight.template_log_odds(model, batch_size=batch_size)
            for which, model in models.items()
        }
    except ValueError as error:
        # For example, the vocabulary is for a different language.
        report.leave_out(f"Occupations and pronouns: {error}")
        return
    blocks, numbers = _measured(report, "templates", templates)
    report.add("Stereotypes: occupations and pronouns", blocks, templates=numbers)


def _measured(
    report: Report, name: str, results: Mapping[str, insight.Result]
) -> tuple[list[page.Html], dict[str, Any]]:
    """Returns the blocks and the numbers for the results of one model, or of two."""
    one, *others = results.values()
    result = insight.compare(results) if others else one
    return report.measures(name, result), result.to_dict()
