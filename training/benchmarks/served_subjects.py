# SPDX-License-Identifier: Apache-2.0
"""Sends text requests to SavedModels of keras_bert and KerasHub that TensorFlow runs locally.

This measures the work of TensorFlow Serving without the network. The models have random weights,
and return the probabilities of two classes for strings. Each client waits for a response before it
sends the next request. With `batching`, requests are batched by TensorFlow Serving's scheduler,
because it is part of TensorFlow. The same export can also run in the batcher of `training.serve`,
without the network.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of the SavedModels)

from .peers import keras_hub_backbone, keras_hub_class
from .subject import Round
from .workload import Workload, batching_options

NUM_CLASSES = 2
_CALIBRATION_TEXTS = 200
# Number of warmup requests. TensorFlow's first call with each length is slow.
WARM_UP_REQUESTS = 32


def keras_bert_requests(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that sends a number of requests to keras_bert's export."""
    with tempfile.TemporaryDirectory() as directory:
        model = tf.saved_model.load(_export(workload, directory))
    serve = model.signatures["serving_default"]
    return _tensor_requests(workload, lambda texts: serve(text=texts)["probabilities"], model)


def serve_requests(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that sends a number of requests to `training.serve`'s batcher."""
    from keras_bert.export import ServedModel

    from ..serving.batching import Batcher
    from ..serving.signatures import DEFAULT_BATCH_SIZE, DEFAULT_SIGNATURE, saved_model_signatures

    with tempfile.TemporaryDirectory() as directory:
        signatures = saved_model_signatures(ServedModel(_export(workload, directory)))
    batcher = Batcher(
        lambda name, rows: signatures[name].answer(rows),
        threads=os.cpu_count() or 1,
        batch_size=DEFAULT_BATCH_SIZE,
        max_waiting=workload.clients * workload.batch_size,
    )

    def answer(texts: list[str]) -> None:
        batcher.submit(DEFAULT_SIGNATURE, [{"text": text} for text in texts]).result()

    return _requests(workload, answer)


def _export(workload: Workload, directory: str) -> str:
    """Exports a classifier with the workload's architecture, and returns the version directory."""
    from keras_bert.data import TextClassifierPreprocessor
    from keras_bert.models import Backbone
    from keras_bert.tasks import TextClassifier
    from keras_bert.text import WordPieceTokenizer

    tokenizer = WordPieceTokenizer(workload.words())
    task = TextClassifier(
        Backbone(workload.architecture),
        num_classes=NUM_CLASSES,
        preprocessor=TextClassifierPreprocessor(tokenizer, workload.sequence_length),
    )
    texts = list(itertools.chain(*workload.requests()))[:_CALIBRATION_TEXTS]
    calibration = texts if workload.precision == "int8" else None
    task.export(f"{directory}/1", dtype=workload.precision, calibration=calibration)
    return f"{directory}/1"


def keras_hub_requests(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that sends a number of requests to KerasHub's export."""
    import keras_hub

    config = workload.architecture
    with tempfile.TemporaryDirectory() as directory:
        # In graphs, the vocabulary must be a file.
        words = Path(directory, "vocab.txt")
        words.write_text("\n".join(workload.words()) + "\n", "utf-8")
        tokenizer = keras_hub.models.BertTokenizer(str(words), lowercase=True)
        preprocessor = keras_hub_class(config, "TextClassifierPreprocessor")(
            tokenizer, sequence_length=workload.sequence_length
        )
        task = keras_hub_class(config, "TextClassifier")(
            keras_hub_backbone(config), num_classes=NUM_CLASSES, preprocessor=preprocessor
        )

        def probabilities(texts: tf.Tensor) -> tf.Tensor:
            # Call the functional model, because `task` converts text only in `predict`.
            return tf.nn.softmax(
                tf.cast(keras.Model.__call__(task, preprocessor(texts)), "float32")
            )

        archive = keras.export.ExportArchive()
        archive.track(task)
        archive.add_endpoint(
            "serve", probabilities, input_signature=[tf.TensorSpec([None], tf.string)]
        )
        archive.write_out(f"{directory}/1", verbose=False)
        model = tf.saved_model.load(f"{directory}/1")
    return _tensor_requests(workload, model.serve, model)


def _tensor_requests(
    workload: Workload, answer: Callable[[tf.Tensor], tf.Tensor], model: Any
) -> Callable[[int], Round]:
    """Returns `_requests` for a function of TensorFlow tensors, with or without `batching`."""
    if workload.batching:
        answer = batched(answer, batching_options(workload.batching))

    # The default argument keeps the model alive. Its signature does not.
    def numbers(texts: list[str], model: Any = model) -> Any:
        return answer(tf.constant(texts)).numpy()

    return _requests(workload, numbers)


def _requests(workload: Workload, answer: Callable[[list[str]], Any]) -> Callable[[int], Round]:
    """Returns a function that sends a number of requests."""
    requests = workload.requests()
    by_length = sorted(requests, key=lambda texts: max(map(len, texts)))
    for texts in by_length[:: max(1, len(by_length) // WARM_UP_REQUESTS)]:
        answer(texts)
    following = itertools.cycle(requests)
    clients = ThreadPoolExecutor(workload.clients)

    def milliseconds(texts: list[str]) -> float:
        start = time.perf_counter()
        answer(texts)
        return 1000 * (time.perf_counter() - start)

    def run(steps: int) -> Round:
        sent = list(itertools.islice(following, steps))
        start = time.perf_counter()
        latencies = tuple(clients.map(milliseconds, sent))
        seconds = time.perf_counter() - start
        return Round(seconds, steps, milliseconds=latencies, requests=steps)

    return run


def batched(answer: Callable[[tf.Tensor], Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Returns a function that batches concurrent calls with texts, as in TensorFlow Serving.

    `answer` returns a tensor or a list of tensors. Their first axis is the batch.
    """
    return tf.function(
        tf.nondifferentiable_batch_function(**options)(answer),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
