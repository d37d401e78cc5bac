# SPDX-License-Identifier: Apache-2.0
"""The tokenizer's inputs, outputs, files and errors."""

import random
import unicodedata

import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.text import WordPieceTokenizer  # noqa: E402
from tests.text import vocabularies  # noqa: E402
from tests.text.executors import EXECUTORS, run_by  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TOKENS = [
    *vocabularies.SPECIAL_TOKENS,
    "the",
    "caf",
    "##e",
    "##s",
    "sat",
    "mask",
    "[",
    "]",
    "!",
    "i",
]


@pytest.fixture(scope="module", params=EXECUTORS)
def executor(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(executor):
    return run_by(WordPieceTokenizer(TOKENS), executor)


def tokens_of(tokenizer, ids):
    return [tokenizer.id_to_token(token_id) for token_id in ids]


@pytest.mark.parametrize("longest", [1, 4, 100, 200, 999])
def test_a_word_that_is_too_long_is_unknown(longest, executor):
    tokens = [*vocabularies.SPECIAL_TOKENS, "é", "##é", "a", "##a"]
    tokenizer = WordPieceTokenizer(tokens, lowercase=False, max_word_length=longest)
    assert WordPieceTokenizer.from_config(tokenizer.get_config()).max_word_length == longest
    run = run_by(tokenizer, executor)
    for letter, first in (("é", 5), ("a", 7)):
        word, longer = letter * longest, letter * (longest + 1)
        ids, starts, ends = run.tokenize_with_offsets(f"{word} {longer} {letter}")
        assert ids == [first, *[first + 1] * (longest - 1), 1, first]
        assert [starts[longest], ends[longest]] == [longest + 1, 2 * longest + 2]


def test_invalid_bytes_are_dropped_as_python_drops_them(tokenizer):
    generator = random.Random(0)
    some = (
        b"the sat \xc3\xa9\xe4\xb8\xad\xed\xa0\x80\xf0\x9f\x98\x80\xf4\x90\xff\xc0\xe0\xef\xbb\xbf"
    )
    texts = [bytes(generator.choices(some, k=generator.randrange(12))) for _ in range(3000)]
    valid = [text.decode("utf-8", "ignore") for text in texts]
    assert tokenizer(texts) == tokenizer(valid)
    assert tokenizer.tokenize_with_offsets(texts) == tokenizer.tokenize_with_offsets(valid)


def test_special_tokens_cannot_be_smuggled_in(executor):
    typed = run_by(WordPieceTokenizer(TOKENS, special_tokens_in_text=True), executor)
    unassigned = "".join(chr(code) for code in range(0xFAE0, 0xFB00))
    assert set(typed(unassigned)) == {typed.unk_token_id}
    assert typed.tokenize_with_offsets(unassigned)[2] == list(range(1, 33))


def test_a_vocabulary_without_mask(executor):
    tokens = [*TOKENS[:4], "[", "mask", "]"]
    tokenizer = run_by(WordPieceTokenizer(tokens, special_tokens_in_text=True), executor)
    assert tokens_of(tokenizer, tokenizer("[MASK][SEP]")) == ["[", "mask", "]", "[SEP]"]
    with pytest.raises(
        ValueError, match=r"token must be in the vocabulary of 7 tokens. Received: '\[MASK\]'"
    ):
        _ = tokenizer.mask_token_id


def spans_of(tokenizer, text):
    ids, starts, ends = tokenizer.tokenize_with_offsets(text)
    assert ids == tokenizer(text)
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    return [
        (tokenizer.id_to_token(token_id).removeprefix("##"), text[start:end])
        for token_id, start, end in zip(ids, starts, ends, strict=True)
    ]


def strip(text):
    parts = unicodedata.normalize("NFD", text.lower())
    return "".join(part for part in parts if unicodedata.category(part) not in ("Mn", "Cf", "Cc"))


def test_a_span_normalized_again_is_its_piece(executor):
    letters = "abcασω中\u1100\u1161\u11a8"
    vocabulary = vocabularies.character_vocabulary(letters, "ab", "##ca", "i", "##i")
    tokenizer = run_by(WordPieceTokenizer(vocabulary), executor)
    text = "Á\u0301b\u0327ĈA \u200bÂ\u00adB\x00C 中a각 ΣΑΩ\u0301 İi"
    spans = [(piece, span) for piece, span in spans_of(tokenizer, text) if piece != "[UNK]"]
    assert len(spans) == 14
    for piece, span in spans:
        assert piece == strip(span) or (len(span) == 1 and piece in strip(span)), (piece, span)


def test_marks_that_change_places_have_one_span(executor):
    tone, musical, mongolian = "\u302e", "\U0001d16d", "\U00016ff0"
    vocabulary = vocabularies.character_vocabulary(("a", "b", tone, musical, mongolian))
    tokenizer = run_by(WordPieceTokenizer(vocabulary), executor)
    text = f"a{musical}{tone}\u0301{mongolian} b{tone} a{mongolian}"
    for piece, span in spans_of(tokenizer, text):
        assert piece in strip(span)
    moved = text[1:5]
    assert [span for _, span in spans_of(tokenizer, text)] == [
        "a", moved, moved, moved, "b", tone, "a", mongolian,
    ]  # fmt: skip
    # A text's marks are not those of the text before.
    batch = tokenizer.tokenize_with_offsets([f"a{musical}", f"{tone}{mongolian}b"])
    assert batch[1] == [[0, 1], [0, 0, 2]]
    assert batch[2] == [[1, 2], [2, 2, 3]]


def test_detokenize_refuses_what_is_no_token():
    tokenizer = WordPieceTokenizer(TOKENS)
    with pytest.raises(ValueError, match=r"Token ids must be in \[0, 15\). Received: 99"):
        tokenizer.detokenize([5, 99])
    with pytest.raises(tf.errors.InvalidArgumentError, match="99 is not in"):
        tokenizer.detokenize(tf.constant([5, 99]))
    for wrong in (5, [0.5], [[[5]]]):
        with pytest.raises(ValueError, match=r"\(tokens,\) or \(batch, tokens\)"):
            tokenizer.detokenize(wrong)
    with pytest.raises(ValueError, match=r"must be integers, \(tokens,\) .* shape \(\)"):
        tokenizer.detokenize(tf.constant(5))


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (TOKENS[1:], r"without \[PAD\]"),
        ([*TOKENS, "the"], "'the' .index 5, index 15."),
        ([*TOKENS, "ก" * 100], "at most 256 bytes. Received: 300 bytes .token 15"),
    ],
)
def test_a_wrong_vocabulary_is_refused(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(vocabulary)
