# SPDX-License-Identifier: Apache-2.0
"""Measures how much an occupation raises the probability of words for people in templates."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert.checks import shorten_repr
from keras_bert.insight.bias.measures import ALL, Result, UnitValues, mean
from keras_bert.insight.bias.slots import Slot, slot_log_probabilities
from keras_bert.insight.bias.word_lists import word_list
from keras_bert.insight.likelihood import BATCH_SIZE
from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.pretrainer import Pretrainer


@dataclasses.dataclass(frozen=True)
class TemplateScores(Result):
    """How much an attribute raises the probability of each target word.

    Attributes:
        templates: The sentences, with `{target}` and `{attribute}`.
        attributes: The attributes, without articles.
        targets: The target words.
        log_probabilities: Log probability of each target if the attribute is in the text, float64
            `(templates, attributes, targets)`, in nats.
        priors: Log probability of each target if the attribute is masked.
    """

    title = "Log probability of words for people with an attribute, minus with it masked"
    group_name = "attribute"
    unit_name = "n"
    caveat = "n is the number of templates for one attribute, and the number of attributes for all."
    by_value = True

    templates: tuple[str, ...]
    attributes: tuple[str, ...]
    targets: tuple[str, ...]
    log_probabilities: np.ndarray
    priors: np.ndarray

    @property
    def associations(self) -> np.ndarray:
        """`log P(target | attribute) - log P(target)`, `(templates, attributes, targets)`."""
        return np.asarray(self.log_probabilities - self.priors)

    @property
    def units(self) -> tuple[Any, ...]:
        return self.templates, self.attributes, self.targets

    def neutral_value(self, metric: str) -> float:
        return 0.0

    def unit_values(self) -> list[UnitValues]:
        if len(self.targets) == 2:
            first, second = self.targets
            columns = {
                f"log odds of {first!r} over {second!r}": (
                    self.associations[..., 0] - self.associations[..., 1]
                )
            }
        else:
            columns = {
                f"association with {target!r}": self.associations[..., index]
                for index, target in enumerate(self.targets)
            }
        values = []
        for metric, scores in columns.items():
            values.append(mean(ALL, metric, scores.mean(axis=0)))
            values += [
                mean(attribute, metric, scores[:, index])
                for index, attribute in enumerate(self.attributes)
            ]
        # A mean near zero may hide attributes with opposite associations.
        values += [
            mean(ALL, f"size of the {metric}", np.abs(scores.mean(axis=0)))
            for metric, scores in columns.items()
        ]
        return values


def template_log_odds(
    masked_lm: MaskedLM | Pretrainer,
    templates: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    targets: Sequence[str] = ("he", "she"),
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> TemplateScores:
    """Measures how much attributes raise the probability of target words in templates.

    A target's association with an attribute is `log P(target | template with the attribute) - log
    P(target | template with the attribute's tokens masked)`. For two targets, the difference
    between their associations is reported (the log odds).

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        templates: Sentences that contain `{target}` and `{attribute}` once each. Defaults to the
            English sentences in `word_lists/templates.txt`.
        attributes: Words that replace `{attribute}`. A leading `a` or `an` is kept if the attribute
            is masked. Defaults to the English occupations in `word_lists/occupations.txt`.
        targets: Single-token words. They are capitalized at the start of templates.
        batch_size: Number of examples per batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If a template lacks a placeholder, attributes or targets are empty, or a target
            is not a single token.

    Example:

    ```python
    scores = template_log_odds(masked_lm, attributes=["a nurse", "an engineer"])
    scores.associations       # (templates, attributes, targets)
    scores.plot()
    ```

    Reference:
        [Measuring bias in contextualized word representations](https://arxiv.org/abs/1906.07337),
        section 3.
    """
    are_english = templates is None or attributes is None
    templates = word_list("templates") if templates is None else templates
    attributes = word_list("occupations") if attributes is None else attributes
    if not (templates and attributes and targets):
        raise ValueError(
            "templates, attributes and targets must not be empty. Received: "
            f"{len(templates)} templates, {len(attributes)} attributes and {len(targets)} targets"
        )
    for template in templates:
        for placeholder in ("{target}", "{attribute}"):
            if template.count(placeholder) != 1:
                raise ValueError(
                    f"A template must contain {placeholder} once. Received: "
                    f"{shorten_repr(template)}"
                )
    bare = [re.sub(r"^an? ", "", attribute) for attribute in attributes]
    slots = []
    for template in templates:
        words = tuple(
            word[0].upper() + word[1:] if template.startswith("{target}") else word
            for word in targets
        )
        for attribute, noun in zip(attributes, bare, strict=True):
            text = template.replace("{attribute}", attribute)
            start = text.index("{target}")
            text = text.replace("{target}", words[0])
            first = template.index("{attribute}") + len(attribute) - len(noun)
            if template.index("{target}") < template.index("{attribute}"):
                first += len(words[0]) - len("{target}")
            span = (start, start + len(words[0]))
            slot = Slot(text, span, words, (), f"Template {template!r} with {attribute!r}")
            slots += [slot, dataclasses.replace(slot, hidden=((first, first + len(noun)),))]
    try:
        log_probabilities = np.array(slot_log_probabilities(masked_lm, slots, batch_size, verbose))
    except ValueError as error:
        if not are_english:
            raise
        raise ValueError(
            f"{str(error).rstrip('.')}. The default lists are English. For other languages, pass "
            "templates, attributes and targets."
        ) from error
    by_target = log_probabilities.reshape(len(templates), len(attributes), 2, len(targets))
    return TemplateScores(
        tuple(templates), tuple(bare), tuple(targets), by_target[:, :, 0], by_target[:, :, 1]
    )
