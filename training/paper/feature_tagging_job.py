# SPDX-License-Identifier: Apache-2.0
"""Token classification with a BiLSTM on a frozen encoder's features (feature-based approach)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..engine.job import Training
from ..engine.options import (
    HostOptions,
    NonNegativeFloat,
    PositiveInt,
    ProperFraction,
    UnusedFlags,
    check_one_of,
)
from ..jobs.tagging import TaggedFilesConfig, TaggingData, TaggingJob
from ..readers.tagged_words import model_inputs

if TYPE_CHECKING:
    import keras

    from keras_bert.data.conll import TaggedText

_LSTM_LAYERS = 2  # as in section 5.3 of the BERT paper
# Rows of table 7 in the BERT paper. Each has a slice of (embeddings, layer 1, …, last layer), and
# whether the layers are summed with learned weights.
ROWS: dict[str, tuple[slice, bool]] = {
    "embeddings": (slice(0, 1), False),
    "second_to_last": (slice(-2, -1), False),
    "last": (slice(-1, None), False),
    "weighted_last_4": (slice(-4, None), True),
    "concatenated_last_4": (slice(-4, None), False),
    "weighted_all": (slice(1, None), True),
}


@dataclasses.dataclass(frozen=True)
class FeatureTaggingConfig(TaggedFilesConfig):
    """Training a BiLSTM on frozen features, with words and labels in columns.

    Args:
        features: The hidden states to use. One of embeddings, second_to_last, last,
            weighted_last_4, concatenated_last_4 and weighted_all.
        cache_dir: Directory for cached features.
        lstm_units: Units per direction of the BiLSTM.
        dropout: Dropout rate for the features, and before the classifier.
        batch_size: Number of sentences per training step.
        weight_decay: Decoupled weight decay for all weights except biases.
        seed: Seed of the first run. It determines the initial weights, dropout and the order of the
            sentences.
    """

    # Not configurable, because the encoder is frozen and the BiLSTM reads features, not text.
    pretrained: ClassVar[bool] = True
    accumulation: ClassVar[int] = 1
    layer_decay: ClassVar[float] = 1.0
    bucketing_window: ClassVar[int | None] = None
    export: ClassVar[bool] = False
    hosts: ClassVar[HostOptions] = HostOptions()

    features: str = "concatenated_last_4"
    cache_dir: str = "runs/features"
    lstm_units: PositiveInt = 768
    dropout: ProperFraction = 0.3
    epochs: PositiveInt = 10
    learning_rate: NonNegativeFloat = 1e-3
    output_dir: str = "runs/feature_tagging"

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        yield ["rematerialize"], "the encoder is frozen"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, features=tuple(ROWS))


class FeatureTagging(TaggingJob):
    """Token classification with a BiLSTM on cached features."""

    config_class = FeatureTaggingConfig
    config: FeatureTaggingConfig

    def __init__(self, config: FeatureTaggingConfig, data: TaggingData, preset: str) -> None:
        super().__init__(config, data, preset)
        from ..engine import precision
        from .word_features import WordFeatures

        self.title = f"{self.title}, {config.features}"
        features_of = WordFeatures(
            preset,
            config.features,
            ROWS[config.features][0],
            config.cache_dir,
            sequence_length=config.sequence_length,
            dtype=precision.resolve(config.compute.precision, config.output_dir),
        )
        # Compute the features before a seed is set, because the encoder's initializers sample.
        texts = {"train": data.train, "dev": data.dev, "test": data.test}
        self.features = {
            name: features_of(model_inputs(text, text.words, config.context))
            for name, text in texts.items()
            if text is not None
        }

    def build(self, seed: int) -> Training:
        import keras

        from keras_bert.data.labels import LabelRules
        from keras_bert.tasks.batch_feeder import BatchFeeder
        from keras_bert.tasks.batch_plan import BatchPlan

        from ..engine import finetuning
        from .word_features import FeatureBatches

        config, train, class_names = self.config, self.data.train, self.data.class_names
        features = self.features["train"]
        model = feature_tagger(
            *features.shape[1:],
            len(class_names),
            mix=ROWS[config.features][1],
            num_layers=_LSTM_LAYERS,
            units=config.lstm_units,
            dropout=config.dropout,
        )
        labels = [label for sentence in train.labels or () for label in sentence]
        batches = FeatureBatches(
            features,
            [len(sentence) for sentence in train.words],
            config.batch_size,
            LabelRules(len(class_names), class_names).read(labels),
            seed,
        )
        model.compile(
            finetuning.make_optimizer(config, config.epochs * len(batches)),
            keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            ),
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        )

        def fit_epoch(epoch: int, batch: int, callbacks: list[keras.callbacks.Callback]) -> None:
            feed = BatchFeeder(batches, epoch=epoch, plan=BatchPlan(initial_batch=batch))
            model.fit(
                feed.to_keras_data(),
                shuffle=False,
                epochs=epoch + 1,
                initial_epoch=epoch,
                callbacks=[feed, *callbacks],
                verbose=0,
            )

        return Training(model, fit_epoch, num_rows=len(train))

    def predicted_labels(self, model: keras.Model, name: str, text: TaggedText) -> list[list[str]]:
        from .word_features import predicted_ids

        lengths = [len(sentence) for sentence in text.words]
        return [
            [self.data.class_names[index] for index in sentence]
            for sentence in predicted_ids(model, self.features[name], lengths)
        ]

    def load(self, path: str) -> keras.Model:
        import keras

        return keras.models.load_model(Path(path))


def feature_tagger(
    num_features: int,
    hidden_dim: int,
    num_classes: int,
    *,
    mix: bool = False,
    num_layers: int = 2,
    units: int = 768,
    dropout: float = 0.0,
) -> keras.Model:
    """Returns a BiLSTM over words with a classifier for each word.

    The inputs are a dict of `features`, float `(batch, words, num_features, hidden_dim)`, and
    `padding_mask`, bool `(batch, words)`, False at padding. The output is logits, float32 `(batch,
    words, num_classes)`.

    Args:
        num_features: Number of feature vectors per word, for example 4 for the last four layers.
        hidden_dim: Size of each feature vector.
        num_classes: Number of classes.
        mix: Whether to sum a word's vectors with learned weights instead of concatenating them.
        num_layers: Number of BiLSTM layers.
        units: Units per direction of the BiLSTM.
        dropout: Dropout rate for the features, and before the classifier.

    Example:

    >>> model = feature_tagger(4, 8, 3, mix=True, units=6)
    >>> x = {"features": np.zeros((2, 5, 4, 8)), "padding_mask": np.ones((2, 5), bool)}
    >>> model.predict(x, verbose=0).shape
    (2, 5, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3.
    """
    import keras

    from keras_bert.layers import ClassificationHead
    from keras_bert.layers.scalar_mix import ScalarMix
    from keras_bert.layers.top_layers import apply_layers, bidirectional_lstm

    features = keras.Input((None, num_features, hidden_dim), name="features")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    if mix:
        x = ScalarMix(name="scalar_mix")(features)
    else:
        # (batch, words, features, hidden) -> (batch, words, features * hidden)
        x = keras.layers.Reshape((-1, num_features * hidden_dim), name="side_by_side")(features)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    x = apply_layers(bidirectional_lstm(units, num_layers, return_sequences=True), x, padding_mask)
    logits = ClassificationHead(num_classes, dropout=dropout, name="classifier")(x)
    return keras.Model(
        {"features": features, "padding_mask": padding_mask}, logits, name="feature_tagger"
    )
