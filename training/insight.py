# SPDX-License-Identifier: Apache-2.0
"""Writes a report on what a model has learned: attributions, attention, bias and cost.

    python -m training.insight --model=runs/reviews/seed_1/model.keras --data_file=dev.tsv \\
        --text=sentence --report_dir=report
    python -m training.insight --model=runs/wikitext2_cpu/preset \\
        --data_file=wikitext-2.valid.tokens --crows_pairs=crows_pairs_anonymized.csv \\
        --report_dir=report

The model is a task's `.keras` file, or a masked LM as a preset, a checkpoint directory or
`hf://...`. The data file must suit the task's evaluation: labeled text (TSV, CSV, JSON Lines),
SQuAD's JSON, CoNLL columns, SWAG's CSV or CODAH's TSV. For a masked LM, it may also contain lines
of text.

Files written to `report_dir`: `index.html`, a self-contained page that works offline,
`insight.json` with its numbers, and its figures as PNG.
"""

from __future__ import annotations

import html
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.data.text_files import read_lines
from keras_bert.text.word_search import is_whole_word

from .costs import run_cost
from .engine import output_directory, program
from .engine.job import InsightRows
from .engine.options import check_unset
from .engine.run_report import duration
from .engine.saved_models import check_model, is_export, newest_version
from .jobs.report_configs import InsightConfig, check_flags_of_kind
from .jobs.tasks import jobs_by_kind, jobs_by_predict_method
from .plots import page
from .readers.data_files import FORMATS, TAGGING_SUFFIXES, data_suffix, exists
from .readers.labeled_text import TextColumns, read_labeled_text
from .readers.tagged_words import WordColumns, sentence_texts

_THIS, _OTHER = "this model", "other model"
# Examples with at most this many words are explained first.
_MAX_WORDS = 40
# Flags that describe labels
_LABEL_FLAGS = ("label", "label_map", "skip_labels", "multi_label", "regression", "label_column")


def main(config: InsightConfig) -> None:
    for name in ("model", "data_file", "report_dir"):
        if not getattr(config, name):
            raise ValueError(f"--{name} must be a path. Received: no --{name}")
    program.require(("matplotlib",), "training")
    program.import_quietly()
    print(write_report(config))


def write_report(config: InsightConfig) -> Path:
    """Writes the report, and returns the path of its page.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid, or does not match the model.
    """
    files = (config.crows_pairs, config.winobias_pro, config.winobias_anti, config.stereoset)
    for path in (config.data_file, *files):
        if path and not exists(Path(path)):
            raise FileNotFoundError(f"{path} does not exist")
    if bool(config.winobias_pro) != bool(config.winobias_anti):
        raise ValueError("pass both --winobias_pro and --winobias_anti, or neither")
    with output_directory.report_directories(config):
        return _write_report(config)


def _write_report(config: InsightConfig) -> Path:
    files = (config.crows_pairs, config.winobias_pro, config.stereoset)
    import matplotlib

    matplotlib.use("agg")

    from .plots import insight_bias, insight_layers, insight_report

    models = {_THIS: _load(config.model, "model")}
    if config.compare_with:
        models[_OTHER] = _load(config.compare_with, "compare_with")
        if type(models[_OTHER]) is not type(models[_THIS]):
            raise ValueError(
                f"--compare_with must be a {type(models[_THIS]).__name__} as --model is. "
                f"Received: a {type(models[_OTHER]).__name__}"
            )
    model = models[_THIS]
    is_masked_lm = model.predict_method == "fill"
    if any(files) and not is_masked_lm:
        raise ValueError(
            "--crows_pairs, --winobias_pro and --stereoset are only for masked LMs. Received: "
            f"--model is a {type(model).__name__}"
        )
    job = _jobs()[model.predict_method]
    if model.predict_method != "classify" or model.multi_label:
        names = ["rows", *([] if is_masked_lm else ["batch_size"])]
        check_unset(config, names, "only classifiers with one label per text use it")
    kinds = (kind for kind, its in jobs_by_kind().items() if its is job)
    if kind := next(kinds, ""):
        check_flags_of_kind(config, kind, config.data_file)
    rows = job.read_insight_inputs(config, model)
    report = insight_report.Report(
        Path(config.report_dir), f"What {'/'.join(Path(config.model).parts[-3:])} has learned"
    )
    _describe(report, config, models)
    order = _explanation_order(rows, config)
    bias = None
    if model.predict_method == "classify" and not model.multi_label:
        count = config.rows or len(rows.inputs)
        bias = insight_bias.measure_classifiers(
            models, rows.texts[:count], rows.labels[:count], config.batch_size
        )
        order = bias.errors_first(order, config.examples)
    explanations = _explain(report, config, model, job, rows, order)
    insight_layers.add_attention(
        report, model, [rows.texts[index] for index in list(explanations) or order]
    )
    if is_masked_lm:
        insight_layers.add_predictions_by_layer(report, model, list(explanations.values()))
        insight_bias.add_stereotypes(
            report,
            models,
            config.batch_size,
            crows_pairs=config.crows_pairs,
            winobias=(config.winobias_pro, config.winobias_anti),
            stereoset=config.stereoset,
        )
    elif bias is not None:
        bias.add_to(report)
    else:
        report.leave_out(
            "Bias is only measured for masked LMs and for classifiers with one label per text, not "
            f"for a {type(model).__name__}."
        )
    _cost(report, config.model)
    return report.write()


# === Model and data ===


def _load(path: str, flag: str) -> Any:
    import keras_bert

    if path.endswith(".keras") or is_export(Path(path)) or newest_version(Path(path)):
        check_model(path, flag=flag)
        model = keras_bert.load_model(path, compile=False)
    else:
        model = keras_bert.MaskedLM.from_preset(path)
    if getattr(model, "predict_method", "") not in _jobs():
        raise ValueError(
            f"{path} must be a task that can {', '.join(_jobs())}. Received: a "
            f"{type(model).__name__}"
        )
    if model.preprocessor is None:
        raise ValueError(f"{path} must be a model with a preprocessor, so that it accepts text")
    return model


class _MaskedWords:
    """Stands in for a job with masked LMs, because no job fine-tunes them."""

    @staticmethod
    def read_insight_inputs(config: InsightConfig, model: Any) -> InsightRows:
        texts = _plain_texts(config, Path(config.data_file))
        return InsightRows(texts, texts)

    @staticmethod
    def predict_for_attribution(model: Any, text: str) -> tuple[str, str, str]:
        """Returns the text with a word near its middle masked, the word, and the prediction."""
        tokenizer = model.preprocessor.tokenizer
        ids, starts, ends = tokenizer.tokenize_with_offsets(text)
        words = [
            number
            for number, (start, end) in enumerate(zip(starts, ends, strict=True))
            if text[start:end].isalpha()
            # English words of up to three letters are rarely interesting.
            and (end - start > 3 or not text[start:end].isascii())
            and is_whole_word(text, start, end)
            and ids[number] != tokenizer.unk_token_id
        ]
        if not words:
            raise ValueError("the text must have a word with a single token")
        middle = min(words, key=lambda number: abs(number - len(ids) / 2))
        word = tokenizer.vocabulary[ids[middle]]
        masked = text[: starts[middle]] + tokenizer.mask_token + text[ends[middle] :]
        best = model.fill(masked, top_k=1)[0]
        return (
            masked,
            word,
            f"masked: {word}; filled in: {best['token']} ({best['score']:.3f})",
        )


def _jobs() -> dict[str, Any]:
    """Returns the jobs that read and predict a model's examples, by its prediction method."""
    return {**jobs_by_predict_method(), "fill": _MaskedWords}


def _plain_texts(config: InsightConfig, path: Path) -> list[str]:
    suffix = data_suffix(path)
    if config.format != "auto" or suffix in FORMATS or not path.is_file():
        check_flags_of_kind(config, "text", config.data_file)
        check_unset(config, _LABEL_FLAGS, "a masked LM reads no labels")
        columns = config.for_file(config.data_file, labeled=False)
        return read_labeled_text(config.data_file, columns, labeled=False).texts
    if suffix in TAGGING_SUFFIXES:
        check_flags_of_kind(config, "tagging", config.data_file)
        check_unset(config, _LABEL_FLAGS, "a masked LM reads no labels")
        return sentence_texts(config.read_words(config.data_file, labeled=False))
    names = [*TextColumns.__annotations__, *WordColumns.__annotations__]
    check_unset(config, names, f"each line of {path} is a text")
    texts = [line.strip() for line in read_lines(path, config.encoding)]
    # In WikiText files, lines that start with = are headings.
    return [text for text in texts if text and not text.startswith("= ")]


def _explanation_order(rows: InsightRows, config: InsightConfig) -> list[int]:
    """Returns the indices of the examples in the order to explain them, short examples first."""
    if not len(rows.inputs):
        raise ValueError(f"{config.data_file} must have at least one example")
    indices = range(len(rows.inputs))
    fitting = [index for index in indices if 2 < rows.words(index) <= _MAX_WORDS]
    others = sorted(set(indices) - set(fitting), key=lambda index: (rows.words(index), index))
    return fitting + others


def _describe(report: Any, config: InsightConfig, models: dict[str, Any]) -> None:
    facts_by_model = {}
    for name, path in ((_THIS, config.model), (_OTHER, config.compare_with)):
        if name in models:
            facts_by_model[name] = _facts(path, models[name])
    rows = [
        [fact, *(facts[fact] for facts in facts_by_model.values())]
        for fact in facts_by_model[_THIS]
    ]
    report.add(
        "Model",
        [page.table(["", *facts_by_model], rows)],
        data_file=config.data_file,
        model=facts_by_model[_THIS],
        compared_with=facts_by_model.get(_OTHER),
    )


def _cost(report: Any, path: str) -> None:
    """Adds the cost of training, from the `results.json` of the run that wrote the model."""
    directories = Path(path).resolve().parents[:2]
    files = [
        directory / "results.json"
        for directory in directories
        if (directory / "results.json").is_file()
    ]
    try:
        record = json.loads(files[0].read_text(encoding="utf-8")).get("cost", {}) if files else {}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{files[0]} must contain a run's results ({error})") from error
    if not record:
        report.leave_out("Cost: there is no results.json with costs next to the model.")
        return
    lines = [f"Time: {duration(3600 * record['hours'])}", run_cost.describe(record)]
    blocks = [page.text(line) for line in lines if line]
    report.add("Training cost", blocks, cost=record)


def _facts(path: str, model: Any) -> dict[str, str]:
    import keras

    from .engine.run_checkpoints import num_bytes

    config, backbone = model.config, model.backbone
    weights = num_bytes(model.weights)
    facts = {
        "file": path,
        "task": type(model).__name__,
        "parameters": f"{model.count_params():,}",
        "embedding parameters": f"{backbone.token_embedding.count_params():,}",
        "weights": f"{weights / 1e6:,.1f} MB",
        "layers": f"{config.num_layers}",
        "hidden size": f"{config.hidden_dim:,}",
        "attention heads": f"{config.num_heads}",
        "vocabulary": f"{config.vocabulary_size:,}",
        "sequence length": f"{model.preprocessor.sequence_length:,} tokens",
        "backend": keras.backend.backend(),
    }
    if Path(path).is_file():
        facts["file size"] = f"{Path(path).stat().st_size / 1e6:,.1f} MB"
    if getattr(model, "class_names", None):
        facts["classes"] = ", ".join(model.class_names)
    return facts


# === Attributions ===


def _explain(
    report: Any,
    config: InsightConfig,
    model: Any,
    job: Any,
    rows: InsightRows,
    order: Sequence[int],
) -> dict[int, Any]:
    """Adds the attributions of some examples, and returns the explained inputs by index."""
    from keras_bert import insight

    predictions: list[tuple[int, Any, str]] = []
    explained: dict[int, Any] = {}
    reason = ""
    logging.info("explaining %d examples", min(config.examples, len(order)))
    for index in itertools.islice(order, 4 * config.examples):
        try:
            row, target, answer = job.predict_for_attribution(model, rows.inputs[index])
            why = insight.attributions(model, row, config.method, target)
        except ValueError as error:
            # The text does not fit in one window, or has no word to mask. Try the next example.
            reason = str(error)
            continue
        predictions.append((index, why, answer))
        explained[index] = row
        if len(predictions) == config.examples:
            break
    if not predictions:
        report.leave_out(f"Attributions: the examples could not be explained. {reason}")
        return {}
    blocks = [
        page.text(
            "Green words raise the logit of the prediction (for a masked word, the logit of that "
            "word). Orange words lower it."
        )
    ]
    for number, (index, why, answer) in enumerate(predictions, start=1):
        label = f"label: {rows.labels[index]}; " if rows.labels else ""
        logit = f"logit {why.output:.3f}"
        blocks.append(
            page.Html(
                f"<h3>{number}. {html.escape(label + answer)} "
                f'<span class="faint">{html.escape(logit)}</span></h3>{why.shaded()}'
            )
        )
        report.figure(f"attribution_{number}", why.plot(), why.target)
    error = max(abs(why.convergence_delta) for _, why, _ in predictions)
    if not math.isnan(error):
        blocks.append(
            page.text(
                "Integrated gradients should add up to the logit minus the logit for padding. The "
                f"largest error in these examples is {error:.3f}.",
                faint=True,
            )
        )
    numbers = [
        {"row": index, "answer": answer, **why.to_dict()} for index, why, answer in predictions
    ]
    report.add("Attributions", blocks, attributions=numbers)
    return explained


if __name__ == "__main__":
    program.run(main, InsightConfig)
