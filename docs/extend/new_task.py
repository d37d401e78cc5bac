# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # A new task
#
# A task is an encoder, a head and a preprocessor. `Task` has everything that tasks share: `fit`, `evaluate` and `predict` on text, `from_preset` and
# `save_to_preset`, saving and `export`. A subclass defines the differences. The example is a multi-label classifier: each of several labels applies
# to a text or not, independently of the others. (The library has that as `TextClassifier(multi_label=True)`.)
#
# | a subclass defines | for | here |
# |---|---|---|
# | arguments of its constructor | files, from the attributes of their names | the classes, the dropout rate |
# | `preset_options` | the arguments that a preset saves too | the dropout rate; presets keep class names anyway |
# | `head_name` | the layer `head` in checkpoints | `classifier` |
# | `verb`, and its method | readable answers; programs and exports know them by it | `label` |
# | `fields`, `optional_fields`, `list_fields`; `adapters` | the fields of a row of text, by default `text`, and the `InputAdapter` that reads other fields, such as three texts | a text |
# | `_default_loss`, `_default_metrics` | `compile()` without arguments | binary cross-entropy; accuracy of each label |
# | `_label_rules` | the labels that `fit` accepts | rows of 0 and 1 |
# | `serving_signatures` | the functions of an exported model | text in, probabilities out |
# | a subclass of `keras_bert.Ensemble` and of the task | ensembles: `shared_options`, which are equal in all members, and `averaging`, by default the mean of the outputs | none |

# %%
import keras
import numpy as np

import keras_bert
from keras_bert.data.labels import LabelRules, checked_num_classes
from keras_bert.layers.heads import new_classification_head
from keras_bert.models.backbone import task_pooler
from keras_bert.models.inputs import token_inputs
from keras_bert.tasks.task import Task


class RowsOfLabels(LabelRules):
    """Labels `(rows, classes)` of 0 and 1."""

    def read(self, labels):
        labels = np.asarray(labels, "float32")
        if labels.ndim != 2 or labels.shape[1] != self.num_ids or not np.isin(labels, (0, 1)).all():
            raise ValueError(
                f"The labels have shape {labels.shape}; expected rows of {self.num_ids} values 0 or 1."
            )
        return labels


@keras.saving.register_keras_serializable(package="my_project")
class MultiLabelClassifier(Task):
    """An encoder that predicts for each of several labels whether it applies to a text.

    Args:
        backbone: The encoder, a `Backbone`.
        num_classes: Number of labels. Defaults to the number of `class_names`.
        preprocessor: A `TextClassifierPreprocessor` or its config.
        class_names: The names of the labels.
        dropout: Dropout rate on the pooled output. Defaults to that of the encoder's config.

    Output shape:
        Logits `(batch, num_classes)`, float32.
    """

    verb = "label"
    preset_options = ("dropout",)
    head_name = "classifier"

    def __init__(
        self, backbone, num_classes=None, preprocessor=None, *, class_names=None, dropout=None,
        name="multi_label_classifier", **kwargs
    ):  # fmt: skip
        num_classes = checked_num_classes(num_classes, class_names)
        head = new_classification_head(backbone.config, num_classes, dropout)
        inputs = token_inputs()
        pooler = task_pooler(backbone)  # for families whose encoder has none
        super().__init__(
            inputs=inputs,
            outputs=head(backbone.pool(inputs, pooler)),
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.head = head
        self.pooler = pooler
        self.num_classes = num_classes
        self.class_names = None if class_names is None else tuple(class_names)

    @property
    def dropout(self):
        return self.head.dropout

    def _default_loss(self):
        return keras.losses.BinaryCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def _default_metrics(self):
        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]  # of logits

    def _label_rules(self, batching):
        return RowsOfLabels(self.num_classes)

    def label(self, x, threshold=0.5):
        """Returns the labels that apply to each text, with their probabilities."""
        probabilities = 1 / (1 + np.exp(-self.predict(x, verbose=0)))
        names = self.class_names or range(self.num_classes)
        return [
            {name: float(p) for name, p in zip(names, row, strict=True) if p > threshold}
            for row in probabilities
        ]

    def serving_signatures(self, options):
        import tensorflow as tf

        from keras_bert.export.signatures import checked_texts, signature

        def serve(text):
            (text,) = checked_texts((text,), "text", options)
            logits = self(self.preprocessor(text), training=False)
            return {"probabilities": tf.sigmoid(logits)}

        return {"serving_default": signature(serve, text=(tf.string, 1))}


# %% [markdown]
# That is all. The data: names of colors of xkcd's survey, which come with Matplotlib, and three labels that the colors determine.

# %%
import colorsys

from matplotlib.colors import XKCD_COLORS, to_rgb

keras.utils.set_random_seed(1)
LABELS = ("light", "grayish", "warm")


def to_labels(color):
    hue, value, saturation = colorsys.rgb_to_hls(*to_rgb(color))
    return value > 0.5, saturation < 0.5, hue < 0.2 or hue > 0.9


names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))
texts, labels = [name.removeprefix("xkcd:") for name in names], np.array([*map(to_labels, names)])
print(texts[0], dict(zip(LABELS, labels[0].tolist(), strict=True)))

# %% small="count, epochs = 64, 1"
count, epochs = 749, 3

# %% small="classifier = MultiLabelClassifier.from_preset(small_encoder(), class_names=LABELS)"
classifier = MultiLabelClassifier.from_preset("minilm", class_names=LABELS, sequence_length=16)

# %%
classifier.compile(optimizer=keras_bert.optimizers.AdamW(2e-4))
classifier.fit(texts[:count], labels[:count], epochs=epochs, verbose=0)
test = texts[749:], labels[749:]
share = test[1].mean(axis=0)
print(f"always the most frequent: {np.maximum(share, 1 - share).mean():.1%}")
accuracy = classifier.evaluate(*test, verbose=0, return_dict=True)["accuracy"]
print(f"fine-tuned MiniLM:        {accuracy:.1%}")

# %%
classifier.label(["pale salmon", "deep ocean", "dusty rose"])

# %% [markdown]
# Files, presets and exports work without further code:

# %%
classifier.save("colors.keras")
again = keras.models.load_model("colors.keras")
print(type(again).__name__, again.class_names)
classifier.export("export/colors/1", warm_up=False)

# %%
import tensorflow as tf

served = tf.saved_model.load("export/colors/1").signatures["serving_default"]
served(text=tf.constant(["pale salmon"]))["probabilities"].numpy().round(3)

# %% [markdown]
# `fit` refuses wrong labels before training:

# %%
try:
    classifier.fit(texts[:2], [0, 1])
except ValueError as error:
    print(error)

# %% [markdown]
# ## In the library
#
# A task in the library has its file in `keras_bert/tasks`, its signatures in `keras_bert/export`, and a job in `training/jobs` with a row in `TASKS`
# in `training/jobs/tasks.py`: then `finetune` trains it, resumes and reports. The job's method `evaluate` is for the command `evaluate`, and
# `insight_rows` and `explained` are for `insight`; `predict` and `export` ask the task itself. For a new kind of input, beside texts, words,
# questions and choices, its file also has a subclass of `keras_bert.data.adapters.base.InputAdapter`. `keras_bert/tasks/__init__.py` and
# `keras_bert/__init__.py` list its public name.
