# SPDX-License-Identifier: Apache-2.0
"""RoBERTa's tokenizer, built with the tokenizers library."""

import tokenizers

from tests.text.executors import GraphTokenizer

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def make_reference(vocabulary, merges, add_prefix_space=False, special_tokens_in_text=False):
    """Returns the library's tokenizer, which adds no special tokens around texts."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), True, add_prefix_space
    )
    if special_tokens_in_text:
        tokenizer.add_special_tokens(
            [tokenizers.AddedToken(token, lstrip=token == "<mask>") for token in SPECIAL]
        )
    return tokenizer


def find_mismatches(texts, tokenizer, expected):
    """Returns texts whose ids or offsets differ from the library's, in Python or in a graph.

    With `add_prefix_space`, the library includes the leading space of a text in the first token's
    offsets. The offsets of such texts are not compared.
    """
    encodings = expected.encode_batch(list(texts), add_special_tokens=False)
    return [
        text
        for executor in (tokenizer, GraphTokenizer(tokenizer))
        for text in _find_mismatches(list(texts), executor, encodings)
    ]


def _find_mismatches(texts, tokenizer, encodings):
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    ids_only = tokenizer(texts)
    return [
        text
        for index, (text, encoding) in enumerate(zip(texts, encodings, strict=True))
        if not encoding.ids == ids[index] == ids_only[index]
        or (
            not (tokenizer.add_prefix_space and text.startswith(" "))
            and encoding.offsets != list(zip(starts[index], ends[index], strict=True))
        )
    ]
