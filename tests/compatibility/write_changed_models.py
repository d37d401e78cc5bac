# SPDX-License-Identifier: Apache-2.0
"""Writes small models that were changed after they were made, and what they then did.

`changed_models_test.py` reads them with today's code. They were written by the last commit before
blocks were made of other layers (27b60fa), in a checkout of it:

    PYTHONPATH=<checkout> python tests/compatibility/write_changed_models.py \\
        tests/compatibility/27b60fa

That code is imported, so this script uses what it had, and does not change with today's. Nothing in
the models is random, so that training goes on as it did.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

import keras_bert

SMALL = {
    "vocabulary_size": 11,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 6,
    "initializer_range": 0.4,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
TOKEN_IDS = np.array([[2, 5, 7, 10, 3, 6], [2, 9, 3, 0, 0, 0], [2, 8, 4, 3, 0, 0]])
FEATURES = {"token_ids": TOKEN_IDS, "padding_mask": TOKEN_IDS != 0}
LABELS = np.array([0, 2, 1])


def backbone(**changes):
    return keras_bert.Backbone(keras_bert.BertConfig(**{**SMALL, **changes}))


def classifier(optimizer=None, **changes):
    task = keras_bert.TextClassifier(backbone(**changes), num_classes=3)
    task.compile(optimizer or keras_bert.optimizers.AdamW(1e-2))
    return task


def train(task):
    """Two updates of a model, whose moments then tell the order of its variables."""
    for _ in range(2):
        task.train_on_batch(FEATURES, LABELS)


def trained(task):
    train(task)
    return task


def shared_attention():
    return trained(classifier(num_layers=3, layer_sharing="attention"))


def shared_feed_forward():
    return trained(classifier(num_layers=3, layer_sharing="feed_forward", num_layer_groups=2))


def pruned_heads():
    return trained(classifier(num_heads=4, heads_by_layer=(1, 3)))


def low_rank_updates():
    task = classifier()
    task.backbone.enable_lora(2)
    return trained(task)


def int8():
    task = trained(classifier())
    task.quantize("int8")
    return task


def frozen_after_training():
    """The optimizer has the variables of before; the norm has one that another layer has now."""
    task = trained(classifier(keras.optimizers.Adam(1e-2, use_ema=True)))
    task.backbone.blocks[0].attention_norm.trainable = False
    task.backbone.token_embedding.trainable = False
    return task


def frozen_before_training():
    task = classifier()
    task.backbone.blocks[0].trainable = False
    task.backbone.blocks[1].attention.trainable = False
    task.backbone.blocks[1].feed_forward_norm.trainable = False
    return trained(task)


def scaled_loss():
    optimizer = keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2)
    return trained(classifier(keras.optimizers.LossScaleOptimizer(optimizer)))


def ensemble():
    return keras_bert.Ensemble([trained(classifier()) for _ in range(2)])


def distiller():
    task = keras_bert.Distiller(trained(classifier(num_layers=1)), trained(classifier()))
    task.compile(keras_bert.optimizers.AdamW(1e-2))
    return trained(task)


def encoder():
    return backbone(pooler=False, pooler_activation="relu")


MODELS = [
    shared_attention,
    shared_feed_forward,
    pruned_heads,
    low_rank_updates,
    int8,
    frozen_after_training,
    frozen_before_training,
    scaled_loss,
    ensemble,
    distiller,
    encoder,
]
# What is not trained any further
FINISHED = ("int8", "frozen_after_training", "ensemble", "encoder")


def outputs(model):
    found = model.predict(FEATURES, verbose=0)
    return {
        name: value.tolist()
        for name, value in (found if isinstance(found, dict) else {"logits": found}).items()
    }


def main(archive):
    answers = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for make in MODELS:
            keras.utils.set_random_seed(1)
            model = make()
            if make is low_rank_updates:
                model.save(folder / make.__name__, zipped=False)
            else:
                model.save(folder / f"{make.__name__}.keras")
            answers[make.__name__] = {"outputs": outputs(model)}
            if make.__name__ not in FINISHED:
                train(model)
                answers[make.__name__]["trained"] = outputs(model)
        (folder / "answers.json").write_text(json.dumps(answers) + "\n")
        shutil.make_archive(archive, "xztar", folder)


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()))
