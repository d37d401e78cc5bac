# SPDX-License-Identifier: Apache-2.0
"""Counts tokens in requests, and checks the server's warm-up rows."""

import pytest

from tests.text.small_tokenizers import LETTER_TOKENS, make_tokenizer
from training.serving.models import TextLimits
from training.serving.signatures import STRING, Signature, Tensor, warm_up

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("limits", "row", "num_tokens", "is_truncated"),
    [
        ((4,), {"text": "a b c"}, 5, True),
        ((6,), {"text": "a b", "text_pair": "c a"}, 7, True),
        ((6,), {"text": "a", "choices": ["b", "b c a", ""]}, 7, True),
        ((None, 3), {"text": "a é"}, 4, True),
    ],
)
def test_token_counts_include_special_tokens(limits, row, num_tokens, is_truncated):
    limits = TextLimits(make_tokenizer(*LETTER_TOKENS), *limits)
    expected = {"num_tokens": num_tokens, "is_truncated": is_truncated}
    assert limits.count([row, {"text": ""}]) == [expected, {"num_tokens": 2, "is_truncated": False}]


def test_warm_up_lengthens_only_the_text():
    """An export's inputs are sorted by name, so the text is not the first input."""
    rows = []
    inputs = {"choices": Tensor(STRING, (-1, -1)), "text": Tensor(STRING, (-1,))}
    warm_up(Signature(inputs, {}, rows.extend), [1], longest=8, compiles=False)
    assert {type(row["choices"]) for row in rows} == {list}
    assert len({row["text"] for row in rows}) > 1
