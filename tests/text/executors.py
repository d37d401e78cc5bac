# SPDX-License-Identifier: Apache-2.0
"""Runs a tokenizer in Python or as graph operations, with lists as results."""

import tensorflow as tf

EXECUTORS = ("python", "graph")


class GraphTokenizer:
    """A tokenizer that receives its texts as tensors.

    Args:
        tokenizer: The tokenizer.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def __call__(self, text):
        return as_lists(self.tokenizer(as_tensor(text)))

    def tokenize_with_offsets(self, text):
        return tuple(map(as_lists, self.tokenizer.tokenize_with_offsets(as_tensor(text))))

    def tokenize_words(self, words):
        return as_lists(self.tokenizer.tokenize_words(as_tensor(words)))

    def detokenize(self, ids, *options):
        texts = self.tokenizer.detokenize(tf.ragged.constant(ids, tf.int32), *options).numpy()
        return texts.decode() if isinstance(texts, bytes) else [text.decode() for text in texts]


def select_executor(tokenizer, executor):
    """Returns a tokenizer that runs with one of the `EXECUTORS`."""
    return GraphTokenizer(tokenizer) if executor == "graph" else tokenizer


def as_tensor(text):
    """Returns a string tensor, which is ragged if the rows differ in length."""
    try:
        return tf.constant(text, tf.string)
    except ValueError:
        return tf.ragged.constant(text, tf.string)


def as_lists(ids):
    """Converts tensors to lists."""
    return ids.to_list() if isinstance(ids, tf.RaggedTensor) else ids.numpy().tolist()
