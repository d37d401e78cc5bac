# SPDX-License-Identifier: Apache-2.0
"""Writes model cards with a model's description, scores, cost and limitations.

The contents follow Mitchell et al., 2019, https://arxiv.org/abs/1810.03993.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from keras_bert.checkpoints.directories import checkpoint_errors
from keras_bert.tables import Records, markdown_table, replace_underscores, table_from_records
from keras_bert.vocabularies.files import read_text

CARD_FILE = "README.md"
# Tag of the cards that this package writes
CARD_TAG = "keras-bert"

# Name of the head in checkpoints -> the Hub's name of the task, and the intended use
_TASKS = {
    "classifier": ("text-classification", "classifies texts"),
    "token_classifier": ("token-classification", "labels the words of texts"),
    "question_answerer": ("question-answering", "answers questions with spans from a passage"),
    "multiple_choice": ("multiple-choice", "chooses the best of multiple texts"),
    "masked_lm": ("fill-mask", "predicts masked tokens"),
}
_SETTINGS = (
    *("epochs", "batch_size", "learning_rate", "warmup", "weight_decay", "sequence_length"),
    *("precision", "seed", "num_seeds"),
)
_FILES = ("train_file", "dev_file", "test_file")


def has_card(directory: Path) -> bool:
    """Returns whether a directory has a card written by `model_card`, recognized by its tag."""
    file = directory / CARD_FILE
    text = file.read_text("utf-8", "replace") if file.is_file() else ""
    front_matter = text.split("---\n")[1] if text.startswith("---\n") else ""
    return f"- {CARD_TAG}" in map(str.strip, front_matter.splitlines())


def model_card(
    title: str,
    *,
    head: str,
    family: str,
    parameters: int,
    class_names: Sequence[str] | None = None,
    results: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    license: str | None = None,
) -> str:
    """Returns a model card in Markdown, with metadata for the Hugging Face Hub.

    Most unknown values are omitted. Missing scores and training settings are reported as unknown.

    Args:
        title: Heading of the card.
        head: Name of the head in checkpoints, for example `classifier`.
        family: Name of the encoder's family, for example `bert`.
        parameters: Number of parameters.
        class_names: The classifier's or tagger's labels.
        results: Contents or path of the `results.json` written by the fine-tuning command. It
            contains the settings, the scores of the model and the baselines, and the cost.
            Directories are removed from paths.
        license: License of the weights, as an identifier on the Hub.
    """
    from huggingface_hub import ModelCardData

    if isinstance(results, str | os.PathLike):
        with checkpoint_errors():
            # A score may be NaN.
            results = cast(dict[str, Any], json.loads(read_text(Path(results))))
    results = results or {}
    config = results.get("config", {})
    tag, use = _TASKS.get(head, ("feature-extraction", "encodes texts"))
    data = ModelCardData(
        library_name="keras",
        pipeline_tag=tag,
        license=license,
        base_model=_base_model(config),
        model_name=title,
        eval_results=_eval_results(tag, results) or None,
        tags=["keras", CARD_TAG, family],
    )
    blocks = [
        f"---\n{data.to_yaml()}\n---",
        f"# {_escape(title)}",
        f"A {family} encoder with {parameters / 1e6:.1f} million parameters that {use}."
        + (f" Its labels are {', '.join(map(_escape, class_names))}." if class_names else ""),
        _scores(results),
        _training(config, results),
        _cost(results.get("cost", {})),
        _limits(results),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _base_model(config: Mapping[str, Any]) -> str | None:
    preset = str(config.get("preset", ""))
    return preset.removeprefix("hf://") if preset.startswith("hf://") else None


def _eval_results(tag: str, results: Mapping[str, Any]) -> list[Any]:
    from huggingface_hub import EvalResult

    scores_of_splits = results.get("kept", {}).get("scores", {})
    dataset = _file_name(results.get("config", {}).get("train_file")) or "custom"
    return [
        EvalResult(
            task_type=tag,
            dataset_type=dataset,
            dataset_name=dataset,
            dataset_split=split,
            metric_type=metric,
            metric_value=round(float(value), 2),
        )
        for split, scores in scores_of_splits.items()
        for metric, value in scores.items()
    ]


def _file_name(path: object) -> str:
    return Path(str(path)).name if path else ""


def _scores(results: Mapping[str, Any]) -> str:
    best = results.get("kept")
    if not best:
        return "## Scores\n\nThis model has not been scored."
    lines = [
        f"## Scores\n\nThe model is from epoch {best['epoch']} of {best['epochs']}. Epochs were "
        f"compared by their scores on {best['by']}, so these scores are slightly too high."
    ]
    for split, scores in best["scores"].items():
        baselines = results.get("baselines", {}).get(split, {})
        lines.append(_table(split, {"this model": scores, **replace_underscores(baselines)}))
    if results.get("by_class"):
        split = "test" if "test" in best["scores"] else best["by"]
        lines.append(_table(f"{split}, by class", results["by_class"]))
    return "\n\n".join(lines)


def _table(title: str, records: Records) -> str:
    rows = {_escape(name): values for name, values in records.items()}
    return markdown_table(*table_from_records(_escape(title), rows))


def _escape(text: str) -> str:
    """Escapes Markdown syntax. Underscores inside a word are not escaped."""
    text = re.sub(r"([\\`*\[\]<>|~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)
    return " ".join(text.split())


def _training(config: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    if not config:
        return "## Training\n\nThe training data and settings are unknown."
    rows = {name: _file_name(config.get(name)) for name in _FILES}
    rows |= {"checkpoint": str(config.get("preset") or "MiniLM")}
    if Path(rows["checkpoint"]).is_absolute():
        rows["checkpoint"] = Path(rows["checkpoint"]).name
    rows |= {name: str(config[name]) for name in _SETTINGS if config.get(name) is not None}
    rows |= {"backend": str(results.get("backend", ""))}
    table = [[name.replace("_", " "), _escape(value)] for name, value in rows.items() if value]
    return f"## Training\n\n{markdown_table(['', ''], table)}"


def _cost(cost: Mapping[str, Any]) -> str:
    if not cost:
        return ""
    costs = [f"{cost['hours']:.2f} hours"]
    if "training_flops" in cost:
        costs.append(f"{cost['training_flops']:.3g} floating-point operations")
    if "energy_kwh" in cost:
        costs.append(
            f"{cost['energy_kwh']:.3g} kWh ({cost['energy_is']}), {cost['co2_kg']:.3g} kg of CO2 "
            f"({cost['country']})"
        )
    return f"## Cost of training\n\n{', '.join(costs)}."


def _limits(results: Mapping[str, Any]) -> str:
    lines = [
        "## Intended use and limits",
        "The scores are valid for text like the data above. On text from another source, time or "
        "language, they are lower. Measure the difference on labeled examples of such text.",
        "The encoder was pre-trained on text that contains stereotypes, and fine-tuning does not "
        "remove them. Before decisions about people depend on the model, measure its errors by "
        "group.",
    ]
    best_epoch = results.get("kept", {})
    split = best_epoch.get("by")
    baselines = results.get("baselines", {}).get(split, {})
    scores = best_epoch.get("scores", {}).get(split, {})
    if scores and baselines:
        metric, value = next(iter(scores.items()))
        best = max(row.get(metric, float("-inf")) for row in baselines.values())
        if value <= best:
            lines.append(
                f"**Its {metric} is not above the best baseline ({best:.2f}).** There is no reason "
                "to prefer it to this baseline."
            )
    return "\n\n".join(lines)
