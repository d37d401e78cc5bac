# SPDX-License-Identifier: Apache-2.0
"""The workload with keras_bert and with KerasHub, on the current Keras backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from .peers import keras_hub_backbone, keras_hub_class, sequence_output
from .subject import Round
from .workload import Workload

LEARNING_RATE = 2e-5
WEIGHT_DECAY = 0.01


def keras_bert_work(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that runs a number of steps with keras_bert."""
    from keras_bert import models, optimizers
    from keras_bert.tasks import MaskedLM, TextClassifier

    _set_up(workload)
    if workload.what == "serve":
        from .served_subjects import keras_bert_requests

        return keras_bert_requests(workload)
    backbone = models.Backbone(workload.architecture)
    inputs = {
        "token_ids": workload.token_ids(),
        "segment_ids": np.zeros_like(workload.token_ids()),
        "padding_mask": workload.padding_mask() if workload.padding > 0 else None,
    }
    tasks = {
        "classify": lambda: TextClassifier(backbone, num_classes=2),
        "pretrain": lambda: MaskedLM(backbone),
    }
    return _steps(workload, backbone, inputs, tasks, optimizers.AdamW)


def serve_work(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that sends a number of requests to the batches of `training.serve`."""
    from .served_subjects import serve_requests

    _set_up(workload)
    return serve_requests(workload)


def keras_hub_work(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that runs a number of steps with KerasHub."""
    _set_up(workload)
    if workload.what == "serve":
        from .served_subjects import keras_hub_requests

        return keras_hub_requests(workload)
    config = workload.architecture
    backbone = keras_hub_backbone(config)
    inputs = {"token_ids": workload.token_ids(), "padding_mask": workload.padding_mask()}
    if "segment_ids" in backbone.input:
        inputs["segment_ids"] = np.zeros_like(workload.token_ids())
    arguments = {"backbone": backbone, "preprocessor": None}
    tasks = {
        "classify": lambda: keras_hub_class(config, "TextClassifier")(num_classes=2, **arguments),
        "pretrain": lambda: keras_hub_class(config, "MaskedLM")(**arguments),
    }
    return _steps(workload, backbone, inputs, tasks, keras.optimizers.AdamW)


def _steps(
    workload: Workload,
    backbone: keras.Model,
    inputs: dict[str, Any],
    tasks: dict[str, Callable[[], keras.Model]],
    optimizer_class: type[keras.optimizers.Optimizer],
) -> Callable[[int], Round]:
    if workload.what == "forward":
        return _forward(backbone, inputs)
    if workload.what == "pretrain":
        inputs["mask_positions"] = workload.mask_positions()
    optimizer = optimizer_class(
        LEARNING_RATE, weight_decay=WEIGHT_DECAY, global_clipnorm=workload.clip_norm or None
    )
    return _fit(tasks[workload.what](), optimizer, inputs, workload)


def _set_up(workload: Workload) -> None:
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(workload.precision)
    if _has_gpu():
        keras.config.enable_flash_attention()


def _has_gpu() -> bool:
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    return any("gpu" in device or "cuda" in device for device in keras.distribution.list_devices())


def _forward(backbone: keras.Model, inputs: dict[str, Any]) -> Callable[[int], Round]:
    # The mean makes the copy to NumPy small, while every token's output is still computed.
    mean = keras.layers.GlobalAveragePooling1D(dtype="float32")
    model = keras.Model(backbone.input, mean(sequence_output(backbone)))

    def run(steps: int) -> Round:
        start = time.perf_counter()
        for _ in range(steps):
            model.predict_on_batch(inputs)
        return Round(time.perf_counter() - start, steps)

    return run


class _Stopwatch(keras.callbacks.Callback):
    """Measures an epoch, without the creation and destruction of the data set.

    TensorFlow can take seconds to destroy a data set while its autotuning starts, which would be
    noise here.
    """

    seconds = 0.0
    _start = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # The loss has been computed at this point, so that no asynchronous work is pending.
        self.seconds = time.perf_counter() - self._start


def _fit(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    inputs: dict[str, Any],
    workload: Workload,
) -> Callable[[int], Round]:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean")
    model.compile(optimizer, loss, metrics=[])
    labels = workload.labels()

    def run(steps: int) -> Round:
        def repeated(array: Any) -> Any:
            return None if array is None else np.concatenate([array] * steps)

        features = {name: repeated(array) for name, array in inputs.items()}
        stopwatch = _Stopwatch()
        model.fit(
            features,
            repeated(labels),
            batch_size=workload.batch_size,
            shuffle=False,
            verbose=0,
            callbacks=[stopwatch],
        )
        return Round(stopwatch.seconds, steps)

    return run
