# SPDX-License-Identifier: Apache-2.0
"""Number ranges of options, and the library's arguments that use them."""

import inspect

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras_bert.layers
from keras_bert import (
    Backbone,
    BertConfig,
    Distiller,
    ReplacedTokenDetector,
    TextClassifier,
    checks,
    losses,
    optimizers,
)
from keras_bert.checks import NumberRange
from keras_bert.data import InstanceGenerator, MaskedLMMaskGenerator, StaticMasker

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

NAN, INFINITE = float("nan"), float("inf")
CONFIG = BertConfig(vocabulary_size=12, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=8)
# Required arguments of the constructors, other than the invalid number
REQUIRED = {
    "activation": "gelu_erf",
    "attention": keras_bert.layers.Attention(2),
    "attention_norm": keras_bert.layers.Norm(),
    "cls_token_id": 0,
    "dim": 8,
    "feed_forward": keras_bert.layers.FeedForward(8),
    "feed_forward_norm": keras_bert.layers.Norm(),
    "head_dim": 4,
    "kind": "bucketed",
    "max_distance": 20,
    "num_buckets": 8,
    "hidden_dim": 8,
    "intermediate_dim": 8,
    "mask_token_id": 4,
    "max_predictions": 2,
    "max_sequence_length": 8,
    "num_classes": 2,
    "num_heads": 2,
    "num_segments": 2,
    "num_train_steps": 10,
    "peak_learning_rate": 0.1,
    "sep_token_id": 1,
    "unselectable_token_ids": (0,),
    "vocabulary_size": 12,
}


@pytest.mark.parametrize(
    ("number_range", "name", "allowed", "rejected"),
    [
        (checks.FINITE, "a finite number", (-1, 0.5, np.float32(2)), (NAN, INFINITE, True, "1")),
        (checks.POSITIVE, "a finite number above 0", (1e-9, 3), (0, NAN, INFINITE, 10**400)),
        (checks.NON_NEGATIVE, "a finite number of at least 0", (0, 1.5), (-1e-9, NAN, -INFINITE)),
        (checks.PROPER_FRACTION, "a number in [0, 1)", (0, 0.99), (1, -0.1, NAN, False)),
        (checks.POSITIVE_FRACTION, "a number in (0, 1]", (1, 0.01), (0, 1.01, NAN)),
        (checks.POSITIVE_INT, "an integer above 0", (1, np.int64(3), 10**400), (0, 1.0, True, NAN)),
        (checks.NON_NEGATIVE_INT, "an integer of at least 0", (0, 2**40), (-1, 0.0)),
        (NumberRange(at_most=3), "a finite number of at most 3", (3, -9.5), (3.5, -INFINITE)),
        (NumberRange(below=3, integer=True), "an integer below 3", (2, -9), (3, 2.5)),
    ],
)
def test_number_range_bounds_and_text(number_range, name, allowed, rejected):
    assert str(number_range) == name
    assert [value for value in allowed if not number_range.allows(value)] == []
    assert [value for value in rejected if number_range.allows(value)] == []


def float_arguments(owner):
    """Returns the float arguments of a class or function."""
    parameters = inspect.signature(owner).parameters.values()
    return [p.name for p in parameters if str(p.annotation).startswith("float")]


OWNERS = [
    owner
    for module in (keras_bert.layers, losses, optimizers)
    for owner in vars(module).values()
    if inspect.isclass(owner) and owner.__module__.startswith("keras_bert.")
]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (owner, name)
        for owner in [*OWNERS, InstanceGenerator, MaskedLMMaskGenerator, StaticMasker]
        for name in float_arguments(owner)
    ],
)
@pytest.mark.parametrize("value", [NAN, -1.0])
def test_constructors_reject_nan_and_negative_floats(owner, name, value):
    required = {
        parameter.name: REQUIRED[parameter.name]
        for parameter in inspect.signature(owner).parameters.values()
        if parameter.default is parameter.empty and parameter.name in REQUIRED
    }
    with pytest.raises(
        ValueError, match=rf"^{name} must be a (finite )?number .*Received: {value}"
    ):
        owner(**{**required, name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"learning_rate": NAN},
            "learning_rate must be a finite number of at least 0. Received: nan",
        ),
        (
            {"learning_rate": NAN, "num_train_steps": 9},
            "learning_rate must be a finite number of at least 0. Received: nan",
        ),
        ({"beta_2": 2}, r"beta_2 must be a number in \[0, 1\)"),
        ({"layer_decay": 1.5}, r"layer_decay must be a number in \(0, 1\]"),
        ({"num_layers": 0}, "num_layers must be an integer above 0. Received: 0"),
        ({"use_ema": True, "ema_momentum": NAN}, "ema_momentum must be a finite"),
        (
            {"loss_scale_factor": INFINITE},
            "loss_scale_factor must be a finite number. Received: inf",
        ),
    ],
)
def test_optimizer_rejects_invalid_numbers(options, message):
    with pytest.raises(ValueError, match=message):
        optimizers.AdamW(**options)


def make_classifier(**options):
    return TextClassifier(Backbone(CONFIG), **{"num_classes": 2} | options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_classifier(num_classes=True), "num_classes must be an integer above"),
        (lambda: make_classifier(class_names="ab"), "class_names must be a list or tuple"),
        (
            lambda: make_classifier(class_names=["a", 1]),
            r"class_names must contain strings\. Received: 1 \(index 1\)",
        ),
        (
            lambda: make_classifier(dropout=NAN),
            r"dropout must be a number in \[0, 1\). Received: nan",
        ),
        (
            lambda: Distiller(make_classifier(), make_classifier(), temperature=NAN),
            "temperature must be a finite number above 0. Received: nan",
        ),
        (
            lambda: Distiller(make_classifier(), make_classifier(), label_weight=-1),
            "label_weight must be a finite number of at least 0. Received: -1",
        ),
        (
            lambda: ReplacedTokenDetector(Backbone(CONFIG), discriminator_weight=NAN),
            "discriminator_weight must be a finite number of at least 0. Received: nan",
        ),
        (
            lambda: ReplacedTokenDetector(Backbone(CONFIG), generator_size=NAN),
            r"generator_size must be a number in \(0, 1\]. Received: nan",
        ),
        (
            lambda: Backbone(CONFIG).enable_lora(2, lora_alpha=NAN),
            "lora_alpha must be a finite number above 0. Received: nan",
        ),
        (
            lambda: make_classifier().fit(np.ones((2, 3)), np.ones(2), epochs=0.5),
            r"epochs must be an integer of at least 0\. Received: 0\.5",
        ),
        (
            lambda: make_classifier().fit(np.ones((2, 3)), np.ones(2), validation_split=NAN),
            r"validation_split must be a number in \[0, 1\). Received: nan",
        ),
    ],
)
def test_tasks_reject_invalid_numbers_and_names(make, message):
    with pytest.raises(ValueError, match=message):
        make()
