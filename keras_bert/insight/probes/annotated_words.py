# SPDX-License-Identifier: Apache-2.0
"""Words in treebanks with their hidden states, parts of speech and dependency trees."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.data.batch_options import BatchOptions
from keras_bert.insight.hidden_states import as_float32
from keras_bert.models.backbone import Backbone
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.tasks.masked_lm import token_batches

POOLINGS = ("mean", "first")
# Columns of CoNLL-U files
_UPOS, _HEAD, _RELATION = 3, 6, 7
_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class AnnotatedWords:
    """The words in a treebank, sentence by sentence, with a frozen encoder's hidden states.

    Attributes:
        features: Hidden states of each word in every layer, float32 `(words, layers + 1, hidden)`.
            The first entry is for the embeddings.
        splits: Index of the first word in each sentence, and the number of words, int64 `(sentences
            + 1,)`.
        words: The words.
        upos: Their universal parts of speech.
        relations: Their relations to their heads, without subtypes. For example, `nsubj` for
            `nsubj:pass`.
        heads: Index of each word's head in its sentence, -1 for the root, int64 `(words,)`.
        num_skipped: Number of sentences longer than the maximum sequence length.
    """

    features: np.ndarray
    splits: np.ndarray
    words: tuple[str, ...]
    upos: tuple[str, ...]
    relations: tuple[str, ...]
    heads: np.ndarray
    num_skipped: int

    def __len__(self) -> int:
        """Returns the number of sentences."""
        return len(self.splits) - 1

    def sentence(self, index: int) -> slice:
        """Returns the indices of the words in a sentence."""
        return slice(int(self.splits[index]), int(self.splits[index + 1]))


def annotated_words(
    backbone: Backbone,
    preprocessor: Any,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    pooling: str = "mean",
    max_sentences: int | None = None,
    verbose: int | str = 0,
) -> AnnotatedWords:
    """Reads CoNLL-U files and computes the hidden states of their words.

    A word with multiple tokens is represented by their mean or by the first token, depending on
    `pooling`. Of all files together, only the first `max_sentences` sentences are used. Sentences
    longer than the maximum sequence length are skipped. Error messages contain the file.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}. Received: {pooling!r}")
    checks.POSITIVE_INT.check_optional(max_sentences=max_sentences)
    sentences = _read(files)[:max_sentences]
    tokenizer = preprocessor.tokenizer
    pieces = tokenizer.tokenize_words([words for words, *_ in sentences])
    rows, starts, short_sentences = [], [], []
    for sentence, ids in zip(sentences, pieces, strict=True):
        # A word without tokens, such as a control character, becomes [UNK].
        ids_by_word = [word_ids or [tokenizer.unk_token_id] for word_ids in ids]
        row = [tokenizer.cls_token_id, *itertools.chain(*ids_by_word), tokenizer.sep_token_id]
        if len(row) <= preprocessor.sequence_length:
            rows.append(row)
            starts.append(1 + np.cumsum([0, *map(len, ids_by_word)]))
            short_sentences.append(sentence)
    if not short_sentences:
        raise ValueError(
            f"At least one sentence must have at most {preprocessor.sequence_length} tokens. "
            f"Received: {len(sentences)} longer sentences"
        )
    compiles = compiles_each_shape()
    options = BatchOptions(_BATCH_SIZE, compiles=compiles, training=compiles)
    batches = token_batches(rows, preprocessor, options)
    splits = np.cumsum([0, *(len(words) for words, *_ in short_sentences)])
    encoder = backbone.with_hidden_states()
    config = backbone.config
    features = np.empty((int(splits[-1]), config.num_layers + 1, config.hidden_dim), "float32")
    progress = keras.utils.Progbar(batches.num_batches, verbose=int(verbose != 0))
    for inputs, rest in batches:
        states = np.stack(as_float32(encoder.predict_on_batch(inputs)["hidden_states"]), axis=2)
        # In a padded batch, the last rows are repetitions.
        for index, row_states in zip(rest.tolist(), states, strict=False):
            begins = starts[index]
            if pooling == "first":
                pooled = row_states[begins[:-1]]
            else:
                sums = np.add.reduceat(row_states[: begins[-1]], begins[:-1], axis=0)
                pooled = sums / np.diff(begins)[:, np.newaxis, np.newaxis]
            features[splits[index] : splits[index + 1]] = pooled
        progress.add(1)
    return AnnotatedWords(
        features=features,
        splits=splits,
        words=tuple(word for words, *_ in short_sentences for word in words),
        upos=tuple(label for _, upos, _, _ in short_sentences for label in upos),
        relations=tuple(label for _, _, relations, _ in short_sentences for label in relations),
        heads=np.array([head for *_, heads in short_sentences for head in heads]),
        num_skipped=len(sentences) - len(short_sentences),
    )


_Sentence = tuple[list[str], list[str], list[str], list[int]]


def as_paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Converts one or more paths to a list of strings."""
    paths = [files] if isinstance(files, (str, os.PathLike)) else files
    return [os.fspath(path) for path in paths]


def _read(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[_Sentence]:
    from keras_bert.data import read_conll

    paths = as_paths(files)
    sentences: list[_Sentence] = []
    for path in paths:
        columns = [
            read_conll(path, word_column=1, label_column=column, separator="tab", comments=True)
            for column in (_UPOS, _HEAD, _RELATION)
        ]
        labels = [column.labels for column in columns if column.labels is not None]
        for number, (words, upos, numbers, relations) in enumerate(
            zip(columns[0].words, *labels, strict=True)
        ):
            try:
                heads = [int(head) - 1 for head in numbers]
                depths(heads)
            except ValueError as error:
                raise ValueError(
                    f"{path}, sentence {number} ({' '.join(words)[:60]!r}): {error}"
                ) from error
            bases = [relation.partition(":")[0] for relation in relations]
            sentences.append((words, upos, bases, heads))
    return sentences


def depths(heads: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the number of edges between each word and the root (head -1), `(words,)`."""
    edge_counts = []
    for word in range(len(heads)):
        depth = 0
        while heads[word] != -1:
            word = heads[word]
            depth += 1
            if not 0 <= word < len(heads) or depth > len(heads):
                raise ValueError(f"the heads must form a tree. Received: {[h + 1 for h in heads]}")
        edge_counts.append(depth)
    if edge_counts.count(0) != 1:
        raise ValueError(f"there must be one root. Received: {edge_counts.count(0)}")
    return np.array(edge_counts)


def distances(heads: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the number of edges between all words in a tree, int64 `(words, words)`."""
    from scipy.sparse.csgraph import shortest_path

    edges = np.zeros((len(heads), len(heads)))
    words = np.flatnonzero(np.asarray(heads) >= 0)
    edges[words, np.asarray(heads)[words]] = 1
    return np.asarray(shortest_path(edges, directed=False, unweighted=True), "int64")
