# SPDX-License-Identifier: Apache-2.0
"""RoBERTa's tokenizer, built with the tokenizers library."""

import tokenizers

from tests.text.executors import InGraph

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def reference(vocabulary, merges, add_prefix_space=False, special_tokens_in_text=False):
    """The library's tokenizer, without special tokens around a text."""
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


def differences(texts, tokenizer, expected):
    """Texts whose ids or places are not those of the library, in Python or as graph operations.

    Where a space is added before texts, the library takes that of a text which begins with one for
    added too, and leaves it in the first token's place: such places are not looked at.
    """
    encodings = expected.encode_batch(list(texts), add_special_tokens=False)
    return [
        text
        for executor in (tokenizer, InGraph(tokenizer))
        for text in _differing(list(texts), executor, encodings)
    ]


def _differing(texts, tokenizer, encodings):
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    alone = tokenizer(texts)
    return [
        text
        for index, (text, encoding) in enumerate(zip(texts, encodings, strict=True))
        if not encoding.ids == ids[index] == alone[index]
        or (
            not (tokenizer.add_prefix_space and text.startswith(" "))
            and encoding.offsets != list(zip(starts[index], ends[index], strict=True))
        )
    ]
