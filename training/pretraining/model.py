# SPDX-License-Identifier: Apache-2.0
"""Builds and compiles a model for pre-training, and counts its FLOPs."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import keras

from keras_bert import (
    Backbone,
    BertConfig,
    Distiller,
    MaskedLM,
    Pretrainer,
    ReplacedTokenDetector,
    checkpoints,
)
from keras_bert.ops.dispatch import has_accelerator
from keras_bert.tasks.student_initialization import copy_layers, spread_layers
from keras_bert.text.tokenizer import Tokenizer

from ..costs import model_flops
from .config import EncoderOptions, PretrainConfig

PretrainingModel: TypeAlias = Pretrainer | ReplacedTokenDetector | Distiller


def check_init_preset(encoder: EncoderOptions, longest: int) -> None:
    """Checks that the checkpoint of `--init_preset` has the requested architecture.

    Raises:
        ValueError: If an option differs. The message includes the flag.
    """
    if not encoder.init_preset:
        return
    source = checkpoints.open_checkpoint(encoder.init_preset, weights=False).config
    for name in ("num_layers", "hidden_dim", "num_heads", "causal"):
        value, its = getattr(encoder, name), getattr(source, name)
        if value is not None and value != its:
            raise ValueError(
                f"--{name} must be {its}, as in the model of --init_preset={encoder.init_preset}. "
                f"Received: {value}"
            )
    if longest > source.max_sequence_length:
        raise ValueError(
            f"the lengths in --phases must be at most {source.max_sequence_length}, the number of "
            f"positions in the model of --init_preset={encoder.init_preset}. Received: {longest}"
        )


def build_model(config: PretrainConfig, tokenizer: Tokenizer) -> PretrainingModel:
    """Returns the compiled model, with random weights or a checkpoint's weights."""
    encoder, task, compute = config.encoder, config.task, config.compute
    common: dict[str, Any] = {"packed": config.text.packing, "dtype": compute.precision}

    def make(task_class: Any, **options: Any) -> Any:
        built = {**common, "rematerialize": compute.rematerialize}
        if encoder.init_preset:
            built["encoder_dropout"] = encoder.dropout
            return task_class.from_preset(encoder.init_preset, **built, **options)
        architecture = encoder.architecture(tokenizer, config.optimization.longest)
        length = architecture.max_sequence_length
        preprocessor = {"tokenizer": tokenizer.get_config(), "sequence_length": length}
        return task_class(Backbone(architecture, **built), preprocessor, **options)

    model: PretrainingModel
    if task.objective == "masked_lm":
        rows = config.text.rows
        model = make(
            Pretrainer, next_sentence=rows.next_sentence, sequence_format=rows.sequence_format
        )
    elif task.objective == "replaced_token":
        model = make(
            ReplacedTokenDetector,
            discriminator_weight=task.discriminator_weight,
            generator_size=task.generator_size,
            embedding_sharing=task.embedding_sharing,
        )
    else:
        teacher = MaskedLM.from_preset(task.teacher, **common)
        student = make(MaskedLM)
        is_as_wide = student.config.hidden_dim == teacher.config.hidden_dim
        if is_as_wide and not encoder.init_preset:
            layers = spread_layers(teacher.config.num_layers, student.config.num_layers)
            copy_layers(teacher, student, layers)
        model = Distiller(student, teacher, temperature=task.temperature)
    model.compile(
        config.optimization.make_optimizer(compute.shard_optimizer),
        jit_compile=_jit(compute.jit),
        steps_per_execution=_steps_per_execution(compute.steps_per_execution),
    )
    model.optimizer.build(model.trainable_variables)
    return model


def update_flops(model: PretrainingModel, rows: int, sequence_length: int, slots: int) -> int:
    """Returns the matmul FLOPs per training step, for any objective."""

    def flops(
        config: BertConfig, slots: int, next_sentence: bool = False, reads_all: bool = False
    ) -> int:
        return model_flops.training_flops(
            config, rows, sequence_length, slots, next_sentence, reads_all=reads_all
        )

    if isinstance(model, ReplacedTokenDetector):
        # The discriminator has no masked LM head, but a dense layer and one logit per token.
        hidden = model.config.hidden_dim
        head: int = 3 * rows * sequence_length * 2 * hidden * (hidden + 1)
        return flops(model.generator.config, slots) + flops(model.config, 0, reads_all=True) + head
    if isinstance(model, Distiller):
        # The teacher has no backward pass. It would take two thirds of the FLOPs.
        everywhere = bool(model.cosine_weight) or model.divergence_tokens == "all"
        student = flops(model.config, slots, reads_all=everywhere)
        return student + flops(model.teacher_task.config, slots, reads_all=everywhere) // 3
    return flops(model.config, slots, model.next_sentence)


def _steps_per_execution(steps: int) -> int:
    # Keras only supports 1 on PyTorch.
    return 1 if keras.backend.backend() == "torch" else steps


def set_steps_per_execution(model: PretrainingModel, max_batches: int, batches: int) -> None:
    """Sets `steps_per_execution` to a divisor of an interval's number of batches.

    Keras runs the same number of batches in every call, even if fewer are left in the epoch. So a
    short interval could train for too many steps.
    """
    fitting = math.gcd(_steps_per_execution(max_batches), batches)
    if model.steps_per_execution != fitting:
        model.steps_per_execution = fitting
        model.make_train_function(force=True)
        model.make_test_function(force=True)


def _jit(choice: str) -> bool | str:
    if choice != "auto":
        return choice == "on"
    backend = keras.backend.backend()
    return backend == "jax" or (backend == "tensorflow" and has_accelerator())
