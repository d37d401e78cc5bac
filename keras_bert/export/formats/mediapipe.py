# SPDX-License-Identifier: Apache-2.0
"""Models for MediaPipe's TextClassifier and TextEmbedder, on phones, in browsers and in Python.

They are LiteRT models with one text per call. MediaPipe reads the tokenizer's vocabulary and the
labels from the model's TFLite metadata, and tokenizes the text itself:

- It lowercases ASCII letters, splits at ASCII whitespace, and makes each punctuation mark and
  ideograph a word. It does not lowercase other letters, strip accents or drop control characters.
- Words of more than 100 bytes become the unknown token.
- The names of the special tokens are fixed, and so are all options of the tokenizer.

Printable ASCII text therefore has the same token ids as with an uncased `WordPieceTokenizer`, apart
from words of 101 to `max_word_length` characters. docs/serving/mediapipe.md shows how to prepare
other text.

Reference:
    `bert_preprocessor_calculator.cc` and `bert_tokenizer.h` in MediaPipe 1.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_bert.export.description import PACKED_FILE, ExportDescription
from keras_bert.export.formats.litert import append_files, convert, is_litert_export
from keras_bert.export.options import ExportError, ExportFormat, ExportOptions, Servable
from keras_bert.text import WordPieceTokenizer
from keras_bert.text.special_tokens import CLASSIFY, SEPARATE, UNKNOWN

_VOCABULARY_FILE, _LABELS_FILE = "vocab.txt", "labels.txt"
_INPUT_NAMES = {"token_ids": "ids", "segment_ids": "segment_ids", "padding_mask": "mask"}


def _check(task: Any, options: ExportOptions) -> None:
    is_sparse = task.embedding_kind == "sparse"
    if not task.is_sequence_level or "text_pair" in task.fields or is_sparse:
        raise ExportError(
            "format='mediapipe' is only supported for classifiers, regressions and dense "
            f"embedders of a single text. Received: a {type(task).__name__}. Pass format='litert' "
            "for a model that accepts token ids."
        )
    if task.preprocessor.splits_texts:
        raise ExportError(
            "format='mediapipe' requires long_texts='truncate', because MediaPipe truncates long "
            f"texts. Received: {task.preprocessor.long_texts!r}. Pass format='tf_saved_model' for "
            "a model that reads whole texts."
        )
    tokenizer = task.preprocessor.tokenizer
    reason = _difference(tokenizer)
    if reason:
        raise ExportError(
            "format='mediapipe' requires an uncased WordPiece tokenizer with BERT's rules, because "
            f"MediaPipe tokenizes texts itself. Received: a {type(tokenizer).__name__} {reason}. "
            "Pass format='litert' for a model that accepts token ids."
        )
    for name in options.class_names or ():
        if len(name.splitlines()) != 1:
            raise ExportError(
                "format='mediapipe' requires class names of one line, because MediaPipe reads one "
                f"label per line. Received: {name!r}"
            )


def _difference(tokenizer: Any) -> str:
    """Returns a tokenizer's first difference from MediaPipe's tokenizer, or an empty string."""
    if not isinstance(tokenizer, WordPieceTokenizer):
        return f"(kind={tokenizer.kind!r})"
    if not tokenizer.lowercase:
        return "with lowercase=False, but MediaPipe lowercases all texts"
    if not tokenizer.tokenize_chinese_chars:
        return "with tokenize_chinese_chars=False, but MediaPipe splits ideographs"
    if tokenizer.token_marks:
        tokens = ", ".join(tokenizer.token_marks.marks)
        return f"that finds {tokens} in texts, but MediaPipe splits brackets"
    if tokenizer.truncation_side != "right":
        return "with truncation_side='left', but MediaPipe truncates on the right"
    return ""


def _write(task: Servable, path: Path, options: ExportOptions) -> None:
    import tensorflow as tf

    from keras_bert.export.network import network_function
    from keras_bert.export.tflite_metadata import add_metadata

    network, specs = network_function(task, length=options.sequence_length)
    name = "probability"  # As in MediaPipe's own classifiers
    if options.class_names is None:
        name = "embedding" if task.output_name == "embedding" else "score"
    thresholds = getattr(task, "thresholds", None)
    compute_probabilities = tf.nn.softmax if thresholds is None else tf.sigmoid

    def answer(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        (output,) = network(*inputs).values()
        return {name: output if options.class_names is None else compute_probabilities(output)}

    function = tf.function(answer, input_signature=specs, autograph=False)
    files = {
        PACKED_FILE: ExportDescription.from_task(task, options).to_json(),
        _VOCABULARY_FILE: "\n".join(_vocabulary(task.preprocessor.tokenizer)),
    }
    if options.class_names is not None:
        files[_LABELS_FILE] = "\n".join(options.class_names)
    model = add_metadata(
        convert(function, path.parent, options),
        path.stem,
        _INPUT_NAMES,
        name,
        vocabulary_file=_VOCABULARY_FILE,
        labels_file=_LABELS_FILE if _LABELS_FILE in files else None,
    )
    path.write_bytes(model)
    append_files(path, files)


def _vocabulary(tokenizer: WordPieceTokenizer) -> list[str]:
    """Returns the tokens to match, with MediaPipe's names of the special tokens."""
    names = {
        tokenizer.unk_token_id: UNKNOWN,
        tokenizer.cls_token_id: CLASSIFY,
        tokenizer.sep_token_id: SEPARATE,
    }
    return [
        names.get(index) or (f"[unmatched {index}]" if token in names.values() else token)
        for index, token in enumerate(tokenizer.matched_vocabulary)
    ]


MEDIAPIPE = ExportFormat(
    write=_write,
    is_export=is_litert_export,
    suffixes=(".tflite",),
    dtypes=("float32", "int8"),
    has_fixed_length=True,
    check=_check,
)
