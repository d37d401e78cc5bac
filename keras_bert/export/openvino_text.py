# SPDX-License-Identifier: Apache-2.0
"""Builds one OpenVINO model from a tokenizer and a network.

The model only contains operations from OpenVINO and from the package `openvino_tokenizers`. To run
it, import `openvino` and `openvino_tokenizers`, which registers its operations. TensorFlow and
Keras are not needed. The model does not use OpenVINO's version of Unicode: the task's tokenizer
maps every character, and the model stores the map.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino
import openvino_tokenizers
import tensorflow as tf
from openvino import opset15 as ops
from openvino_tokenizers import tokenizer_pipeline as steps
from openvino_tokenizers.utils import create_string_constant_node

from keras_bert.data.arrays import Arrays, row_numbers, row_starts
from keras_bert.data.texts import TextClassifierPreprocessor, split_into_windows
from keras_bert.export.options import ExportError, ExportOptions, Servable
from keras_bert.models.inputs import INPUT_NAMES
from keras_bert.text import BytePairTokenizer, SentencePieceTokenizer, WordPieceTokenizer
from keras_bert.text.byte_pair import word_expression
from keras_bert.text.graph.normalization import lower, normalize
from keras_bert.text.graph.sentence_piece_cleaning import SentenceCleaner
from keras_bert.text.graph.wordpiece import PieceFinder
from keras_bert.text.normalization import Normalization
from keras_bert.text.special_tokens import longest_of
from keras_bert.vocabularies.byte_pair_files import token_bytes
from keras_bert.vocabularies.sentence_piece_model import read_characters_map

_COUNTS = "num_windows"

# Strings in OpenVINO's steps are stored as their start and end offsets and the bytes of all
# strings.
Strings = list[Any]
# Ids in OpenVINO's steps are stored as each text's start and end offsets and the ids of all texts.
Ids = list[Any]


def connect_text(network: Any, task: Servable, options: ExportOptions) -> Any:
    """Connects a tokenizer to a network of token ids and returns an `openvino.Model`.

    The inputs are `text`, string `(batch,)`, and, with `pair`, `text_pair`. The outputs match the
    task's `serving_default`:

    - A classifier has `label`, string `(batch,)`, `score` and `probabilities`.
    - A classifier with `multi_label` has `probabilities` and `applies`, bool `(batch, classes)`,
      true for labels that reach their threshold.
    - A regression has `score`.
    - An embedder has `embedding`.

    If the preprocessor splits long texts, a classifier also has `num_windows`. All windows of a
    request are computed at once.

    A request without texts, or with different numbers of `text` and `text_pair`, fails.

    Raises:
        ExportError: If OpenVINO's steps do not support the tokenizer.
    """
    connected = openvino_tokenizers.connect_models(
        text_model(task.preprocessor, pair=options.pair),
        network,
        [(name, name) for name in INPUT_NAMES],
        keep_remaining_first_model_outputs=True,
    )
    output, *counts = (result.get_node().input_value(0) for result in connected.outputs)
    if counts:
        output = _merge_windows(output, counts[0], task)
    if task.output_name == "embedding":
        answers = {"embedding": output}
    else:
        names = ("thresholds", "min_score")
        limits = {name: getattr(task, name, None) for name in names}
        answers = answers_of_logits(output, options.class_names, **limits)
        if counts and options.class_names is not None:
            answers[_COUNTS] = counts[0]
    return _model(answers, [texts.get_node() for texts in connected.inputs])


def text_model(preprocessor: TextClassifierPreprocessor, *, pair: bool) -> Any:
    """Builds an `openvino.Model` that is equivalent to a preprocessor.

    The inputs are `text` and, with `pair`, `text_pair`, string `(batch,)`. The outputs are
    `token_ids`, `segment_ids` and `padding_mask`, int32 `(batch, length)`. If the preprocessor
    splits long texts, they are the windows, and `num_windows`, int32 `(batch,)`, counts them.
    """
    names = ("text", "text_pair") if pair else ("text",)
    texts = [ops.parameter([-1], openvino.Type.string, name=name) for name in names]
    for text, name in zip(texts, names, strict=True):
        text.output(0).set_names({name})
    find_ids = _STEPS[preprocessor.tokenizer.kind](preprocessor.tokenizer)
    return _model(_pack(preprocessor, [find_ids(part) for part in _check(texts)]), texts)


def answers_of_logits(
    logits: Any,
    class_names: Sequence[str] | None,
    thresholds: Sequence[float] | None = None,
    min_score: float | None = None,
) -> dict[str, Any]:
    """Computes predictions from logits `(batch, _)`. A regression has no `class_names`."""
    if class_names is None:
        return {"score": ops.squeeze(logits, _integer(1)).output(0)}
    if thresholds is not None:
        probabilities = ops.sigmoid(logits)
        lowest = ops.constant(np.array([thresholds], "float32"))
        applies = ops.greater_equal(probabilities, lowest)
        return {"probabilities": probabilities.output(0), "applies": applies.output(0)}
    probabilities = ops.softmax(logits, 1)
    best = ops.topk(probabilities, _integer(1), 1, "max", "none")
    row = ops.squeeze(best.output(1), _integer(1))
    score = ops.squeeze(best.output(0), _integer(1))
    if min_score is not None:
        lowest = ops.constant(np.array(min_score, "float32"))
        row = ops.select(ops.greater_equal(score, lowest), row, _integer(len(class_names)))
        class_names = [*class_names, ""]
    return {
        "label": _labels(row, class_names),
        "score": score.output(0),
        "probabilities": probabilities.output(0),
    }


def _labels(classes: Any, class_names: Sequence[str]) -> Any:
    """Returns the names, string `(batch,)`, of class ids `(batch,)`."""
    # `StringTensorPack` requires ascending offsets, so each example has its own copy of its name. A
    # class id is handled as a text with one id, and replaced by the bytes of its name.
    number = ops.squeeze(ops.shape_of(classes, openvino.Type.i32))
    begins = ops.range(_integer(0), number, _integer(1), openvino.Type.i32)
    names = [name.encode("utf-8") for name in class_names]
    begins, ends, symbols = _expand([begins, ops.add(begins, _integer(1)), classes], names)
    return ops.string_tensor_pack(begins, ends, ops.convert(symbols, "u8")).output(0)


def _model(outputs: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    for name, output in outputs.items():
        output.set_names({name})
    return openvino.Model([ops.result(output) for output in outputs.values()], list(inputs), "text")


def _check(texts: Sequence[Any]) -> list[Strings]:
    """Unpacks the input strings, and fails unless their numbers are equal and above 0.

    Without this check, OpenVINO 2026.4 returns the previous response for a request without strings,
    and exits if `text` has more strings than `text_pair`.
    """
    numbers = [ops.squeeze(ops.shape_of(text, openvino.Type.i32)) for text in texts]
    is_right = ops.greater(numbers[0], _integer(0))
    number = numbers[0]
    for other in numbers[1:]:
        is_right = ops.logical_and(is_right, ops.equal(numbers[0], other))
        number = ops.minimum(number, other)
    # OpenVINO has no assertions. Adding three numbers to two numbers fails, and [0, 1] + [0, -1] is
    # 0.
    size = ops.select(is_right, _integer(2), _integer(3))
    numbers_to_add = ops.range(_integer(0), size, _integer(1), openvino.Type.i32)
    zero = ops.reduce_sum(ops.add(numbers_to_add, _integers([0, -1])), _integer(0))
    rows = ops.add(ops.range(_integer(0), number, _integer(1), openvino.Type.i32), zero)
    checked_texts = []
    for text in texts:
        begins, ends, symbols = ops.string_tensor_unpack(text).outputs()
        begins, ends = (
            ops.gather(bounds, rows, _integer(0)).output(0) for bounds in (begins, ends)
        )
        checked_texts.append([begins, ends, symbols])
    return checked_texts


# === Packing ===


def _pack(preprocessor: Any, texts: Sequence[Ids]) -> dict[str, Any]:
    """Packs one or two texts' ids into features `(batch, length)`, as the preprocessor does."""
    tokenizer = preprocessor.tokenizer
    max_tokens = preprocessor.max_tokens(len(texts))
    start = steps.AddToken(_token_id=tokenizer.cls_token_id, token_type_id=0)
    end = steps.AddToken(_token_id=tokenizer.sep_token_id, token_type_id=0)
    inputs = [start, steps.Sequence(token_type_id=0), end]
    if len(texts) == 2:
        second = tokenizer.num_segments - 1
        between = [end] * tokenizer.pair_separators
        if tokenizer.repeats_cls:
            between[-1] = start
        inputs[2:] = between
        inputs.append(steps.Sequence(token_type_id=second))
        inputs.append(steps.AddToken(_token_id=tokenizer.sep_token_id, token_type_id=second))
    combine = steps.CombineSegmentsStep(inputs)
    counts = {}
    if preprocessor.splits_texts:
        texts, counts[_COUNTS] = _windows(preprocessor, texts)
    else:
        texts = _truncate(texts, max_tokens, tokenizer.truncation_side)
    ragged = combine.get_ov_subgraph([tensor for text in texts for tensor in text])
    padding = steps.PaddingStep(_token_id=tokenizer.pad_token_id)
    token_ids, _, mask = padding.get_ov_subgraph(ragged)
    # Padding is in segment 0 for any padding id.
    segments = steps.PaddingStep(_token_id=0).get_ov_subgraph([*ragged[3:5], ragged[5]])
    return dict(zip(INPUT_NAMES, (token_ids, segments[0], mask), strict=True)) | counts


def _truncate(texts: Sequence[Ids], max_tokens: int, side: str) -> list[Ids]:
    """Truncates ids. See `keras_bert.data.packing.truncate`."""
    lengths = [ops.subtract(ends, begins) for begins, ends, _ in texts]
    if len(texts) == 1:
        limits = [_integer(max_tokens)]
    else:
        half = max_tokens // 2
        rest = [ops.subtract(_integer(max_tokens), length) for length in lengths]
        limits = [
            ops.maximum(rest[1], _integer(max_tokens - half)),
            ops.maximum(rest[0], _integer(half)),
        ]
    new_lengths = [ops.minimum(*both) for both in zip(lengths, limits, strict=True)]
    if side == "left":
        return [
            [ops.subtract(ends, length).output(0), ends, ids]
            for (_, ends, ids), length in zip(texts, new_lengths, strict=True)
        ]
    return [
        [begins, ops.add(begins, length).output(0), ids]
        for (begins, _, ids), length in zip(texts, new_lengths, strict=True)
    ]


# === Windows ===


class _OpenVINOArrays(Arrays):
    """The array functions that `split_into_windows` needs, computed with OpenVINO in int64."""

    minimum = staticmethod(ops.minimum)
    maximum = staticmethod(ops.maximum)
    divide = staticmethod(ops.divide)
    at_least = staticmethod(ops.greater_equal)
    where = staticmethod(ops.select)

    def size(self, x: Any, axis: int = 0) -> Any:
        return ops.gather(ops.shape_of(x), _integer(axis), _integer(0))

    def arange(self, stop: Any) -> Any:
        return ops.range(_integer(0), stop, _integer(1), openvino.Type.i64)

    def take(self, x: Any, index: Any) -> Any:
        return ops.gather(x, index, _integer(0))

    def cumsum(self, x: Any, axis: int = 0) -> Any:
        return ops.cum_sum(x, _integer(axis))

    def sum(self, x: Any, axis: int | None = None) -> Any:
        return ops.reduce_sum(x, _integer(axis or 0))

    def repeat(self, x: Any, counts: Any) -> Any:
        position = self.arange(self.sum(counts))
        return self.take(x, ops.search_sorted(self.cumsum(counts), position, right_mode=True))


_OPENVINO = _OpenVINOArrays()


def _windows(
    preprocessor: TextClassifierPreprocessor, texts: Sequence[Ids]
) -> tuple[list[Ids], Any]:
    """Returns the ids of windows, and each text's number of windows."""
    windows = split_into_windows(
        _OPENVINO,
        [ops.convert(ops.subtract(ends, begins), "i64") for begins, ends, _ in texts],
        preprocessor.max_tokens(len(texts)),
        preprocessor.overlap,
        preprocessor.tokenizer.truncation_side,
    )
    parts = []
    for (begins, _, ids), start, length in zip(texts, windows.starts, windows.lengths, strict=True):
        first = _OPENVINO.take(ops.convert(begins, "i64"), windows.row) + start
        # OpenVINO's steps have no room for ids that are in multiple windows, so these are copied.
        values = _OPENVINO.take(ids, _OPENVINO.ranges(first, length))
        starts = row_starts(_OPENVINO, length)
        bounds = (ops.convert(node, "i32").output(0) for node in (starts, starts + length))
        parts.append([*bounds, values.output(0)])
    return parts, ops.convert(windows.counts, "i32").output(0)


def _merge_windows(outputs: Any, counts: Any, task: Servable) -> Any:
    """Returns each text's output `(batch, _)`. See `Servable.merge_windows`."""
    rows = row_numbers(_OPENVINO, ops.convert(counts, "i64"))
    shape = ops.shape_of(outputs)
    index = ops.broadcast(ops.unsqueeze(rows, _integer(1)), shape)
    size = ops.concat([ops.shape_of(counts), ops.gather(shape, _integers([1]), _integer(0))], 0)
    zeros = ops.broadcast(ops.constant(np.array(0, "float32")), size)
    merged = ops.scatter_elements_update(
        zeros,
        index,
        outputs,
        _integer(0),
        task.preprocessor.long_texts,
        use_init_val=False,
    )
    if getattr(task, "normalize", False):
        merged = ops.normalize_l2(merged, _integers([1]), 1e-12, "max")
    return merged.output(0)


# === WordPiece ===


def _wordpiece(tokenizer: WordPieceTokenizer) -> Callable[[Strings], Ids]:
    marks = tokenizer.token_marks
    vocabulary = tokenizer.matched_vocabulary
    unknown = vocabulary[tokenizer.unk_token_id]
    characters = _characters_map(_word_characters(tokenizer.rules))
    rules = tokenizer.rules
    sigma = _final_sigma(lambda texts: normalize(texts, rules)[0]) if rules.lowercase else None

    def find(strings: Strings) -> Ids:
        strings = _replace(_valid(strings), r"\x00", "")
        replacements = [*marks.until_borders, *marks.from_borders] if marks else []
        for pattern, mark in replacements:
            strings = _replace(strings, pattern, mark.replace(r"\1", "$1"))
        strings = _replace(strings, *sigma) if sigma else strings
        strings = _map(strings, characters)
        # No word in a text can equal the unknown token, because brackets are split off.
        strings = _replace(strings, f"[^ ]{{{tokenizer.max_word_length + 1},}}", unknown)
        words = steps.RegexSplitStep(" +").get_ov_subgraph(_as_rows(strings))
        return list(
            steps.WordPieceTokenizationStep(
                vocabulary, unk_token=unknown, max_bytes_per_word=2**30
            ).get_ov_subgraph(words[:5])
        )

    return find


def _word_characters(rules: Normalization) -> dict[str, str]:
    """Returns characters with their replacements, including spaces to split words."""
    letters = _letters()
    replacements = [
        text.decode("utf-8") for text in normalize(tf.constant(letters), rules)[0].numpy()
    ]
    characters = sorted(set("".join(replacements)))
    # The pieces of the string "a", the character, "a" show whether the character is a letter, a
    # space, a word of its own or removed.
    find = PieceFinder(["[UNK]", "a", "##a"], 0, max_word_length=200)
    pieces = find(
        tf.constant([f"a{character}a" for character in characters]), tf.constant(False)
    ).ids
    spellings = {}
    for character, ids in zip(characters, pieces.to_list(), strict=True):
        spellings[character] = {
            (0,): character,
            (1, 1): " ",
            (1, 0, 1): f" {character} ",
            (1, 2): "",
        }.get(tuple(ids), character)
    return {
        letter: "".join(spellings[character] for character in text)
        for letter, text in zip(letters, replacements, strict=True)
    }


@functools.cache
def _letters() -> tuple[str, ...]:
    """Returns Unicode's characters, except NUL, surrogates, and private or unassigned planes."""
    points = (*range(1, 0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200))
    return tuple(map(chr, points))


def _final_sigma(lower: Callable[[tf.Tensor], tf.Tensor]) -> tuple[str, str]:
    """Returns a pattern for capital sigmas at the end of words, and the replacement.

    A capital sigma becomes a final sigma if a letter precedes it and no letter follows.
    """
    letters = [letter for letter in _letters() if unicodedata.category(letter) not in _NO_CASE]

    def is_final(texts: list[str]) -> np.ndarray:
        lowered = lower(tf.constant(texts)).numpy()
        return np.asarray(["ς" in text.decode("utf-8").lstrip("ς") for text in lowered])

    is_cased = is_final([f"{letter}Σ " for letter in letters])
    is_skipped = is_final([f"A{letter}Σ " for letter in letters]) & ~is_cased
    cased_class = _character_class(np.asarray(letters)[is_cased])
    skipped_class = _character_class(np.asarray(letters)[is_skipped])
    return (
        f"(?<=[{cased_class}][{skipped_class}]{{0,30}})Σ(?![{skipped_class}]*[{cased_class}])",
        "ς",
    )


# Categories without case (other letters, digits, separators, controls, unassigned)
_NO_CASE = ("Lo", "Nd", "Zs", "Zl", "Zp", "Co", "Cn", "Cc")


# === Byte pairs ===


def _byte_pair(tokenizer: BytePairTokenizer) -> Callable[[Strings], Ids]:
    _check_options(tokenizer)
    if tokenizer.byte_fallback:
        raise _no_steps(tokenizer, "it merges characters across words (byte_fallback=True)")
    pattern = word_expression(tokenizer.word_pattern)
    added_tokens = {
        tokenizer.token_to_id(token): token.encode() for token in tokenizer.added_tokens
    }
    never = {*tokenizer.special_token_ids, *tokenizer.unmerged_token_ids, *added_tokens}
    if tokenizer.ignore_merges and tokenizer.unmerged_token_ids:
        # OpenVINO would also find them inside words.
        raise _no_steps(tokenizer, "it has words that no merge produces (ignore_merges=True)")
    vocabulary = [
        b"" if index in never else token_bytes(token) or b""
        for index, token in enumerate(tokenizer.vocabulary)
    ]
    pieces = set(vocabulary)
    for index, token in added_tokens.items():
        if token in pieces:
            raise _no_steps(tokenizer, f"it has a word equal to the added token {token.decode()!r}")
        # No merge produces this token, so OpenVINO finds it before it merges bytes.
        vocabulary[index] = token
    merges = [tuple(map(token_bytes, merge.split(" "))) for merge in tokenizer.merges]
    pipeline = steps.TokenizerPipeline()

    def find(strings: Strings) -> Ids:
        strings = _valid(strings)
        if tokenizer.add_prefix_space:
            strings = _replace(strings, r"\A([^ ])", " $1", everywhere=False)
        rows = _as_rows(strings)
        if tokenizer.added_tokens:
            rows = _split_at_tokens(rows, tokenizer.added_tokens)
        words = steps.RegexSplitStep(pattern, behaviour="isolate").get_ov_subgraph(rows)
        merge = steps.BPETokenizationStep(vocabulary, merges)
        merge.set_pipeline(pipeline)
        return list(merge.get_ov_subgraph(words[:5]))

    return find


def _split_at_tokens(rows: Sequence[Any], tokens: Sequence[str]) -> list[Any]:
    """Splits strings at tokens. The tokens themselves are not split further."""
    inputs = [*rows, *create_string_constant_node(f"({longest_of(tokens)})")]
    return list(openvino_tokenizers._get_factory().create("SpecialTokensSplit", inputs).outputs())


# === SentencePiece ===


def _sentence_piece(tokenizer: SentencePieceTokenizer) -> Callable[[Strings], Ids]:
    _check_options(tokenizer)
    if tokenizer.added_tokens:
        raise _no_steps(tokenizer, "it finds added tokens in texts")
    cleaner = SentenceCleaner(tokenizer.cleaner)
    letters = _letters()
    maps, sigma = [], None
    if not tokenizer.keep_accents:
        maps.append(_changes(letters, cleaner.decompose))
    if tokenizer.lowercase:
        maps.append(_changes(letters, lower))
        sigma = _final_sigma(lower)
    character_maps = [_characters_map(changes) for changes in maps]
    model = np.frombuffer(tokenizer.model, np.uint8)

    def find(strings: Strings) -> Ids:
        strings = _replace(_valid(strings), r"\x00", "\ue000")
        for pattern, replacement in cleaner.replacements:
            strings = _replace(strings, pattern, replacement)
        for index, characters in enumerate(character_maps):
            if sigma and index == len(character_maps) - 1:
                strings = _replace(strings, *sigma)
            strings = _map(strings, characters)
        options = {"add_bos": False, "add_eos": False, "reverse": False, "alpha": 1.0}
        positions, ids, shape = (
            openvino_tokenizers._get_factory()
            .create(
                "SentencepieceTokenizer",
                [ops.constant(model).output(0), ops.string_tensor_pack(*strings).output(0)],
                {**options, "nbest_size": 1},
            )
            .outputs()
        )
        rows = ops.convert(ops.gather(positions, _integer(0), _integer(1)), "i32")
        num_rows = ops.convert(ops.gather(shape, _integer(0), _integer(0)), "i32")
        numbers = ops.range(_integer(0), num_rows, _integer(1), openvino.Type.i32)
        begins, ends = (
            ops.convert(ops.search_sorted(rows, numbers, right_mode=right), "i32").output(0)
            for right in (False, True)
        )
        ragged_ids = [begins, ends, ids]
        return _expand(ragged_ids, tokenizer.ids_of_parts) if tokenizer.parts else ragged_ids

    return find


def _expand(texts: Ids, parts: Sequence[Sequence[int]]) -> Ids:
    """Replaces each id with `parts[id]`."""
    begins, ends, ids = texts
    widths = np.asarray([len(row) for row in parts], np.int32)
    table = np.full((len(parts), max(widths.max(), 1)), -1, np.int32)
    for index, row in enumerate(parts):
        table[index, : len(row)] = list(row)
    flat = ops.reshape(ops.gather(ops.constant(table), ids, _integer(0)), _integers([-1]), False)
    indices = ops.reshape(
        ops.non_zero(ops.greater_equal(flat, _integer(0))), _integers([-1]), False
    )
    before = ops.cum_sum(ops.gather(ops.constant(widths), ids, _integer(0)), _integer(0))
    before = ops.concat([_integers([0]), before], 0)
    begins, ends = (ops.gather(before, bounds, _integer(0)).output(0) for bounds in (begins, ends))
    return [begins, ends, ops.gather(flat, indices, _integer(0)).output(0)]


def _changes(letters: Sequence[str], function: Callable[[tf.Tensor], tf.Tensor]) -> dict[str, str]:
    """Applies a string function to each character."""
    results = function(tf.constant(letters)).numpy()
    return {letter: new.decode("utf-8") for letter, new in zip(letters, results, strict=True)}


# === Parts ===

_STEPS: dict[str, Callable[[Any], Callable[[Strings], Ids]]] = {
    WordPieceTokenizer.kind: _wordpiece,
    BytePairTokenizer.kind: _byte_pair,
    SentencePieceTokenizer.kind: _sentence_piece,
}


def _check_options(tokenizer: Any) -> None:
    """Checks that the tokenizer neither finds special tokens in texts nor composes characters."""
    if tokenizer.special_tokens_in_text:
        raise _no_steps(tokenizer, "it finds special tokens in texts (special_tokens_in_text=True)")
    if tokenizer.compose:
        # OpenVINO only composes neighboring characters, and does not sort combining marks.
        raise _no_steps(tokenizer, "it composes characters (NFC)")


def _no_steps(tokenizer: Any, problem: str) -> ExportError:
    return ExportError(
        f"text=True is not supported for this {type(tokenizer).__name__}, because {problem}. Pass "
        "format='tf_saved_model' for a model that accepts text."
    )


def _integer(value: int) -> Any:
    return ops.constant(value, openvino.Type.i32)


def _integers(values: Sequence[int] | np.ndarray) -> Any:
    return ops.constant(np.asarray(values, np.int32))


def _as_rows(strings: Strings) -> list[Any]:
    """Converts each string to a text with one string."""
    return list(steps.TokenizerPipeline.add_ragged_dimension(strings))


def _valid(strings: Strings) -> Strings:
    """Drops invalid UTF-8 bytes."""
    # OpenVINO's `UTF8Validate` accepts surrogates and overlong forms. A character map replaces
    # invalid bytes with U+FFFD, so a U+FFFD in the text is first replaced by a different character.
    aside = "\U0010fffe"
    strings = _map(strings, _characters_map({"\ufffd": aside}))
    strings = _replace(strings, r"\x{fffd}", "")
    return _replace(strings, aside, "\ufffd")


def _replace(
    strings: Strings, pattern: str, replacement: str, *, everywhere: bool = True
) -> Strings:
    """Replaces all matches of a regular expression."""
    step = steps.RegexNormalizationStep(pattern, replacement, everywhere)
    return list(step.get_ov_subgraph(list(strings)))


def _map(strings: Strings, characters: bytes) -> Strings:
    """Replaces characters by a map from `_characters_map`."""
    step = steps.CharsmapStep(characters, remove_extra_whitespaces=False)
    return list(step.get_ov_subgraph(list(strings)))


def _characters_map(characters: dict[str, str]) -> bytes:
    """Returns a map from characters to strings in SentencePiece's format."""
    import sentencepiece

    changes = [(old, new) for old, new in characters.items() if old != new]
    normalizer = sentencepiece.SentencePieceNormalizer(norm_map=changes)
    return read_characters_map(normalizer.serialized_model_proto())


def _character_class(letters: Sequence[str]) -> str:
    """Returns characters as the ranges in a regular expression's brackets."""

    ranges: list[list[int]] = []
    for point in map(ord, letters):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)
