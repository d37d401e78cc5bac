# SPDX-License-Identifier: Apache-2.0
"""What is written of tagged sentences: the tags beside the labels, and all scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.data.conll import TaggedText, write_conll
from training.scores import entity_scores


def write_report(
    folder: Path, name: str, text: TaggedText, predictions: entity_scores.Labels, scheme: Any
) -> dict[str, Any]:
    """Writes `NAME.conll` with the predictions and, of labelled text, `NAME_scores.json`.

    Args:
        folder: where to.
        name: what the files are called.
        text: the sentences, with or without labels.
        predictions: a label for each word.
        scheme: of the labels, or keep where that is not known.

    Returns:
        The scores of entities by type; empty where there are none.
    """
    from training.engine import finetuning

    write_conll(folder / f"{name}.conll", text, predictions)
    if text.labels is None:
        return {}
    scores = report(predictions, text, scheme)
    finetuning.write_json(scores, folder / f"{name}_scores.json")
    return scores.get("by_type", {})


def report(predictions: entity_scores.Labels, text: TaggedText, scheme: Any) -> dict[str, Any]:
    """All scores of predictions: as `tagging_scores`, and of entities by type and strictly.

    Args:
        predictions: a label for each word.
        text: the sentences and their labels.
        scheme: of the labels, or keep where that is not known.
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
