# SPDX-License-Identifier: Apache-2.0
"""Benchmarks the tokenizers of keras_bert, KerasHub and the Rust library `tokenizers`.

All tokenizers use the same vocabulary, texts and number of threads. The graph tokenizers of
keras_bert and KerasHub run in `tf.data.Dataset.map`, the Rust tokenizer in its `encode_batch_fast`.
keras_bert's Python tokenizer uses one thread. It is measured with a new tokenizer in each round
(first pass), and with a tokenizer that has already seen the texts (cached).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence

import keras_hub
import tensorflow as tf
import tokenizers

from keras_bert.text import WordPieceTokenizer

from .subject import Function
from .workload import Workload

Batches = Sequence[Sequence[str]]


def tokenizer_subjects(workload: Workload) -> list[Function]:
    """Returns the tokenizers. Each tokenizes `steps` batches of texts."""
    # The Rust library reads these variables once per process.
    os.environ["RAYON_NUM_THREADS"] = str(workload.clients)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    requests = itertools.cycle(workload.requests())
    batches = list(itertools.islice(requests, workload.steps))
    words = workload.words()
    tokenizer_with_cache = WordPieceTokenizer(words)
    hub = keras_hub.tokenizers.BertTokenizer(vocabulary=words, lowercase=True)
    calls = {
        "keras_bert, first pass": lambda: _in_python(WordPieceTokenizer(words), batches),
        "keras_bert, cached": lambda: _in_python(tokenizer_with_cache, batches),
        "keras_bert's graph": _in_graph(WordPieceTokenizer(words), batches, workload.clients),
        "KerasHub's graph": _in_graph(hub, batches, workload.clients),
        "Rust tokenizers": _rust(words, batches),
    }
    return [Function(name, call, workload.steps) for name, call in calls.items()]


def _in_python(tokenizer: WordPieceTokenizer, batches: Batches) -> int:
    return sum(len(tokenizer.flat_ids(batch)[0]) for batch in batches)


def _in_graph(
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor], batches: Batches, threads: int
) -> Callable[[], int]:
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(batches))
    dataset = dataset.map(lambda batch: tokenize(batch).flat_values, num_parallel_calls=threads)
    return lambda: sum(int(tf.size(ids)) for ids in dataset)


def _rust(words: Sequence[str], batches: Batches) -> Callable[[], int]:
    ids = {token: index for index, token in enumerate(words)}
    model = tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return lambda: sum(
        len(encoding.ids)
        for batch in batches
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False)
    )
