# SPDX-License-Identifier: Apache-2.0
"""Small served tasks of every kind, with requests to each of their signatures."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

import keras_bert
from keras_bert.export import ExportOptions
from tests.export.batching_session import Tensors
from tests.export.small_classifier import make_answerer, make_classifier
from tests.models.small_backbone import random_weights

OPTIONS = ExportOptions(
    name="1",
    format="tf_saved_model",
    class_names=None,
    dtype="float32",
    pair=False,
    max_batch_size=32,
    warm_up=False,
    sequence_length=64,
)
CLASS_NAMES = ("bad", "fair", "größer")
TEXTS = (["the cat sat", "", "a mat?"], ["unbelievable " * 9], ["a", "many words " * 30])
PAIRS = (["sat on", "a", ""], ["b"], ["the mat " * 4, "?"])
WORDS = (
    [["the", "cat", ""], ["a", "mat", "?"]],
    [["unbelievable", "words", "7", "b", "the"] * 6],
    [["a"], [""]],
)
CHOICES = (
    [["on the mat", "cat"], ["able", "on the mat"]],
    [["a", "b", "c", "the cat"]],
    [["mat"], ["中"]],
)


@dataclasses.dataclass(frozen=True)
class ServedTask:
    """A task and the signature functions of its export.

    Args:
        task: Task on the TensorFlow backend.
        options: Export options.
        functions: Exported functions by signature name.
        requests: For each signature, requests with multiple rows of unequal lengths.
        splits: Whether the server can split a large request.
        bare: Signatures with a single output. In REST, their predictions are bare values.
    """

    task: Any
    options: ExportOptions
    functions: dict[str, Any]
    requests: dict[str, list[Tensors]]
    splits: bool
    bare: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "count_tokens" in self.functions:
            self.requests["count_tokens"] = self.requests["serving_default"]

    @functools.cached_property
    def signatures(self) -> dict[str, Any]:
        """The functions with keyword arguments."""

        def accept_keywords(function: Any) -> Any:
            specs = function.input_signature
            return lambda **inputs: function(*(inputs[spec.name] for spec in specs))

        return {name: accept_keywords(function) for name, function in self.functions.items()}


def strings(rows: Any) -> np.ndarray:
    """Encodes equally long lists of strings for TensorFlow."""
    encoded = np.char.encode(np.array(rows), "utf-8")
    return encoded.astype(object)


def pad_and_count(name: str, rows: list[list[str]]) -> Tensors:
    """Pads rows of strings with empty strings, and counts the strings in each row."""
    width = max(map(len, rows))
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    counts = [sum(map(bool, row)) for row in rows]
    return {name: strings(padded), f"num_{name}": np.array(counts, "int32")}


def select_ids(features: Any, *names: str) -> Tensors:
    return {name: np.asarray(features[name]) for name in names}


@functools.cache
def make_served_task(kind: str) -> ServedTask:
    """Creates a served task of a kind. All tests share it, so it is traced only once."""
    return KINDS[kind]()


def _texts(*columns: str) -> list[Tensors]:
    return [
        {name: strings(texts) for name, texts in zip(columns, values, strict=False)}
        for values in zip(TEXTS, PAIRS, strict=True)
    ]


def _examples(requests: list[Tensors]) -> list[Tensors]:
    columns = [zip(*request.values(), strict=True) for request in requests]
    return [
        {
            "inputs": np.array(
                [_example(dict(zip(request, row, strict=True))) for row in rows], object
            )
        }
        for request, rows in zip(requests, columns, strict=True)
    ]


def _example(features: dict[str, bytes]) -> bytes:
    import tensorflow as tf

    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
                for name, value in features.items()
            }
        )
    ).SerializeToString()


def _classifier(pair: bool, num_classes: int) -> ServedTask:
    names = CLASS_NAMES if num_classes > 1 else None
    task = make_classifier(num_classes=num_classes)
    options = dataclasses.replace(OPTIONS, pair=pair, class_names=names)
    texts = _texts("text", "text_pair") if pair else _texts("text")
    features = [
        task.preprocessor(*([x.decode() for x in column] for column in r.values())) for r in texts
    ]
    id_names = ("token_ids", "segment_ids") if pair else ("token_ids",)
    requests = {
        "serving_default": texts,
        "serve_examples": _examples(texts),
        "serve_ids": [select_ids(f, *id_names) for f in features],
    }
    bare = () if names else ("serving_default", "serve_examples")
    functions = task.serving_signatures(options)
    return ServedTask(task, options, functions, requests, splits=True, bare=bare)


def _embedder() -> ServedTask:
    classifier = make_classifier(num_classes=2)
    task = keras_bert.TextEmbedder(
        classifier.backbone,
        preprocessor=classifier.preprocessor,
        prompts={"query": "the "},
        include_prompt=False,
    )
    return _served_embedder(task, splits=True, bare=("serving_default",))


def _sparse_embedder() -> ServedTask:
    classifier = make_classifier(num_classes=2)
    # The last two embeddings have no token.
    config = classifier.config.replace(vocabulary_size=classifier.config.vocabulary_size + 2)
    task = keras_bert.SparseEmbedder(
        keras_bert.Backbone(config), classifier.preprocessor, prompts={"query": "the "}
    )
    random_weights(task)
    return _served_embedder(task, splits=False)


def _late_interaction_embedder() -> ServedTask:
    model = Path(__file__).parents[1] / "tasks" / "pylate" / "model"
    task = keras_bert.LateInteractionEmbedder.from_preset(
        model, prompts={"query": "what "}, query_length=24
    )
    functions = task.serving_signatures(OPTIONS)
    return ServedTask(task, OPTIONS, functions, {"serving_default": _texts("text")}, splits=False)


def _served_embedder(task: Any, **options: Any) -> ServedTask:
    features = [task.preprocessor(texts) for texts in TEXTS]
    requests = {
        "serving_default": _texts("text"),
        "serve_ids": [select_ids(f, "token_ids") for f in features],
        "serve_with_prompt": [
            {**request, "prompt_name": strings(["query", ""] * 9)[: len(request["text"])]}
            for request in _texts("text")
        ],
    }
    return ServedTask(task, OPTIONS, task.serving_signatures(OPTIONS), requests, **options)


def _tagger() -> ServedTask:
    from keras_bert.data import TokenClassifierPreprocessor

    classifier = make_classifier(num_classes=3)
    tokenizer = classifier.preprocessor.tokenizer
    task = keras_bert.TokenClassifier(
        classifier.backbone,
        preprocessor=TokenClassifierPreprocessor(tokenizer, 20),
        class_names=list(CLASS_NAMES),
    )
    kernel = task.head.dense.kernel
    kernel.assign(np.random.default_rng(1).normal(0, 0.5, kernel.shape))
    words = [pad_and_count("words", rows) for rows in WORDS]
    requests = {
        "serving_default": _texts("text"),
        "serve_tags": _texts("text"),
        "serve_counted_words": words,
        # All rows have the same width, for a server that does not pad.
        "serve_words": [
            {"words": strings(rows)}
            for rows in ([["the", "cat", ""], ["a", "mat", "a"]], [["b", "b", "b"]])
        ],
        "serve_ids": [select_ids(classifier.preprocessor(texts), "token_ids") for texts in TEXTS],
    }
    options = dataclasses.replace(OPTIONS, class_names=CLASS_NAMES)
    functions = task.serving_signatures(options)
    return ServedTask(task, options, functions, requests, splits=False, bare=("serve_tags",))


def _answerer() -> ServedTask:
    task = make_answerer()
    preprocessor = task.preprocessor
    texts = [
        {"question": r["text_pair"], "context": r["text"]} for r in _texts("text", "text_pair")
    ]
    features = [
        preprocessor.pad(preprocessor(*([x.decode() for x in column] for column in r.values())))
        for r in texts
    ]
    requests = {
        "serving_default": texts,
        "serve_ids": [select_ids(f, "token_ids", "segment_ids") for f in features],
    }
    return ServedTask(task, OPTIONS, task.serving_signatures(OPTIONS), requests, splits=True)


def _chooser() -> ServedTask:
    from keras_bert.data import MultipleChoicePreprocessor

    classifier = make_classifier(num_classes=1)
    preprocessor = MultipleChoicePreprocessor(classifier.preprocessor.tokenizer, 24)
    task = keras_bert.MultipleChoice(classifier.backbone, preprocessor)
    task.head.dense.kernel.assign(classifier.head.dense.kernel)
    texts = [["the cat sat", "a"], ["unbelievable"], ["", "the " * 5]]
    rows = list(zip(texts, CHOICES, strict=True))
    choices = [pad_and_count("choices", choice_lists) for choice_lists in CHOICES]
    requests = {
        "serve_counted_choices": [
            {"text": strings(text), **fields} for text, fields in zip(texts, choices, strict=True)
        ],
        # All rows have the same width, for a server that does not pad.
        "serving_default": [
            {"text": strings(text), "choices": strings(choice_lists)}
            for text, choice_lists in (
                (["the cat sat", "a"], [["on the mat", "cat", ""], ["able", "", "mat"]]),
                (["unbelievable"], [["b", "cat", "on"]]),
                ([""], [["", "", ""]]),
            )
        ],
        "serve_ids": [select_ids(preprocessor(*row), "token_ids", "segment_ids") for row in rows],
    }
    return ServedTask(task, OPTIONS, task.serving_signatures(OPTIONS), requests, splits=False)


KINDS = {
    "pairs": lambda: _classifier(pair=True, num_classes=3),
    "regression": lambda: _classifier(pair=False, num_classes=1),
    "embedder": _embedder,
    "sparse": _sparse_embedder,
    "late": _late_interaction_embedder,
    "tagger": _tagger,
    "answerer": _answerer,
    "chooser": _chooser,
}
# One kind per form of input. The other kinds have the same texts as `pairs`.
KINDS_BY_INPUT_FORM = ("pairs", "tagger", "answerer", "chooser")
