# SPDX-License-Identifier: Apache-2.0
"""Static embeddings: one vector per token, so that a text is embedded without an encoder."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from keras_bert import checks
from keras_bert.checkpoints import CheckpointError, hub
from keras_bert.checkpoints.config_fields import check_needed
from keras_bert.checkpoints.directories import checkpoint_errors, read_json, replaced_files
from keras_bert.checkpoints.sentence_transformers import (
    MODULES_FILE,
    PROMPTS_FILE,
    listed_modules,
    read_prompts,
    write_modules,
)
from keras_bert.checkpoints.tensors import open_safetensors, write_safetensors
from keras_bert.data.adapters.texts import single_texts
from keras_bert.data.arrays import unit_rows
from keras_bert.data.columns import materialize
from keras_bert.progress import bar
from keras_bert.text.json_tokenizer import (
    JsonTokenizer,
    tokenizer_from_json,
    unknown_token_id,
    without_tokens,
)
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.files import read_text, write_json
from keras_bert.vocabularies.tokenizer_json import TOKENIZER_FILE
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer

Array = np.ndarray[Any, Any]

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_MODEL_TYPE = "model2vec"
_STATIC, _NORMALIZE = "StaticEmbedding", "Normalize"
# model2vec truncates texts to this length if the config has none.
_MAX_LENGTH = 512
# `distill` keeps at most this number of dimensions by default.
_DIMENSIONS = 256
# Like model2vec, `distill` has no vectors for BERT's unused tokens.
_UNUSED = re.compile(r"\[unused\d+\]")
# Texts that `embed` gathers vectors for at a time, and tokens that `distill` encodes at a time
_TEXTS_AT_A_TIME, _TOKENS_AT_A_TIME = 1024, 4096


class StaticEmbedder:
    """Embeds a text as the mean of its tokens' vectors (Model2Vec).

    ```python
    embedder = keras_bert.TextEmbedder.from_preset("minilm")
    static = keras_bert.StaticEmbedder.distill(embedder)   # a minute on a CPU
    vectors = static.embed(["a gripping film", "a moving film"])  # (2, 256)
    static.save_to_preset("static")
    ```

    Static embeddings ignore the order and context of words. They are less accurate than the
    encoder's, but hundreds of times faster on a CPU. Only NumPy and the `tokenizers` library
    compute them. `SearchIndex` accepts a `StaticEmbedder` as its embedder.

    `distill` computes the vectors from an encoder, and `from_preset` reads them from a directory in
    the format of model2vec.

    Args:
        tokenizer: The content of a `tokenizer.json`.
        vectors: The vector of each token in the tokenizer's vocabulary, float `(vocabulary,
            dimensions)`.
        normalize: Whether to scale embeddings to unit L2 norm, so that dot products are cosine
            similarities.
        max_length: Maximum number of tokens per text. Longer texts are truncated. `None` reads
            whole texts. Unlike here, model2vec also truncates texts with fewer tokens if they have
            many characters.
        sequence_length: Maximum number of tokens in the passages of a `SearchIndex`. They have at
            most `max_length` tokens.

    Raises:
        ImportError: If the `tokenizers` library is not installed.
        ValueError: If the tokenizer cannot be read, or if its vocabulary and the vectors have
            different sizes.

    Reference:
        [Model2Vec](https://github.com/MinishLab/model2vec), version 0.10.
    """

    def __init__(
        self,
        tokenizer: str,
        vectors: Array,
        *,
        normalize: bool = True,
        max_length: int | None = None,
        sequence_length: int = 256,
    ) -> None:
        checks.POSITIVE_INT.check_optional(max_length=max_length, sequence_length=sequence_length)
        self._tokenizer_json = tokenizer
        self.tokenizer = tokenizer_from_json(tokenizer)
        self.vectors = np.array(vectors, "float32")
        size = len(self.tokenizer.vocabulary)
        if self.vectors.ndim != 2 or len(self.vectors) != size:
            raise ValueError(
                f"vectors must have one row for each of the {size} tokens in the vocabulary. "
                f"Received: shape {self.vectors.shape}"
            )
        self.normalize = normalize
        self.max_length = max_length
        passage_length = min(sequence_length, max_length or sequence_length)
        self.preprocessor = _Passages(self.tokenizer, passage_length)
        self._unk_token_id = unknown_token_id(tokenizer)
        if self._unk_token_id is not None:
            # Unlike model2vec, sentence-transformers includes unknown tokens in the mean.
            self.vectors[self._unk_token_id] = 0
        # Long texts are cut before they are tokenized. This is enough for the longest tokens, each
        # after a space.
        longest = 1 + max(map(len, self.tokenizer.vocabulary))
        self._max_characters = max_length and max_length * longest

    @classmethod
    def distill(
        cls,
        embedder: Any,
        dimensions: int | None = None,
        *,
        sif_coefficient: float | None = 1e-4,
        batch_size: int = 256,
        verbose: int = 0,
        sequence_length: int = 256,
    ) -> Self:
        """Distills an encoder to one vector per token, as model2vec does.

        A token's vector is the encoder's mean output for `[CLS] token [SEP]`. A principal component
        analysis (PCA) removes the mean over all tokens and orders the dimensions by their variance.
        Frequent tokens get small weights (SIF). The frequencies are estimated from the tokens'
        order in the vocabulary by Zipf's law, so no text is needed.

        Args:
            embedder: A `TextEmbedder`, or another task with a preprocessor. Its prompts, pooling
                and maximum length are not used.
            dimensions: Number of dimensions to keep. Defaults to 256, or all dimensions of the
                encoder if it has fewer.
            sif_coefficient: The weight of a token is `a / (a + p)`, where `a` is this coefficient
                and `p` is the token's probability. `None` weights all tokens equally.
            batch_size: Number of tokens per batch of the encoder.
            verbose: 0 or 1. With 1, it shows a progress bar.
            sequence_length: See the class.

        Returns:
            A `StaticEmbedder`.

        Raises:
            ImportError: If the `tokenizers` library is not installed.
            ValueError: If `dimensions` is larger than the encoder's hidden dimension or not smaller
                than the vocabulary, if `sif_coefficient` is not between 0 and 1, or if a
                `tokenizer.json` cannot represent the tokenizer.

        Reference:
            [A simple but tough-to-beat baseline for sentence embeddings](
            https://openreview.net/forum?id=SyK00v5xx), SIF weights.
        """
        checks.NumberRange(above=0, below=1).check_optional(sif_coefficient=sif_coefficient)
        tokenizer = embedder.preprocessor.tokenizer
        kept_tokens = {tokenizer.pad_token, tokenizer.unk_token}
        removed = {*tokenizer.special_tokens(), *tokenizer.added_tokens} - kept_tokens
        removed |= set(filter(_UNUSED.fullmatch, tokenizer.vocabulary))
        with tempfile.TemporaryDirectory() as directory:
            write_tokenizer(Path(directory), tokenizer.get_config(), sequence_length)
            content, ids = without_tokens(read_text(Path(directory) / TOKENIZER_FILE), removed)
        hidden_dim = embedder.backbone.config.hidden_dim
        largest = min(hidden_dim, len(ids) - 1)
        checks.NumberRange(at_least=1, at_most=largest, integer=True).check_optional(
            dimensions=dimensions
        )
        vectors = np.zeros((len(ids), hidden_dim), "float32")
        with bar("tokens", len(ids), " tokens", disable=not verbose) as progress_bar:
            for start in range(0, len(ids), _TOKENS_AT_A_TIME):
                part = ids[start : start + _TOKENS_AT_A_TIME]
                rows = [
                    [token if role is None else role for role in tokenizer.row_format()]
                    for token in part
                ]
                outputs = embedder.backbone.predict(
                    {"token_ids": np.array(rows, "int32")}, batch_size=batch_size, verbose=0
                )
                outputs = np.asarray(outputs["sequence_output"], "float32")
                vectors[start : start + len(part)] = outputs.mean(axis=1)
                progress_bar.update(len(part))
        vectors = _principal_components(vectors, dimensions or min(_DIMENSIONS, largest))
        if sif_coefficient is not None:
            vectors *= _zipf_weights(len(vectors), sif_coefficient)[:, np.newaxis]
        return cls(content, vectors, sequence_length=sequence_length)

    @staticmethod
    def is_preset(preset: str | os.PathLike[str]) -> bool:
        """Returns whether a directory, or a model on the Hub, contains static embeddings."""
        directory = _directory(preset)
        return _is_static(_config(directory), _module_paths(directory))

    @classmethod
    def from_preset(cls, preset: str | os.PathLike[str], *, sequence_length: int = 256) -> Self:
        """Reads a directory that `save_to_preset`, model2vec or sentence-transformers wrote.

        Weights and quantized vocabularies of model2vec are also read. Vectors in float16 or int8
        are converted to float32.

        Args:
            preset: A directory, or `"hf://organization/model"`, for example
                `"hf://minishlab/potion-base-8M"`.
            sequence_length: See the class.

        Returns:
            A `StaticEmbedder`.

        Raises:
            ImportError: If the `tokenizers` library is not installed.
            keras_bert.checkpoints.CheckpointError: If a file is missing or invalid.
        """
        directory = _directory(preset)
        config, paths = _config(directory), _module_paths(directory)
        if not _is_static(config, paths):
            raise CheckpointError(
                f"{directory} must contain static embeddings: a config.json with the model_type "
                f"{_MODEL_TYPE!r}, or a modules.json with the module {_STATIC}. Load other "
                "checkpoints as a TextEmbedder, and distill it."
            )
        _check_options(directory, [*paths])
        files = paths.get(_STATIC, directory)
        is_own = bool(config) and files == directory
        fields = config if is_own else {"normalize": _NORMALIZE in paths}
        with checkpoint_errors():
            tokenizer = read_text(files / TOKENIZER_FILE)
        name = "embeddings" if is_own else "embedding.weight"
        with open_safetensors(files / _WEIGHTS) as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if name not in tensors:
            raise CheckpointError(
                f"{files / _WEIGHTS} must contain {name}. Received: {', '.join(tensors)}"
            )
        vectors = np.asarray(tensors[name], "float32")
        if "mapping" in tensors:  # Each token has the vector of its cluster.
            vectors = vectors[tensors["mapping"]]
        if "weights" in tensors:
            vectors = vectors * np.asarray(tensors["weights"], "float32")[:, np.newaxis]
        with checkpoint_errors(directory):
            return cls(
                tokenizer,
                vectors,
                normalize=bool(fields.get("normalize")),
                max_length=fields.get("max_length", _MAX_LENGTH),
                sequence_length=sequence_length,
            )

    def save_to_preset(self, preset_dir: str | os.PathLike[str]) -> None:
        """Saves the vectors and the tokenizer to a directory in the format of model2vec.

        `model2vec.StaticModel.from_pretrained`, and `SentenceTransformer` with the module
        `StaticEmbedding`, read it too.

        Args:
            preset_dir: Path of the directory. Existing model files are replaced.
        """
        config = {
            "model_type": _MODEL_TYPE,
            "architectures": ["StaticModel"],
            "hidden_dim": self.vectors.shape[1],
            "seq_length": 1_000_000,
            "max_length": self.max_length,
            "normalize": self.normalize,
            "embedding_dtype": "float32",
        }
        modules = {".": _STATIC} | ({"1_Normalize": _NORMALIZE} if self.normalize else {})
        owned = (_CONFIG, _WEIGHTS, MODULES_FILE, TOKENIZER_FILE)
        with replaced_files(preset_dir, owned=owned) as temporary:
            write_safetensors(temporary / _WEIGHTS, {"embeddings": self.vectors})
            (temporary / TOKENIZER_FILE).write_text(self._tokenizer_json, "utf-8")
            write_json(temporary / _CONFIG, config)
            write_modules(
                temporary,
                {path: f"sentence_transformers.models.{name}" for path, name in modules.items()},
            )

    def embed(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> Array:
        """Computes the embeddings of texts.

        Unknown tokens are left out. The embedding of a text without other tokens is 0.

        Args:
            x: A string or a list of strings, in any form that `TextEmbedder.embed` accepts, except
                a `tf.data.Dataset`.
            batch_size: Not used. It exists because `TextEmbedder.embed` has it.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            A float32 array `(texts, dimensions)` in the order of the input. For a single string,
            the array has no first axis.

        Raises:
            ValueError: If `x` contains pairs of texts.

        Example:

        ```python
        vectors = static.embed(["A man eats.", "Someone is having lunch."])
        vectors @ vectors.T    # cosine similarities
        ```
        """
        x = materialize(x)
        texts = single_texts(x)
        embeddings = np.zeros((len(texts), self.vectors.shape[1]), "float32")
        with bar("texts", len(texts), " texts", disable=not verbose) as progress_bar:
            for start in range(0, len(texts), _TEXTS_AT_A_TIME):
                part = texts[start : start + _TEXTS_AT_A_TIME]
                embeddings[start : start + len(part)] = self._means(part)
                progress_bar.update(len(part))
        if self.normalize:
            embeddings = unit_rows(embeddings)
        return embeddings[0] if isinstance(x, str) else embeddings

    def embed_queries(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> Array:
        """Computes the embeddings of queries, the same as for other texts. See `embed`."""
        return self.embed(x, batch_size, verbose)

    def embed_documents(
        self, x: Any, batch_size: int | None = None, verbose: int | str = 0
    ) -> Array:
        """Computes the embeddings of documents, the same as for other texts. See `embed`."""
        return self.embed(x, batch_size, verbose)

    def _means(self, texts: list[str]) -> Array:
        """Returns the mean vector of each text's tokens, `(texts, dimensions)`."""
        ids, lengths = self.tokenizer.flat_ids([text[: self._max_characters] for text in texts])
        stops = np.cumsum(lengths)
        starts = stops - lengths
        if self.max_length is not None:
            stops = np.minimum(stops, starts + self.max_length)
        sums = np.zeros((len(texts), self.vectors.shape[1]), "float32")
        for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            # For long texts, this is 40 times faster than `np.add.reduceat` over all texts.
            np.add.reduce(self.vectors.take(ids[start:stop], axis=0), axis=0, out=sums[row])
        num_known = np.concatenate([[0], np.cumsum(ids != self._unk_token_id)])
        counts = num_known[stops] - num_known[starts]
        means: Array = sums / np.maximum(counts, 1, dtype="float32")[:, np.newaxis]
        return means


class _Passages(NamedTuple):
    """What a `SearchIndex` needs to split documents: a tokenizer and a maximum length."""

    tokenizer: Tokenizer | JsonTokenizer
    sequence_length: int

    def max_tokens(self, num_texts: int) -> int:
        """Returns the number of tokens that fit into a passage. There are no special tokens."""
        return self.sequence_length


def _principal_components(vectors: Array, dimensions: int) -> Array:
    """Returns the coordinates on the axes with the largest variance, `(rows, dimensions)`."""
    centered = vectors - vectors.mean(axis=0)
    # The eigenvalues ascend.
    _, axes = np.linalg.eigh(centered.T @ centered / (len(centered) - 1))
    coordinates: Array = centered @ axes[:, ::-1][:, :dimensions]
    # As in model2vec, the largest coordinate on each axis is positive.
    largest = np.abs(coordinates).argmax(axis=0)
    coordinates *= np.sign(coordinates[largest, np.arange(dimensions)])
    return coordinates


def _zipf_weights(size: int, coefficient: float) -> Array:
    """Returns the SIF weight of each token, if the frequency of the n-th token is `1 / (n + 1)`."""
    frequencies = 1 / np.arange(2, size + 2)
    return np.asarray(coefficient / (coefficient + frequencies / frequencies.sum()), "float32")


def _config(directory: Path) -> dict[str, Any]:
    path = directory / _CONFIG
    return read_json(path) if path.exists() else {}


def _module_paths(directory: Path) -> dict[str, Path]:
    """Returns the directory of each sentence-transformers module by the module's name."""
    path = directory / MODULES_FILE
    return dict(listed_modules(path)) if path.exists() else {}


def _is_static(config: dict[str, Any], paths: dict[str, Path]) -> bool:
    return config.get("model_type") == _MODEL_TYPE or _STATIC in paths


def _check_options(directory: Path, modules: list[str]) -> None:
    """Checks that sentence-transformers would change the embeddings in no other way."""
    if modules[:1] not in ([], [_STATIC]) or modules[1:] not in ([], [_NORMALIZE]):
        raise CheckpointError(
            f"{directory / MODULES_FILE} must contain {_STATIC}, and possibly {_NORMALIZE}. "
            f"Received: {', '.join(modules)}"
        )
    path = directory / PROMPTS_FILE
    fields = read_json(path) if path.exists() else {}
    prompts = read_prompts(fields, path).get("prompts", {})
    with checkpoint_errors(path):
        check_needed(fields, {"truncate_dim": ()})
        if any(prompts.values()):
            raise ValueError(
                f"prompts must be empty, because static embeddings have none. Received: {prompts}"
            )


def _directory(preset: str | os.PathLike[str]) -> Path:
    name = os.fspath(preset)
    return hub.download(name) if name.startswith(hub.SCHEME) else Path(name)
