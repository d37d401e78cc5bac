# SPDX-License-Identifier: Apache-2.0
"""What all tasks share: a model that `fit`, `evaluate` and `predict` feed with text."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
import numpy as np

from keras_bert.config import BertConfig
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import check_ids
from keras_bert.models.layer_states import layer_states, restore_layer_states
from keras_bert.tasks.class_labels import LabelRules, checked_ids, class_weights_of
from keras_bert.tasks.objective import ObjectiveModel
from keras_bert.tasks.presets import check_preprocessor, task_of_preset
from keras_bert.tasks.rows import (
    Batching,
    BatchOutputs,
    Rows,
    TextDataset,
    TextRows,
    checked_generator,
    is_dataset,
    is_text,
    refuse_other_rows,
)

if TYPE_CHECKING:
    from keras_bert.checkpoints import Checkpoint
    from keras_bert.export import ExportOptions


class Task(ObjectiveModel):
    """An encoder, a head, and a preprocessor that makes the model's features of text.

    Subclasses build the functional model and hand it over with its `backbone`; class attributes
    say what else they are. Wherever Keras' own methods take arrays of ids, this class also takes
    text, as one of its `input_kinds`.
    """

    # What the task takes besides features
    input_kinds: ClassVar[tuple[type[Rows], ...]] = (TextRows, TextDataset)
    # Arguments of the class besides the encoder, the preprocessor and the name, and those of them
    # that a preset keeps too
    options: ClassVar[tuple[str, ...]] = ()
    preset_options: ClassVar[tuple[str, ...]] = ()
    # Arguments of the preprocessor besides the tokenizer
    preprocessor_options: ClassVar[tuple[str, ...]] = ("sequence_length",)
    # The longest row in tokens where nothing says one; `None` for the encoder's maximum
    default_sequence_length: ClassVar[int | None] = None
    # Of the head whose classes are the task's, as checkpoints know it
    head_name: ClassVar[str] = ""
    # Whether an export can take two texts
    serves_pairs: ClassVar[bool] = False
    # Whether there is one answer for each text or pair, so that offsets of tokens are not needed
    answers_whole_texts: ClassVar[bool] = False
    # What an export without text calls the output, where there is one
    output_name: ClassVar[str] = "logits"
    # Whether a preset without a vocabulary can be loaded
    needs_vocabulary: ClassVar[bool] = True
    # Whether an encoder's pooler that a checkpoint lacks is worth a warning
    warns_of_fresh_pooler: ClassVar[bool] = False

    def __init__(
        self, *args: Any, backbone: Backbone, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, backbone=backbone, **kwargs)
        if preprocessor is not None:
            check_preprocessor(preprocessor, backbone.config)
        # A config becomes a preprocessor when one is asked for: ids need no TensorFlow.
        is_config = isinstance(preprocessor, dict)
        self._preprocessor = None if is_config else preprocessor
        self._preprocessor_config: dict[str, Any] | None = preprocessor if is_config else None

    # === Parts ===

    @property
    def config(self) -> BertConfig:
        """The encoder's `BertConfig`."""
        return self.backbone.config

    @property
    def heads(self) -> dict[str, Any]:
        """The task's heads, layers or tuples of them, by the names that checkpoints know."""
        return {}

    @staticmethod
    def preprocessor_from_config(config: dict[str, Any]) -> Any:
        """The preprocessor of a config; tasks that have another kind override this."""
        from keras_bert.data.text_batches import TextClassifierPreprocessor

        return TextClassifierPreprocessor.from_config(config)

    @property
    def preprocessor(self) -> Any:
        """Text to features.

        Raises:
            ValueError: If the task was made without one.
        """
        if self._preprocessor is None and self._preprocessor_config is not None:
            self._preprocessor = self.preprocessor_from_config(self._preprocessor_config)
        if self._preprocessor is None:
            raise ValueError(
                f"This {type(self).__name__} has no preprocessor, so it takes token ids and no "
                "text. Give it one (`preprocessor=`), or load it with `from_preset` from a "
                "checkpoint that has a vocabulary."
            )
        return self._preprocessor

    @property
    def tokenizer_config(self) -> dict[str, Any] | None:
        """The config of the preprocessor's tokenizer; `None` without a preprocessor."""
        if self._preprocessor is not None:
            config: dict[str, Any] = self._preprocessor.tokenizer.get_config()
            return config
        return (self._preprocessor_config or {}).get("tokenizer")

    # === Training, evaluation, prediction ===

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        length_window: int | None = None,
        initial_batch: int = 0,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """`keras.Model.fit`, which also takes text.

        Text is tokenized in a `tf.data` pipeline and batched by length, so that short texts do
        not pay for long ones.

        Args:
            x: Text: a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict of
                `text` and `text_pair`, or a `tf.data.Dataset` of `(text, label)`, where an
                unbatched one is batched by length. Or features, as `keras.Model.fit` takes them.
            y: Labels, one for each row of `x`.
            batch_size: Rows in a batch (32), for everything but batched datasets.
            validation_split: Share of the rows at the end that is held out.
            validation_data: `(x, y)` or `(x, y, sample_weight)` or a dataset, text or features.
            shuffle: Whether rows in memory are shuffled in each epoch.
            length_window: How many batches of text are sorted by length among themselves. 1 makes
                batches of rows as they come: more padding, but each batch is like all data. By
                default 64, or a sixteenth of an epoch where that is less: in an epoch of a few
                windows long and short rows never meet in a batch, and less is learned.
            initial_batch: Batches of text, or of a `tf.data.Dataset`, that are passed over: with
                `initial_epoch`, training goes on in the middle of the one epoch that is left.
            epochs, verbose, callbacks, class_weight, sample_weight, **kwargs: As in Keras.

        Returns:
            Keras' history of losses and metrics.
        """
        if length_window is not None and length_window < 1:
            raise ValueError(f"length_window is {length_window}; it must be at least 1.")
        num_epochs = epochs - kwargs.get("initial_epoch", 0)
        batching = Batching(
            batch_size,
            self._compiles_each_shape(),
            shuffle,
            # One epoch has one order, whether or not Keras looks at a batch before it.
            reshuffle=num_epochs != 1,
            training=True,
            length_window=length_window,
            class_weight=class_weight if self.weighs_classes else None,
        )
        held_out = None
        rows = self._read(x, y, sample_weight, batching)
        if class_weight and rows is not None and not self.weighs_classes:
            raise ValueError(
                f"class_weight is {class_weight}, but the labels of this {type(self).__name__} are "
                "no class ids. Give sample_weight instead."
            )
        # Those of datasets and generators of features are left to Keras.
        class_weight_is_applied = self.weighs_classes and (
            rows is not None or (y is not None and self._loss_takes_ids())
        )
        if not class_weight_is_applied:
            batching = dataclasses.replace(batching, class_weight=None)
        if rows is not None and validation_split and rows.in_memory:
            rows, held_out = rows.split(validation_split)
            validation_split = 0.0
        x, y, sample_weight = self._model_data(rows, x, y, sample_weight, batching)
        if initial_batch:
            x = _without_first(x, initial_batch, num_epochs)
        validation_batch_size = kwargs.get("validation_batch_size") or batch_size
        if held_out is None:
            validation = self._validation_data(validation_data, validation_batch_size)
        else:
            validation = self._batches(held_out, self._batching(validation_batch_size))
        return super().fit(
            x,
            y,
            batch_size=None if rows is not None else batch_size,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            validation_data=validation,
            # Datasets and generators have their own order, and Keras warns of being asked.
            shuffle=shuffle and not (is_dataset(x) or isinstance(x, Iterator)),
            class_weight=None if class_weight_is_applied else class_weight,
            sample_weight=sample_weight,
            **kwargs,
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """`keras.Model.evaluate`, which also takes text in the forms of `fit`.

        Losses and metrics are those of all rows or tokens, whatever the batches.
        """
        batching = self._batching(batch_size)
        rows = self._read(x, y, sample_weight, batching)
        x, y, sample_weight = self._model_data(rows, x, y, sample_weight, batching)
        return super().evaluate(
            x,
            y,
            batch_size=None if rows is not None else batch_size,
            verbose=verbose,
            sample_weight=sample_weight,
            **kwargs,
        )

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: int | str = "auto", **kwargs: Any
    ) -> Any:
        """What the model computes, float32, in the order of the input; also takes text.

        The shapes are the class's. Where they depend on the input, as a tagger's on the words of
        each sentence, the outputs for text are nested like the input.

        Args:
            x: Text in the forms of `fit`, or features. Labels in a dataset are passed over, as in
                Keras.
            batch_size: Rows in a batch (32).
            verbose: As in Keras.
            **kwargs: As in Keras.
        """
        kind = self._kind_of(x)
        if kind is None:
            self._check_ids(x)
            return super().predict(
                checked_generator(x), batch_size=batch_size, verbose=verbose, **kwargs
            )
        return self._predict_rows(kind.read(x), batch_size, verbose, **kwargs)

    def _predict_rows(
        self, rows: Rows, batch_size: int | None, verbose: int | str, **kwargs: Any
    ) -> Any:
        batches, restore = rows.numbered_batches(self.preprocessor, self._batching(batch_size))
        if not rows.outputs_are_joined:
            return restore(self._outputs_of_batches(batches, verbose), self.output_shape)
        from tensorflow.data.experimental import assert_cardinality

        # Tokenized twice, which is a hundredth of the model's work: handed to Keras as one
        # dataset, batches of all lengths share one trace.
        order = [index for _, index in batches.as_numpy_iterator()]
        if not order:
            return restore([], self.output_shape)
        features = batches.map(lambda features, index: (features,))
        # A dataset of unknown length is counted now, and gets its progress bar.
        features = features.apply(assert_cardinality(len(order)))
        outputs = super().predict(features, verbose=verbose, **kwargs)
        return restore([(None, np.concatenate(order), outputs)], self.output_shape)

    def _outputs_of_batches(
        self, batches: Any, verbose: int | str, model: keras.Model | None = None
    ) -> Iterator[BatchOutputs]:
        """Outputs batch by batch: `predict` would join those of several lengths.

        Args:
            batches: A dataset of `(features, rest)`.
            verbose: Whether a progress bar is shown.
            model: Whose outputs; `None` takes the task's own.

        Yields:
            The features of a batch, the rest of it, and the outputs, NumPy arrays all.
        """
        progress = keras.utils.Progbar(int(batches.cardinality()), verbose=int(verbose != 0))
        compiles = self._compiles_each_shape()
        predict = (model or self).predict_on_batch
        for features, rest in batches.as_numpy_iterator():
            num_rows = len(features["token_ids"])
            outputs = predict(_filled_up(features) if compiles else features)
            yield (
                features,
                rest,
                keras.tree.map_structure(
                    lambda x, num_rows=num_rows: keras.ops.convert_to_numpy(x)[:num_rows], outputs
                ),
            )
            progress.add(1)

    def _kind_of(self, x: Any) -> type[Rows] | None:
        """What kind of text `x` is; `None` for features."""
        return next((kind for kind in self.input_kinds if kind.matches(x)), None)

    def _read(self, x: Any, y: Any, sample_weight: Any, batching: Batching) -> Rows | None:
        """Text with its labels and weights; `None` for features."""
        kind = self._kind_of(x)
        return None if kind is None else kind.read(x, y, sample_weight, self._label_rules(batching))

    def _batches(self, rows: Rows, batching: Batching) -> Any:
        """A dataset of features, labels and weights, for Keras."""
        return rows.batches(self.preprocessor, batching)

    def _model_data(
        self, rows: Rows | None, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        """The arguments for Keras: text becomes a dataset, which has labels and weights in it.

        Args:
            rows: What `_read` made of the rest.
            x, y, sample_weight, batching: As for `_read`.
        """
        if rows is None:
            return self._checked_features(x, y, sample_weight, batching)
        return self._batches(rows, batching), None, None

    def _validation_data(self, data: Any, batch_size: int | None) -> Any:
        """Validation data as Keras takes them: text becomes a dataset."""
        batching = self._batching(batch_size)
        if data is None:
            return None
        x, y, sample_weight = data, None, None
        kind = self._kind_of(data)
        if kind is not None and kind.has_own_labels:
            pass
        elif isinstance(data, (tuple, list)) and len(data) in (2, 3):
            x, y, sample_weight = (*data, None)[:3]
        elif isinstance(data, (tuple, list, str, bytes, Mapping, np.ndarray)):
            length = f" of {len(data)}" if isinstance(data, (tuple, list)) else ""
            raise ValueError(
                "validation_data must be (x, y), (x, y, sample_weight) or a dataset; received "
                f"a {type(data).__name__}{length}."
            )
        rows = self._read(x, y, sample_weight, batching)
        parts = self._model_data(rows, x, y, sample_weight, batching)
        # Without labels and weights `x` is a dataset, which has its own.
        return parts[0] if parts[1] is None else tuple(p for p in parts if p is not None)

    def _batching(self, batch_size: int | None) -> Batching:
        """How rows become batches that are only read."""
        return Batching(batch_size, self._compiles_each_shape())

    def _compiles_each_shape(self) -> bool:
        """Whether a batch of a new length costs seconds of compilation."""
        return keras.backend.backend() == "jax" or bool(self.jit_compile)

    # === Labels and features ===

    def _label_rules(self, batching: Batching) -> LabelRules:
        """Which labels the rows of text may have; tasks with classes override this."""
        return LabelRules(class_weight=batching.class_weight)

    def _num_targets(self, x: Any) -> Mapping[str, int]:
        """How many ids each output's targets may be, for outputs whose targets are ids.

        Args:
            x: Features.
        """
        return {}

    def _checked_features(
        self, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        """Features with labels and weights as Keras takes them, which were checked."""
        self._check_ids(x)
        self._check_targets(x, y, sample_weight, batching)
        if y is not None and batching.class_weight:
            sample_weight = class_weights_of(as_array(y), batching.class_weight, sample_weight)
        return checked_generator(x), y, sample_weight

    def _check_ids(self, x: Any) -> None:
        """Checks arrays of ids, which Keras hands over as tensors, past the check in `__call__`.

        Raises:
            ValueError: If an id is out of range, `x` holds rows that are no features, or text in
                a form that the task does not take.
        """
        forms = self._input_forms()
        refuse_other_rows(x, forms)
        if is_text(x):
            raise ValueError(
                f"A {type(self).__name__} takes {forms}, or features; received "
                f"{type(x).__name__} of other text."
            )
        inputs = x if isinstance(x, dict) else {"token_ids": x}
        check_ids("token_ids", inputs.get("token_ids"), self.config.vocabulary_size)
        if self.config.num_segments:
            check_ids("segment_ids", inputs.get("segment_ids"), self.config.num_segments)

    @classmethod
    def _input_forms(cls) -> str:
        return ", or ".join(dict.fromkeys(kind.forms for kind in cls.input_kinds)) or "ids"

    def _check_targets(self, x: Any, y: Any, sample_weight: Any, batching: Batching) -> None:
        """Checks targets that came with arrays of ids: JAX is silent where they fit no loss."""
        if y is None:
            return
        lowest = -1 if batching.allow_unlabelled else 0
        for name, num_ids in self._num_targets(x).items():
            if self._loss_takes_ids(name):
                target, weight = (
                    part.get(name) if isinstance(part, Mapping) else part
                    for part in (y, sample_weight)
                )
                if target is not None:
                    target, weight = as_array(target), as_array(weight)
                    checked_ids(target, num_ids, lowest=lowest, weights=weight, name=name)

    # === Presets, export, configuration ===

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        num_classes: int | None = None,
        *,
        load_weights: bool = True,
        encoder_dropout: float | None = None,
        packed: bool = False,
        dtype: str | keras.DTypePolicy | None = None,
        **options: Any,
    ) -> Self:
        """The task on a pretrained encoder, with the checkpoint's vocabulary and heads.

        A head is loaded where the checkpoint has one of the same kind and shape; otherwise it
        starts fresh, and a warning says so.

        Args:
            preset: A folder (our own preset, Hugging Face's layout, also as sentence-transformers
                extends it, the TF1 release's, told by its files), `hf://organisation/model`, or a
                name that KerasHub knows.
            num_classes: Width of a classifier's output; `None` takes that of `class_names` or of
                the checkpoint's head.
            load_weights: `False` gives the architecture with fresh weights.
            encoder_dropout: Both of the encoder's rates, after its sublayers and on the attention
                probabilities; `None` takes the checkpoint's.
            packed: Whether the encoder also takes packed rows.
            dtype: A Keras dtype policy or its name.
            **options: Arguments of the class, such as `class_names` and `dropout`, and of its
                preprocessor, such as `sequence_length` (the longest row in tokens). What is `None`
                or left out is as in the preset, or else as in the class; `sequence_length` is
                otherwise the encoder's maximum, or 384 of a question answerer.

                `class_names` are the checkpoint's with its head. The same names in another order
                rearrange the head's outputs; other names rename them, of which a warning tells.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do
                not fit; the message names the file and the tensor.
            ValueError: If the number of classes is not known, or an option is none of the class's.

        Example:

        ```python
        classifier = TextClassifier.from_preset("hf://google-bert/bert-base-uncased", num_classes=2)
        tagger = TokenClassifier.from_preset("runs/tagger", sequence_length=256)
        ```
        """
        from keras_bert import checkpoints

        task: Self
        task, load = task_of_preset(
            cls,
            checkpoints.open_checkpoint(preset, weights=load_weights),
            load_weights=load_weights,
            encoder_dropout=encoder_dropout,
            packed=packed,
            dtype=dtype,
            num_classes=num_classes,
            **options,
        )
        load()
        return task

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        """What a checkpoint says of the task besides weights: `preset_options`, the preprocessor's.

        Args:
            checkpoint: A `keras_bert.checkpoints.Checkpoint`.
        """
        return checkpoint.task or {}

    def save_to_preset(self, folder: str | os.PathLike[str]) -> None:
        """Writes architecture, weights, vocabulary and heads to a folder `from_preset` reads."""
        self._save_encoder(self.backbone, self.heads, folder, self.preset_options)

    def _save_encoder(
        self,
        backbone: Backbone,
        heads: dict[str, Any],
        folder: str | os.PathLike[str],
        preset_options: Iterable[str],
    ) -> None:
        """A preset of an encoder with heads, and with the task's vocabulary and options."""
        from keras_bert import checkpoints

        preprocessor = self.preprocessor.get_config()
        checkpoints.save_preset(
            backbone,
            folder,
            heads=heads,
            tokenizer=preprocessor["tokenizer"],
            class_names=getattr(self, "class_names", None),
            task={
                **{name: preprocessor[name] for name in self.preprocessor_options},
                **{name: getattr(self, name) for name in preset_options},
            },
        )

    def export(
        self, filepath: str | os.PathLike[str], format: str = "tf_saved_model", **options: Any
    ) -> None:
        """Writes a model for serving: by default a SavedModel that takes text.

        Args:
            filepath: Where to: for TensorFlow Serving a folder named by a number, the version.
            format: `tf_saved_model`, `onnx`, `openvino` or `litert`.
            **options: `class_names`, `dtype`, `overwrite` and others: see
                `keras_bert.export.export_task`.
        """
        from keras_bert import export

        if type(self).serving_signatures is Task.serving_signatures:
            raise export.ExportError(f"A {type(self).__name__} is for training, not for serving.")
        export.export_task(self, filepath, format, **options)

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        """The functions of a SavedModel of the task, by signature; on the TensorFlow backend.

        Args:
            options: What the SavedModel shall be.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        preprocessor = self._preprocessor_config
        if self._preprocessor is not None:
            preprocessor = self._preprocessor.get_config()
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "preprocessor": preprocessor,
            "name": self.name,
            "trainable": self.trainable,
            **self._layer_states(),
            **{name: _plain(getattr(self, name)) for name in self.options},
        }

    @property
    def _parts_with_states(self) -> tuple[keras.Model, ...]:
        """The models in the task that keep the states of their layers themselves."""
        return (self.backbone,)

    def _layer_states(self) -> dict[str, Any]:
        """The field of the config that says what was done to the task's own layers, if it was."""
        states = layer_states(self, self._parts_with_states)
        return {"layer_states": states} if states else {}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        trainable = config.pop("trainable", True)
        states = config.pop("layer_states", {})
        config["backbone"] = keras.saving.deserialize_keras_object(
            config["backbone"], custom_objects=custom_objects
        )
        task = cls(**config)
        restore_layer_states(task, states, task._parts_with_states)
        if not trainable:  # True would thaw what is frozen inside
            task.trainable = False
        return task


def as_array(values: Any) -> Any:
    """Values of any backend, or of pandas, as an array of NumPy."""
    if keras.ops.is_tensor(values):
        return keras.ops.convert_to_numpy(values)
    return None if values is None else np.asarray(values)


def second_axis(x: Any) -> int | None:
    """The size of axis 1 of features: positions of a row, or choices; `None` if unknown."""
    shape: Any = getattr(x.get("token_ids") if isinstance(x, dict) else x, "shape", ())
    return int(shape[1]) if len(shape) > 1 else None


def _plain(value: Any) -> Any:
    """A value of a config as JSON has it."""
    if isinstance(value, BertConfig):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def _filled_up(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Features with rows repeated up to a power of two: few sizes for a compiler to meet."""
    num_rows = 1 << (len(features["token_ids"]) - 1).bit_length()
    return {name: np.resize(x, (num_rows, *x.shape[1:])) for name, x in features.items()}


def _without_first(batches: Any, count: int, epochs: int) -> Any:
    """Batches from one on, for one epoch."""
    if count < 0 or epochs != 1 or not is_dataset(batches):
        raise ValueError(
            f"initial_batch is {count}, with {epochs} epochs of {type(batches).__name__}; expected "
            "0 or more, with one epoch, of text or of a tf.data.Dataset."
        )
    return batches.skip(count)
