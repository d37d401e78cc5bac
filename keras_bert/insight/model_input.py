# SPDX-License-Identifier: Apache-2.0
"""Shows how a task converts its input to sequences: tokens, segments, positions and labels."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.documents import DocumentsAdapter
from keras_bert.data.adapters.questions import OUTPUTS, QuestionAdapter
from keras_bert.data.adapters.reading import Features, Rows, adapter_class, read_input
from keras_bert.data.adapters.text_batches import TextDatasetAdapter
from keras_bert.data.adapters.words import WordsAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import as_string, label_column
from keras_bert.data.pretraining.instances import PAIR_FORMATS
from keras_bert.data.questions import question_rows
from keras_bert.insight.input_sequence import Excerpt, InputSequence, ModelInputs
from keras_bert.insight.token_sources import TokenSource, track_sources
from keras_bert.models.inputs import ROWS_OF_TUPLES
from keras_bert.tasks.next_sentence_predictor import NEXT_SENTENCE, SENTENCE_ORDER
from keras_bert.tasks.task import Task
from keras_bert.text.words import WordUnit, infer_word_unit, join_words, joined_spans


def model_inputs(task: Task, x: Any, y: Any = None, sample_weight: Any = None) -> ModelInputs:
    """Returns the sequences that a task trains on for an input, with the source of each token.

    Look at them first if a model makes wrong predictions: they show how texts are split into
    tokens, what is truncated, and which token has which label. They are the batches that
    `task.fit(x, y, batch_size=len(x), shuffle=False, bucketing_window=1)` trains on, in the order
    of the input. Masks are sampled as in this call of `fit`.

    Args:
        task: A task with a preprocessor. Its weights are not used.
        x: Input in memory, in a form that `fit` or `predict` accepts, or batches of features, such
            as a `keras_bert.data.PretrainingStream`. Of batches, only the first is read.
        y: Labels as in `fit`, or `None` for an input without labels.
        sample_weight: Sample weights as in `fit`.

    Returns:
        `ModelInputs`, a tuple of `InputSequence`. An example has multiple sequences if it has
        choices, a long context, or a long sentence. Printed, each sequence is a table. Notebooks
        show a picture, which `InputSequence.svg` draws.

    Raises:
        ValueError: If the input or a label is invalid, or if `x` is a dataset or generator of text.

    Example:

    >>> from keras_bert import Backbone, BertConfig, TextClassifier, WordPieceTokenizer, insight
    >>> tokens = "[PAD] [UNK] [CLS] [SEP] my dog he likes play ##ing".split()
    >>> config = BertConfig(len(tokens), num_layers=1, hidden_dim=8, num_heads=2)
    >>> preprocessor = keras_bert.data.TextClassifierPreprocessor(WordPieceTokenizer(tokens), 16)
    >>> classifier = TextClassifier(Backbone(config), 2, preprocessor)
    >>> print(insight.model_inputs(classifier, [("My dog", "he likes playing")], [1]))
    example 0, label: 1, 9 tokens + 7 padding
    <BLANKLINE>
    field             text              text_pair
    token      [CLS]  my    dog  [SEP]  he         likes  play  ##ing  [SEP]
    id         2      4     5    3      6          7      8     9      3
    segment    0      0     0    0      1          1      1     1      1
    position   0      1     2    3      4          5      6     7      8
    character         0     3           0          3      9     13
    """
    reader: Any = getattr(task, "student_task", task)  # A distiller reads its student's input.
    state = random.getstate()
    try:
        rows, batches, options = _read(reader, x, y, sample_weight)
    finally:
        random.setstate(state)  # Sampling masks must not change later calls of `fit`.
    if isinstance(rows, Features):
        return ModelInputs(_sequences_of_features(reader, batches))
    return ModelInputs(_sequences_of_text(reader, rows, batches, options))


class _Batch(NamedTuple):
    """A batch that a task trains on. Labels and weights are `None` if there are none."""

    features: dict[str, np.ndarray]
    labels: Any
    weights: Any


def _read(
    task: Task, x: Any, y: Any, sample_weight: Any
) -> tuple[Rows, list[_Batch], BatchOptions]:
    """Reads an input, and converts it to the batches of `fit`."""
    kind = adapter_class(task.adapters, x)
    options = task._options(
        (len(kind.read(x)) or 1) if kind is not None and kind.in_memory else None,
        training=True,
        negative_fraction=task.negative_fraction,
        duplicate_factor=task.duplicate_factor,
        bucketing_window=1,
    )
    is_labeled = y is not None or kind is None or not task.needs_labels
    if is_labeled or label_column(x) is not None:
        rows = task._read(x, y, sample_weight, options)
    else:
        rows = read_input(task.adapters, x)
    if isinstance(rows, TextDatasetAdapter):
        raise ValueError(
            "x must be examples in memory, or batches of features. Received: a dataset or "
            "generator of text. Pass its first examples as a list."
        )
    if isinstance(rows, WordsAdapter):
        # In training, the preprocessor would learn what a word is.
        options = dataclasses.replace(options, training=False)
    if isinstance(rows, InputAdapter):
        batches = [_unpack(batch) for batch in task._batches(rows, options)]
        if isinstance(rows, WordsAdapter) and rows.labels is None:
            batches = [_Batch(batch.features, None, None) for batch in batches]
        return rows, batches, options
    batch: Any = (rows.x, rows.y, rows.sample_weight)
    if not rows.are_arrays:
        batch = rows.x.example() if isinstance(rows.x, Batches) else next(iter(rows.x), None)
    features, labels, weights = _unpack(batch)
    features = features if isinstance(features, Mapping) else {"token_ids": features}
    return rows, [_Batch(*map(_to_numpy, (features, labels, weights)))], options


def _unpack(batch: Any) -> _Batch:
    return _Batch(*keras.utils.unpack_x_y_sample_weight(batch))


def _to_numpy(values: Any) -> Any:
    to_numpy = keras.ops.convert_to_numpy
    return None if values is None else keras.tree.map_structure(to_numpy, values)


def _sequences_of_features(task: Task, batches: Sequence[_Batch]) -> Iterator[InputSequence]:
    """Returns the sequences of features, whose sources are unknown."""
    for batch in batches:
        ids = batch.features["token_ids"]
        for at in np.ndindex(ids.shape[:-1]):
            part = f"choice {at[1] + 1}" if ids.ndim == 3 else ""
            sequence = _sequence(task, batch, at, at[0], part)
            if sequence.padding_mask.any():
                yield sequence


def _sequences_of_text(
    task: Task, rows: InputAdapter, batches: Sequence[_Batch], options: BatchOptions
) -> list[InputSequence]:
    """Returns the sequences of text, in the order of the input."""
    preprocessor, tokenizer = track_sources(task.preprocessor)
    if isinstance(rows, WordsAdapter):
        rows = rows.split_into_words(task.preprocessor)
    describe = _description(task, rows, preprocessor, options)
    if isinstance(rows, WordsAdapter):
        num_words = sum(map(len, rows.sentences))
        # Words are their own labels, so that a sequence contains the words that it tags.
        words = np.arange(1, num_words + 1, dtype="int32")
        rows = dataclasses.replace(rows, depth=max(2, rows.depth), labels=words, weights=words)
    packed: Any = task._packed_batches(rows, options, preprocessor)
    # The index of each window's example, if long texts are split
    windows = getattr(getattr(getattr(packed, "source", None), "examples", None), "windows", None)
    found: dict[tuple[int, ...], InputSequence] = {}
    for batch, (sources, index) in zip(batches, packed.with_indices(), strict=True):
        numbers, masks = sources["token_ids"], sources["padding_mask"]
        if ROWS_OF_TUPLES in batch.features:
            batch = _separate_texts(batch)
        for at in np.ndindex(numbers.shape[:-1]):
            length, row = int(masks[at].sum()), int(index[at[0]])
            # Examples may have fewer choices. Padding examples in a batch repeat examples.
            if not length or (row, *at[1:]) in found:
                continue
            example = row if windows is None else int(windows.row[row])
            tokens = [tokenizer.source(number) for number in numbers[at][:length].tolist()]
            tagged = sources.get("labels", numbers)[at][:length]
            sequence = _sequence(task, batch, at, example)
            found[row, *at[1:]] = describe(sequence, at[1:], tokens, tagged)
    sequences = [found[key] for key in sorted(found)]
    is_windowed = windows is not None or isinstance(rows, (QuestionAdapter, WordsAdapter))
    return _number_windows(sequences) if is_windowed else sequences


def _number_windows(sequences: Sequence[InputSequence]) -> list[InputSequence]:
    """Names the part `"window 2 of 3"` if an example has multiple sequences."""
    totals = Counter(sequence.example for sequence in sequences)
    numbers = {example: itertools.count(1) for example in totals}
    return [
        dataclasses.replace(sequence, part=f"window {next(numbers[sequence.example])} of {total}")
        if (total := totals[sequence.example]) > 1
        else sequence
        for sequence in sequences
    ]


def _separate_texts(batch: _Batch) -> _Batch:
    """Restores the sequences of each tuple in a batch that contains each text once."""
    features = dict(batch.features)
    rows = features.pop(ROWS_OF_TUPLES)
    return batch._replace(features={name: values[rows] for name, values in features.items()})


def _sequence(
    task: Task, batch: _Batch, at: tuple[int, ...], example: int, part: str = ""
) -> InputSequence:
    """Returns a sequence of a batch with its labels, but without sources.

    Args:
        task: The task.
        batch: The batch.
        at: The index of the sequence in the features.
        example: The index of the example in the input.
        part: See `InputSequence`.
    """
    ids = batch.features["token_ids"]
    features = {
        name: values[at if values.shape[: len(at)] == ids.shape[: len(at)] else at[0]]
        for name, values in batch.features.items()
        if np.ndim(values) > 1
    }
    tokenizer = task.preprocessor.tokenizer
    tokens = tuple(map(tokenizer.id_to_token, features["token_ids"].tolist()))
    sequence = InputSequence(example, part, features, tokens, {}, (None,) * len(tokens))
    label, token_labels = _labels(task, batch, at, sequence)
    return dataclasses.replace(sequence, label=label, token_labels=token_labels)


def _labels(
    task: Task, batch: _Batch, at: tuple[int, ...], sequence: InputSequence
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Returns the label of an example, and the labels of its tokens by type."""
    row, labels, weights = at[0], batch.labels, batch.weights
    if labels is None:
        return "", {}
    if "mask_positions" in sequence.features:
        return _mask_labels(task, labels, weights, row, sequence)
    if isinstance(labels, Mapping):
        marks = [""] * len(sequence.tokens)
        for name, output in zip(("start", "end"), OUTPUTS, strict=True):
            position = int(labels[output][row])
            marks[position] = f"{marks[position]}-{name}" if marks[position] else name
        has_answer = int(labels[OUTPUTS[1]][row]) > 0
        return ("", {"answer": tuple(marks)}) if has_answer else ("no answer", {})
    if len(at) == 2 and labels.dtype.kind in "iu":
        if labels.ndim == 2:  # Numbers that identify texts
            return "", {}
        return ("correct" if int(labels[row]) == at[1] else "wrong"), {}
    value = labels[row]
    if np.shape(value) == sequence.token_ids.shape and not task.is_sequence_level:
        weight = np.ones(len(value)) if weights is None else weights[row]
        names = [
            _class_name(task, label) if counts else ""
            for label, counts in zip(value.tolist(), weight > 0, strict=True)
        ]
        return "", {"label": tuple(names)}
    label = _class_name(task, value.tolist())
    if weights is not None and float(np.ravel(weights)[row]) != 1 and label:
        label = f"{label} (weight {float(np.ravel(weights)[row]):g})"
    return label, {}


def _mask_labels(
    task: Task, labels: Any, weights: Any, row: int, sequence: InputSequence
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Returns the label of a segment pair, and the targets of masked tokens."""
    label = ""
    if isinstance(labels, Mapping):
        if "next_sentence_logits" in labels:
            is_order = getattr(task, "sequence_format", "") == "sentence_order"
            names = SENTENCE_ORDER if is_order else NEXT_SENTENCE
            label = names[int(labels["next_sentence_logits"][row])]
        labels = labels["masked_lm_logits"]
        weights = weights["masked_lm_logits"] if isinstance(weights, Mapping) else weights
    tokenizer, causal = task.preprocessor.tokenizer, task.config.causal
    targets, masking = ([""] * len(sequence.tokens) for _ in range(2))
    slots = np.arange(len(labels[row])) if weights is None else np.flatnonzero(weights[row])
    positions = sequence.features["mask_positions"]
    for slot in slots.tolist():
        position, target = int(positions[slot]), int(labels[row][slot])
        token_id = int(sequence.token_ids[position])
        targets[position] = tokenizer.id_to_token(target)
        is_mask = not causal and token_id == tokenizer.mask_token_id
        masking[position] = "masked" if is_mask else "kept" if token_id == target else "random"
    token_labels = {"target": tuple(targets)}
    return label, token_labels if causal else {**token_labels, "masking": tuple(masking)}


def _class_name(task: Task, value: Any) -> str:
    """Formats a class ID, a score, or a value for each class."""
    names = getattr(task, "class_names", None)
    if isinstance(value, list):
        if getattr(task, "multi_label", False):
            known = names or range(len(value))
            return ", ".join(str(known[i]) for i, one in enumerate(value) if one) or "none"
        return ", ".join(f"{one:g}" for one in value)
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:g}"
    if value < 0:
        return ""
    return str(names[value]) if names else str(value)


# Adds the texts and sources to a sequence. The other arguments are the index of the sequence in its
# example (empty for one sequence), the source of each token, and in tagging the number (from 1) of
# the word that each token tags.
_Describe = Callable[
    [InputSequence, tuple[int, ...], Sequence[TokenSource | None], np.ndarray], InputSequence
]


def _description(
    task: Any, rows: InputAdapter, preprocessor: Any, options: BatchOptions
) -> _Describe:
    """Returns a function that adds the texts and sources to the sequences of an input."""
    if isinstance(rows, WordsAdapter):
        return _describe_words(rows, task.word_unit)
    if isinstance(rows, QuestionAdapter):
        return _describe_questions(rows, preprocessor, options)
    if isinstance(rows, DocumentsAdapter):
        return functools.partial(_describe_sentences, task.sequence_format in PAIR_FORMATS)
    columns: dict[str, list[Any]] = {
        name: list(map(_strings, column)) for name, column in getattr(rows, "columns", {}).items()
    }

    def describe(
        sequence: InputSequence, at: tuple[int, ...], tokens: Sequence[TokenSource | None], _: Any
    ) -> InputSequence:
        texts = {name: column[sequence.example] for name, column in columns.items()}
        part = ""
        if "choices" in texts:
            choices = texts.pop("choices")
            part = f"choice {at[0] + 1} of {len(choices)}"
            texts["choice"] = choices[at[0]]
        elif at:
            part = list(texts)[at[0]]
            texts = {part: texts[part]}
        windowed = ""
        if preprocessor.splits_texts:
            longest = max(filter(None, tokens), key=lambda source: source.count, default=None)
            windowed = next((name for name in texts if longest and texts[name] == longest.text), "")
        return dataclasses.replace(_with_sources(sequence, texts, tokens, windowed), part=part)

    return describe


def _strings(value: Any) -> Any:
    return list(map(_strings, value)) if isinstance(value, list) else as_string(value)


def _describe_sentences(
    is_pair: bool,
    sequence: InputSequence,
    _: Any,
    tokens: Sequence[TokenSource | None],
    __: Any,
) -> InputSequence:
    """Adds the sentences in a sequence from documents. A separator ends a segment or document."""
    texts: dict[str, str] = {}
    spans: list[Any] = [None] * len(sequence.tokens)
    field, sentence, offset = -1, None, 0
    for position, source in enumerate(tokens):
        if source is None:
            sentence = None
            continue
        if sentence is None:
            field += 1
        name = f"segment {'AB'[field]}" if is_pair else f"document {field + 1}"
        if source.number != sentence:
            before = f"{texts[name]} " if name in texts else ""
            sentence, offset = source.number, len(before)
            texts[name] = before + source.text
        spans[position] = (field, offset + source.start, offset + source.end)
    return dataclasses.replace(sequence, texts=texts, spans=tuple(spans))


def _describe_questions(
    rows: QuestionAdapter, preprocessor: Any, options: BatchOptions
) -> _Describe:
    windows = question_rows(rows.examples, preprocessor, options.negative_fraction)

    def describe(
        sequence: InputSequence, _: Any, tokens: Sequence[TokenSource | None], __: Any
    ) -> InputSequence:
        index = int(windows.question_index[sequence.example])
        example = rows.examples[index]
        texts = {"question": example.question, "context": example.context}
        sequence = dataclasses.replace(
            _with_sources(sequence, texts, tokens, windowed="context"), example=index
        )
        if example.answers is None:
            return dataclasses.replace(sequence, label="", token_labels={})
        spans = [
            span
            for span, mark in zip(
                sequence.spans, sequence.token_labels.get("answer", ()), strict=False
            )
            if span is not None and mark
        ]
        if spans:
            label = repr(example.context[spans[0][1] : spans[-1][2]])
        else:
            label = "no answer in this window" if example.answers else "unanswerable"
        return dataclasses.replace(sequence, label=label)

    return describe


def _describe_words(rows: WordsAdapter, unit: WordUnit | None) -> _Describe:
    sentences = [list(map(as_string, sentence)) for sentence in rows.sentences]
    unit = unit or infer_word_unit(sentences)
    words = [word for sentence in sentences for word in sentence]
    bounds = np.cumsum([0, *map(len, sentences)])

    def describe(
        sequence: InputSequence,
        _: Any,
        tokens: Sequence[TokenSource | None],
        tagged: np.ndarray,
    ) -> InputSequence:
        sources = [source for source in tokens if source is not None]
        first, last = sources[0].number, sources[-1].number
        own = tagged[tagged > 0]
        sentence = int(np.searchsorted(bounds, own[0] - 1 if len(own) else first, side="right")) - 1
        start, stop = bounds[sentence : sentence + 2].tolist()
        if rows.texts is not None and rows.offsets is not None:
            texts = {"text": rows.texts[sentence]}
            places = list(zip(*(column[sentence] for column in rows.offsets), strict=True))
            places = places[first - start :]
        else:
            texts = {"words": join_words(words[first : last + 1], unit)}
            places = joined_spans(words[first : last + 1], unit)
        spans = [
            None if source is None else (0, *places[source.number - first]) for source in tokens
        ]
        inside = max(first, start) - start, min(last + 1, stop) - start
        excerpts = [Excerpt("words", *inside, stop - start, is_window=True)]
        for _, tokens_of_word in itertools.groupby(sources, lambda source: source.number):
            pieces = list(tokens_of_word)
            field = repr(pieces[0].text)
            excerpts.append(
                Excerpt(field, pieces[0].index, pieces[-1].index + 1, pieces[0].count, False)
            )
        return dataclasses.replace(
            sequence,
            example=sentence,
            texts=texts,
            spans=(*spans, *sequence.spans[len(spans) :]),
            excerpts=tuple(excerpt for excerpt in excerpts if excerpt.is_partial),
        )

    return describe


def _with_sources(
    sequence: InputSequence,
    texts: Mapping[str, str],
    tokens: Sequence[TokenSource | None],
    windowed: str = "",
) -> InputSequence:
    """Adds texts to a sequence, and finds the text of each token.

    Args:
        sequence: The sequence.
        texts: The texts by field, in the order of the sequence.
        tokens: The source of each token.
        windowed: The field whose omitted tokens are in other sequences. Others are truncated.
    """
    names, field, current = list(texts), -1, None
    spans: list[Any] = [None] * len(sequence.tokens)
    parts: dict[str, list[TokenSource]] = {}
    for position, source in enumerate(tokens):
        if source is None:
            continue
        if source.number != current:
            current = source.number
            # A text without tokens, such as an empty text, is skipped.
            field = next(i for i in range(field + 1, len(names)) if texts[names[i]] == source.text)
        spans[position] = (field, source.start, source.end)
        parts.setdefault(names[field], []).append(source)
    excerpts = [
        Excerpt(
            name,
            part[0].index,
            part[-1].index + 1,
            part[0].count,
            name == windowed,
            texts[name][: part[0].start] if part[0].index else "",
            texts[name][part[-1].end :] if part[-1].index + 1 < part[0].count else "",
        )
        for name, part in parts.items()
    ]
    return dataclasses.replace(
        sequence,
        texts=texts,
        spans=tuple(spans),
        excerpts=tuple(excerpt for excerpt in excerpts if excerpt.is_partial),
    )
