# SPDX-License-Identifier: Apache-2.0
"""Runs workloads with keras_bert and KerasHub on the current Keras backend."""

from __future__ import annotations

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
    backbone = models.Backbone(workload.architecture, unpadded="unpadded" in workload.options)
    tasks = {
        "classify": lambda: TextClassifier(backbone, num_classes=2),
        "pretrain": lambda: MaskedLM(backbone),
    }
    batches: list[dict[str, Any]]
    if workload.texts:
        batches = workload.text_batches()
    else:
        mask = workload.padding_mask() if workload.padding > 0 else None
        batches = [{"token_ids": workload.token_ids(), "padding_mask": mask}]
    return _steps(workload, backbone, batches, tasks, optimizers.AdamW)


def serve_work(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that sends a number of requests to `training.serve`'s batcher."""
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
    arguments = {"backbone": backbone, "preprocessor": None}
    tasks = {
        "classify": lambda: keras_hub_class(config, "TextClassifier")(num_classes=2, **arguments),
        "pretrain": lambda: keras_hub_class(config, "MaskedLM")(**arguments),
    }
    if workload.texts:
        # KerasHub's preprocessor pads every text to `sequence_length`.
        batches = workload.text_batches(workload.sequence_length)
    else:
        batches = [{"token_ids": workload.token_ids(), "padding_mask": workload.padding_mask()}]
    return _steps(workload, backbone, batches, tasks, keras.optimizers.AdamW)


def _steps(
    workload: Workload,
    backbone: keras.Model,
    batches: list[dict[str, Any]],
    tasks: dict[str, Callable[[], keras.Model]],
    optimizer_class: type[keras.optimizers.Optimizer],
) -> Callable[[int], Round]:
    if "segment_ids" in backbone.input:
        batches = [{**each, "segment_ids": np.zeros_like(each["token_ids"])} for each in batches]
    if workload.what == "forward":
        return _forward(backbone, batches, workload)
    optimizer = optimizer_class(
        LEARNING_RATE, weight_decay=WEIGHT_DECAY, global_clipnorm=workload.clip_norm or None
    )
    model = tasks[workload.what]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean")
    jit_compile = True if "compiled" in workload.options else "auto"
    model.compile(optimizer, loss, metrics=[], jit_compile=jit_compile)
    if workload.texts:
        return _train_on_batches(model, batches, workload)
    (inputs,) = batches
    if workload.what == "pretrain":
        inputs["mask_positions"] = workload.mask_positions()
    return _fit(model, inputs, workload)


def _set_up(workload: Workload) -> None:
    keras.utils.set_random_seed(0)
    # An int8 export starts from a float32 model.
    keras.config.set_dtype_policy(workload.precision.replace("int8", "float32"))
    if _has_gpu():
        keras.config.enable_flash_attention()


def _has_gpu() -> bool:
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    return any("gpu" in device or "cuda" in device for device in keras.distribution.list_devices())


def _forward(
    backbone: keras.Model, batches: list[dict[str, Any]], workload: Workload
) -> Callable[[int], Round]:
    # The mean makes the copy to NumPy small, but every token's output is still computed.
    mean = keras.layers.GlobalAveragePooling1D(dtype="float32")
    model = keras.Model(backbone.input, mean(sequence_output(backbone)))
    inputs = [{name: batch[name] for name in backbone.input} for batch in batches]
    return workload.timed(lambda step: model.predict_on_batch(inputs[step % len(inputs)]))


class _Stopwatch(keras.callbacks.Callback):
    """Times an epoch without creating or destroying the dataset.

    TensorFlow can take seconds to destroy a dataset while its autotuning starts. Here, that would
    be noise.
    """

    seconds = 0.0
    _start = 0.0

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self._start = self._now()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # The loss has been computed at this point, so no asynchronous work is pending.
        self.seconds = self._now() - self._start


def _train_on_batches(
    model: keras.Model, batches: list[dict[str, Any]], workload: Workload
) -> Callable[[int], Round]:
    names = tuple(model.input)
    pairs = [({name: batch[name] for name in names}, batch["labels"]) for batch in batches]
    return workload.timed(lambda step: model.train_on_batch(*pairs[step % len(pairs)]))


def _fit(model: keras.Model, inputs: dict[str, Any], workload: Workload) -> Callable[[int], Round]:
    labels = workload.labels()

    def run(steps: int) -> Round:
        def repeated(array: Any) -> Any:
            return None if array is None else np.concatenate([array] * steps)

        features = {name: repeated(array) for name, array in inputs.items()}
        stopwatch = _Stopwatch(workload.now)
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
