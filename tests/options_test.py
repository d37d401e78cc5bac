# SPDX-License-Identifier: Apache-2.0
"""Options of every class with a config: subclasses save them, and NumPy scalars are accepted."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import checks, data, losses, metrics, optimizers
from keras_bert.data.packing import Preprocessor
from keras_bert.layers import Dense, TransformerBlock
from keras_bert.layers.base import Layer
from keras_bert.tasks.task import Task
from tests.layers.contract_test import LAYERS
from tests.small_tasks import CONFIG, LETTERS, make_task
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.on_torch

NAMES = ["x", "y"]
TASKS = {
    keras_bert.TextClassifier: {
        **{"class_names": NAMES, "multi_label": True, "thresholds": [0.25, 0.5], "dropout": 0.5}
    },
    keras_bert.TokenClassifier: {
        **{"num_classes": 2, "class_names": NAMES, "dropout": 0.5, "crf": True}
    },
    keras_bert.QuestionAnswerer: {
        **{"max_answer_length": 3, "null_threshold": 1.5, "negative_fraction": 0.25, "dropout": 0.5}
    },
    keras_bert.MultipleChoice: {"dropout": 0.5},
    keras_bert.TextEmbedder: {
        **{"pooling": "cls", "normalize": False, "prompts": {"query": "x "}},
        **{"default_prompt_name": "query", "include_prompt": False, "dimensions": 4},
    },
    keras_bert.LateInteractionEmbedder: {
        **{"projection_dim": 4, "projection_bias": True, "prompts": {"query": "x "}}
    },
    keras_bert.SparseEmbedder: {
        **{"pooling": "sum", "activation": "log1p_relu", "prompts": {"query": "x "}},
        **{"default_prompt_name": "query"},
    },
    keras_bert.MaskedLM: {"masking": {"mask_selection_rate": 0.5}},
    keras_bert.Pretrainer: {
        **{"next_sentence": False, "sequence_format": "document_sentences"},
        **{"duplicate_factor": 3, "masking": {"mask_selection_rate": 0.5}},
    },
    keras_bert.ReplacedTokenDetector: {
        **{"generator_size": 0.5, "discriminator_weight": 3.0, "seed": 3},
        **{"embedding_sharing": "disentangled", "masking": {"mask_selection_rate": 0.5}},
    },
    keras_bert.Distiller: {
        **{"temperature": 3.0, "divergence_weight": 1.5, "label_weight": 2.5, "cosine_weight": 0.0},
        **{"divergence_tokens": "all", "project_hidden": False},
    },
}
PREPROCESSORS = {
    data.LateInteractionPreprocessor: {
        **{"query_length": 9, "document_length": 7, "query_prefix": "a", "document_prefix": ""},
        **{"skiplist_words": ["b"], "attend_to_expansion_tokens": True},
    },
    data.MultipleChoicePreprocessor: {},
    data.QuestionAnswererPreprocessor: {"doc_stride": 9, "max_query_length": 7},
    data.TextClassifierPreprocessor: {},
    data.TokenClassifierPreprocessor: {"overlap": 5},
}
ADAM = {"learning_rate": 0.5, "weight_decay": 0.25, "beta_1": 0.5, "epsilon": 0.125}
SCHEDULE = {"peak_learning_rate": 0.5, "num_train_steps": 9, "num_warmup_steps": 3}
OTHER_CLASSES = {
    keras_bert.WordPieceTokenizer: {"vocabulary": LETTERS, "max_word_length": 9},
    **dict.fromkeys([optimizers.AdamW, optimizers.LAMB, optimizers.StableAdamW], ADAM),
    optimizers.AdamWeightDecay: ADAM,
    optimizers.LinearWarmupDecay: {**SCHEDULE, "warmup_from_zero": True},
    optimizers.BertWarmupDecay: SCHEDULE,
    optimizers.ElectraWarmupDecay: SCHEDULE,
    losses.InBatchNegatives: {"scale": 2.5, "symmetric": True},
    losses.SpladeLoss: {"query_factor": 0.5, "document_factor": 0.25, "scale": 2.5},
    losses.TripletLoss: {"margin": 0.5, "distance": "euclidean"},
    losses.MarginMSELoss: {"scale": 2.5},
    losses.ListNetLoss: {"scale": 2.5},
    losses.SoftTargetDivergence: {"temperature": 2.5},
    metrics.MultiLabelF1: {"num_classes": 3, "average": "macro", "threshold": 0.25},
}
NUMPY = {int: np.int64, float: np.float32, bool: np.bool_}
# Layers whose options are layers, or are validated by Keras
KERAS_CHECKED = (Dense, TransformerBlock)
each_class = pytest.mark.parametrize(
    ("cls", "options"),
    [
        *{**TASKS, **PREPROCESSORS, **OTHER_CLASSES}.items(),
        *((cls, options) for cls, options, _ in LAYERS if options and cls not in KERAS_CHECKED),
    ],
)


def to_numpy_scalars(value):
    if isinstance(value, dict | list):
        return keras.tree.map_structure(to_numpy_scalars, value)
    return NUMPY.get(type(value), lambda same: same)(value)


def make_object(cls, **options):
    if issubclass(cls, keras_bert.Distiller):
        tasks = [make_task(keras_bert.MaskedLM) for _ in range(2)]
        return cls(*tasks, **options)
    if issubclass(cls, Task):
        return cls(keras_bert.Backbone(CONFIG), **options)
    if issubclass(cls, Preprocessor):
        return cls(make_tokenizer(*LETTERS), **{"sequence_length": 80, **options})
    return cls(**options)


def make_subclass(cls):
    class Child(cls):
        def __init__(self, *args, extra=1, **kwargs):
            super().__init__(*args, **kwargs)
            self.extra = extra

    return Child


PARTS = {"name", "backbone", "student", "teacher"}


def get_plain_config(task):
    """Returns an object's config without the parts of a task, whose names are numbered."""
    config = keras.saving.serialize_keras_object(task.get_config())
    return {name: value for name, value in config.items() if name not in PARTS}


@each_class
def test_subclasses_save_all_options_as_plain_numbers(cls, options):
    options = to_numpy_scalars(options)
    child = make_object(make_subclass(cls), **options, extra=2)
    saves_extra = issubclass(cls, Task | Preprocessor | Layer)
    expected = get_plain_config(make_object(cls, **checks.plain(options)))
    expected |= {"extra": 2} if saves_extra else {}
    for each in (child, type(child).from_config(child.get_config())):
        assert json.dumps(get_plain_config(each), sort_keys=True) == json.dumps(
            expected, sort_keys=True
        )


def test_numpy_scalars_give_the_same_config():
    config = CONFIG.replace(dropout=0.25, attention_dropout=0.5, heads_by_layer=(1,))
    fields = config.to_dict() | {"layer_norm_epsilon": 0.5, "initializer_range": 0.25}
    received, expected = (
        keras_bert.BertConfig(**x).to_json() for x in (to_numpy_scalars(fields), fields)
    )
    assert received == expected


def test_subclasses_read_presets_with_options(tmp_path):
    child = make_subclass(keras_bert.TextClassifier)
    options = {"class_names": NAMES, "multi_label": True, "thresholds": [0.25, 0.5]}
    preprocessor = {"tokenizer": {"vocabulary": LETTERS}, "sequence_length": np.int64(8)}
    task = make_object(child, **options, preprocessor=preprocessor, dropout=np.float32(0.5))
    task.save_to_preset(tmp_path)
    loaded = child.from_preset(tmp_path, class_names=NAMES[::-1], extra=2)
    assert (loaded.class_names, loaded.thresholds) == (("y", "x"), (0.5, 0.25))
    assert (loaded.multi_label, loaded.dropout, loaded.extra) == (True, 0.5, 2)


def test_tasks_save_only_their_preprocessor_class():
    """Files do not contain the class, so a different class and its options would be lost."""
    preprocessor = make_object(make_subclass(data.TextClassifierPreprocessor), extra=2)

    class Task(keras_bert.TextClassifier):
        preprocessor_class = type(preprocessor)

    config = CONFIG.replace(max_sequence_length=80)
    tasks = [
        cls(keras_bert.Backbone(config), 2, preprocessor)
        for cls in (keras_bert.TextClassifier, Task)
    ]
    with pytest.raises(ValueError, match=r"must be a TextClassifierPreprocessor\. Received: Child"):
        tasks[0].get_config()
    assert Task.from_config(tasks[1].get_config()).preprocessor.extra == 2
