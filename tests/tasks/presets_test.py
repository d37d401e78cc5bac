# SPDX-License-Identifier: Apache-2.0
"""A preprocessor must fit the encoder that it feeds."""

import pytest

import keras_bert
from keras_bert.tasks.presets import check_preprocessor

pytestmark = pytest.mark.backend_independent

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
BYTE_PAIRS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b"]


def wordpiece(vocabulary, sequence_length=8):
    tokenizer = {"kind": "wordpiece", "vocabulary": vocabulary}
    return {"tokenizer": tokenizer, "sequence_length": sequence_length}


def byte_pair(vocabulary):
    tokenizer = {"kind": "byte_pair", "vocabulary": vocabulary, "merges": []}
    return {"tokenizer": tokenizer, "sequence_length": 8}


def config(**changes):
    sizes = {"num_layers": 1, "hidden_dim": 4, "num_heads": 1, "intermediate_dim": 4}
    limits = {"vocabulary_size": 7, "max_sequence_length": 8}
    return keras_bert.BertConfig(**sizes, **limits, **changes)


ROBERTA = {"position_offset": 2, "pad_token_id": 1}


@pytest.mark.parametrize(
    ("preprocessor", "changes"),
    [
        (wordpiece(VOCABULARY), {}),
        (wordpiece(VOCABULARY[:6]), {}),
        (byte_pair(BYTE_PAIRS), ROBERTA),
        # Where positions do not follow padding, a mask alone says what it is.
        (byte_pair(BYTE_PAIRS), {"pad_token_id": 3}),
    ],
)
def test_what_fits_is_taken(preprocessor, changes):
    check_preprocessor(preprocessor, config(**changes))


@pytest.mark.parametrize(
    ("preprocessor", "changes", "message"),
    [
        (wordpiece(VOCABULARY, 9), {}, r"rows of up to 9 tokens; .* positions for 8"),
        (wordpiece([*VOCABULARY, "c"]), {}, r"vocabulary has 8 tokens; the encoder's has 7"),
        (byte_pair(BYTE_PAIRS), {**ROBERTA, "pad_token_id": 0}, r"token 1; .* past token 0"),
        (wordpiece(VOCABULARY), ROBERTA, r"token 0; the encoder counts positions past token 1"),
        (byte_pair(BYTE_PAIRS[2:]), ROBERTA, r"token None; .* past token 1"),
    ],
)
def test_what_does_not_fit_is_refused(preprocessor, changes, message):
    with pytest.raises(ValueError, match=message):
        check_preprocessor(preprocessor, config(**changes))
