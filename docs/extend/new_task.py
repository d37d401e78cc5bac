# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Add a task
#
# A task has an encoder, a head and a preprocessor. The base class `Task` provides `fit`, `evaluate` and `predict` on text, presets, files and
# `export`. Your subclass defines only the differences.
#
# In this example you add ordinal regression. Its classes have an order, for example stars, and a mistake by one level is smaller than a mistake by three. With K
# levels the head has K - 1 outputs. Output k predicts whether the level is above level k ([Niu et al., 2016](https://doi.org/10.1109/CVPR.2016.532)).
#
# | A subclass defines | Purpose | In this example |
# |---|---|---|
# | constructor arguments | are saved to files, from attributes with the same names | levels, dropout rate |
# | `preset_options` | arguments that presets also store | both |
# | `head_name` | name of the `head` layer in checkpoints | `ordinal` |
# | `predict_method` and its method | readable predictions, in Python, commands and exports | `rate` |
# | `fields`, `optional_fields`, `list_fields` | input fields (default: `text`) | a text |
# | `adapters` | reads other input types with an `InputAdapter` | not needed |
# | `_default_loss`, `_default_metrics` | `compile()` without arguments | cross-entropy, distance |
# | `_label_rules` | labels that `fit` accepts | a level, by name or id |
# | `serving_signatures` | the export's signatures | text to level and score |
# | `has_row_logits`, `explained_row` | what `insight` explains | not needed |
# | an `Ensemble` subclass | ensembles | not needed |

# %%
import keras
import numpy as np

import keras_bert
from keras_bert.data.labels import LabelRules
from keras_bert.layers.heads import new_classification_head
from keras_bert.models.backbone import task_pooler
from keras_bert.models.inputs import token_inputs
from keras_bert.tasks.task import Task


class LevelRules(LabelRules):
    """A level for each row, by name or id; its targets are 1 for each level below it, and else 0."""

    def read(self, labels, first_row=0):
        ids = super().read(labels, first_row)
        return (ids[:, None] > np.arange(self.num_ids - 1)).astype("float32")


@keras.saving.register_keras_serializable(package="my_project")
def levels_off(targets, logits):
    """By how many levels each prediction is off."""
    predicted = keras.ops.cast(logits > 0, targets.dtype)
    return keras.ops.abs(keras.ops.sum(predicted - targets, axis=-1))


@keras.saving.register_keras_serializable(package="my_project")
class OrdinalClassifier(Task):
    """An encoder that predicts one of multiple ordered levels for each text.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `TextClassifierPreprocessor` or its config.
        levels: The names of the levels, the lowest first.
        dropout: Dropout rate on the pooled output. Defaults to the rate in the encoder's config.

    Output shape:
        Logits `(batch, levels - 1)`, float32.
    """

    predict_method = "rate"
    fields = ("text",)
    preset_options = ("levels", "dropout")
    head_name = "ordinal"

    def __init__(
        self, backbone, preprocessor=None, *, levels, dropout=None, name="ordinal_classifier", **kwargs
    ):  # fmt: skip
        head = new_classification_head(backbone.config, len(levels) - 1, dropout)
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
        self.levels = tuple(levels)

    @property
    def dropout(self):
        return self.head.dropout

    def _default_loss(self):
        return keras.losses.BinaryCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def _default_metrics(self):
        return [keras.metrics.MeanMetricWrapper(levels_off, name="levels_off")]

    def _label_rules(self, batching):
        return LevelRules(len(self.levels), self.levels)

    def rate(self, x, batch_size=None, verbose=0):
        """Returns the level of each text, and its score, the mean level from 0."""
        logits = self.predict(x, batch_size=batch_size, verbose=verbose)
        scores = (1 / (1 + np.exp(-logits))).sum(axis=-1)
        return [
            {"level": self.levels[level], "score": float(score)}
            for level, score in zip((logits > 0).sum(axis=-1), scores, strict=True)
        ]

    def serving_signatures(self, options):
        import tensorflow as tf

        from keras_bert.export.served_inputs import validate_texts
        from keras_bert.export.signatures import signature

        def serve(text):
            (text,) = validate_texts((text,), "text", options)
            logits = self(self.preprocessor(text), training=False)
            level = tf.reduce_sum(tf.cast(logits > 0, tf.int32), axis=-1)
            return {
                "level": tf.gather(tf.constant(self.levels), level),
                "score": tf.reduce_sum(tf.sigmoid(logits), axis=-1),
            }

        return {"serving_default": signature(serve, text=(tf.string, 1))}


# %% [markdown]
# The task is complete. We train it on color names from the xkcd survey, which ship with Matplotlib. The label is the lightness in five levels.

# %%
import csv

from matplotlib.colors import XKCD_COLORS, to_rgb

keras.utils.set_random_seed(1)
LEVELS = ("very dark", "dark", "medium", "light", "very light")
names = np.random.default_rng(1).permutation(sorted(XKCD_COLORS))
texts = [name.removeprefix("xkcd:") for name in names]
lightness = np.array([np.dot(to_rgb(name), (0.299, 0.587, 0.114)) for name in names])
ids = np.searchsorted(np.quantile(lightness, (0.2, 0.4, 0.6, 0.8)), lightness)
labels = [LEVELS[index] for index in ids]
print(*zip(texts[:3], labels[:3], strict=True), sep="\n")

# %% small="count, epochs = 64, 1"
count, epochs = 749, 5

# %% small="classifier = OrdinalClassifier.from_preset(small_encoder(), levels=LEVELS)"
classifier = OrdinalClassifier.from_preset("minilm", levels=LEVELS, sequence_length=16)

# %%
classifier.compile(optimizer=keras_bert.optimizers.AdamW(2e-4))
classifier.fit(texts[:count], labels[:count], epochs=epochs, verbose=0)
off = classifier.evaluate(texts[749:], labels[749:], verbose=0, return_dict=True)["levels_off"]
print(f"always medium:     off by {np.abs(ids[749:] - 2).mean():.2f} levels")
print(f"fine-tuned MiniLM: off by {off:.2f} levels")

# %%
classifier.rate(["pale salmon", "deep ocean", "dusty rose"])

# %% [markdown]
# Files, presets and exports work without further code:

# %%
classifier.save("colors.keras")
print(type(keras_bert.load_model("colors.keras")).__name__)
classifier.save_to_preset("colors")
print(OrdinalClassifier.from_preset("colors").levels)
classifier.export("export/colors/1", warm_up=False)
keras_bert.export.ServedModel("export/colors/1").predict_rows([{"text": "pale salmon"}])

# %% [markdown]
# `fit` reports invalid labels before training:

# %%
try:
    classifier.fit(texts[:2], ["dark", "gray"])
except ValueError as error:
    print(error)

# %% [markdown]
# ## Add the task to `finetune`
#
# A job connects a task to the `finetune` command. It has a config, which defines the flags, and methods that read files, build the task and score it. Here the
# files are the same as for classification, and there is one more flag.

# %%
import dataclasses

from training.engine import finetuning
from training.jobs.classification import ClassificationJob, FinetuneConfig
from training.scores import classifier_scores


@dataclasses.dataclass(frozen=True)
class LevelsConfig(FinetuneConfig):
    """Fine-tuning on texts with a level.

    Args:
        levels: The names of the levels, the lowest first.
    """

    levels: tuple[str, ...] = ()


class LevelsJob(ClassificationJob):
    """Ordered levels, with `OrdinalClassifier`."""

    config_class = LevelsConfig
    predict_method = "rate"

    def build(self, seed):
        task = OrdinalClassifier.from_preset(
            self.preset, levels=self.config.levels, **finetuning.preset_options(self.config)
        )
        train = self.data.train
        labels = [train.class_names[index] for index in train.labels]
        return finetuning.training_of_text(task, train.inputs, labels, self.config, len(train))

    def score(self, model):
        dev = self.data.dev["dev"]
        predicted = [dev.class_names.index(answer["level"]) for answer in model.rate(dev.inputs)]
        return {"dev": classifier_scores.score(self.data.metrics, predicted, dev.labels)}

    def report(self, load, best, directory):
        return {}

    def export(self, model, directory):
        model.export(directory, overwrite=True)


# %% small="config = config.replace(epochs=1, preset=str(small_encoder()))"
with open("colors.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows(
        [("text", "label"), *zip(texts[:count], labels[:count], strict=True)]
    )
config = LevelsConfig.from_flags(
    train_file="colors.csv",
    levels=LEVELS,
    epochs=6,
    sequence_length=16,
    export=False,
    output_dir="runs",
)

# %%
results = finetuning.run(LevelsJob, config, LevelsJob.read(config))

# %% [markdown]
# ## Contribute the task
#
# | File | Content |
# |---|---|
# | `keras_bert/tasks/` | the task |
# | `keras_bert/export/` | its signatures |
# | `training/jobs/` | its job |
# | `training/jobs/tasks.py` | a row in `TASKS`, for example `"levels": _task(LevelsJob)` |
# | `keras_bert/tasks/__init__.py`, `keras_bert/__init__.py` | its public name |
# | `keras_bert/data/adapters/` | an `InputAdapter` subclass, only for a new input type |
#
# `evaluate` and `insight` call the job's methods `evaluate`, `read_insight_inputs` and `predict_for_attribution`. `predict` and `export` use the task itself. Texts, words, questions and
# choices already have adapters (`keras_bert.data.adapters.base.InputAdapter`).
