# SPDX-License-Identifier: Apache-2.0
"""Token classification: named entities, chunks, parts of speech."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.data.conll import TaggedText, write_conll

from ..engine.job import DevScores, Job, Training, finite
from ..engine.options import ProperFraction, optional
from ..readers.tagged_words import TaggedFilesConfig, TaggingData, model_inputs, read_data
from ..scores import entity_scores

if TYPE_CHECKING:
    from keras_bert import TokenClassifier

    from ..scores.baselines import Baselines


@dataclasses.dataclass(frozen=True)
class TaggingConfig(TaggedFilesConfig):
    """Fine-tuning on words and labels in columns.

    Args:
        batch_size: Windows in an optimizer step.
        dropout: Dropout rate before the classifier; the checkpoint's by default.
    """

    dropout: ProperFraction | None = optional(recorded=-1.0)
    output_dir: str = "runs/finetune_tagging"


class TaggingJob(Job):
    """Base class of the jobs that label words: reading, scores and reports."""

    data: TaggingData

    read = staticmethod(read_data)

    def baselines(self) -> dict[str, Baselines]:
        from ..scores import baselines

        return {"dev": baselines.of_tags(self.data.train, self.data.dev)}

    def predicted_labels(self, model: Any, name: str, text: TaggedText) -> list[list[str]]:
        """Predicts a label for each word of each sentence.

        Args:
            model: The tagger.
            name: The part of the data that the text is: dev or test.
            text: The sentences.
        """
        raise NotImplementedError

    def score(self, model: Any) -> DevScores:
        labels = self.predicted_labels(model, "dev", self.data.dev)
        return {"dev": entity_scores.tagging_scores(labels, self.data.dev.labels)}

    selection_score = staticmethod(entity_scores.selection_score)

    def report(self, load: Callable[[], Any], best: Path, folder: Path) -> dict[str, Any]:
        """Writes the scores, and `dev.conll` and `test.conll` with predictions as last column."""
        results = {}
        for name, text in {"dev": self.data.dev, "test": self.data.test}.items():
            if text is None:
                continue
            predictions = self.predicted_labels(load(), name, text)
            write_conll(folder / f"{name}.conll", text, predictions)
            if text.labels is None:
                continue
            scores = report_of(predictions, text, self.config.scheme)
            atomic.write_json(folder / f"{name}_scores.json", scores)
            if name == "dev":
                results["by_class"] = scores.get("by_type", {})
        return results


def report_of(predictions: entity_scores.Labels, text: TaggedText, scheme: Any) -> dict[str, Any]:
    """Returns all scores of predictions: `tagging_scores`, by entity type, and strict matching.

    Args:
        predictions: The predicted label of each word.
        text: The sentences and their labels.
        scheme: The tagging scheme of the labels, or "keep" if it is unknown.
    """
    scores: dict[str, Any] = dict(entity_scores.tagging_scores(predictions, text.labels))
    if "f1" not in scores:
        return scores
    of_entities = entity_scores.entity_scores(predictions, text.labels)
    logging.info("%s\n%s", text.path, entity_scores.table(of_entities))
    scores["macro"] = of_entities.macro._asdict()
    scores["by_type"] = {name: row._asdict() for name, row in of_entities.by_type.items()}
    if scheme != "keep":
        strict = entity_scores.entity_scores(predictions, text.labels, scheme)
        scores["strict"] = strict.micro._asdict()
    return scores


class Tagging(TaggingJob):
    """Token classification with `keras_bert.TokenClassifier`."""

    config_class = TaggingConfig
    example_input = "texts.txt"
    config: TaggingConfig

    def build(self, seed: int) -> Training:
        from keras_bert import TokenClassifier

        from ..engine import finetuning

        config, train = self.config, self.data.train
        tagger = TokenClassifier.from_preset(
            self.preset,
            class_names=self.data.class_names,
            dropout=config.dropout,
            **finetuning.preset_options(config),
        )
        words = model_inputs(train, train.words, config.context)
        labels = model_inputs(train, train.labels, config.context)
        return finetuning.training_of_text(tagger, words, labels, config, len(train))

    def predicted_labels(
        self, model: TokenClassifier, name: str, text: TaggedText
    ) -> list[list[str]]:
        context = self.config.context
        logits = model.predict(model_inputs(text, text.words, context), batch_size=64, verbose=0)
        sentences = [one for document in logits for one in document] if context else logits
        return [
            [model.class_names[index] for index in np.argmax(finite(sentence), axis=-1)]
            for sentence in sentences
        ]
