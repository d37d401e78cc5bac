# SPDX-License-Identifier: Apache-2.0
"""The inputs, outputs, files and errors of the WordPiece tokenizer."""

import random
import unicodedata

import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.text import WordPieceTokenizer  # noqa: E402
from tests.text import vocabularies  # noqa: E402
from tests.text.executors import EXECUTORS, select_executor  # noqa: E402

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
    return select_executor(WordPieceTokenizer(TOKENS), executor)


def ids_to_tokens(tokenizer, ids):
    return [tokenizer.id_to_token(token_id) for token_id in ids]


@pytest.mark.parametrize("longest", [1, 4, 100, 200, 999])
def test_overlong_word_is_unknown(longest, executor):
    tokens = [*vocabularies.SPECIAL_TOKENS, "é", "##é", "a", "##a"]
    tokenizer = WordPieceTokenizer(tokens, lowercase=False, max_word_length=longest)
    assert WordPieceTokenizer.from_config(tokenizer.get_config()).max_word_length == longest
    run = select_executor(tokenizer, executor)
    for letter, first in (("é", 5), ("a", 7)):
        word, longer = letter * longest, letter * (longest + 1)
        ids, starts, ends = run.tokenize_with_offsets(f"{word} {longer} {letter}")
        assert ids == [first, *[first + 1] * (longest - 1), 1, first]
        assert [starts[longest], ends[longest]] == [longest + 1, 2 * longest + 2]


def test_invalid_bytes_match_python(tokenizer):
    generator = random.Random(0)
    sample = (
        b"the sat \xc3\xa9\xe4\xb8\xad\xed\xa0\x80\xf0\x9f\x98\x80\xf4\x90\xff\xc0\xe0\xef\xbb\xbf"
    )
    texts = [bytes(generator.choices(sample, k=generator.randrange(12))) for _ in range(3000)]
    valid = [text.decode("utf-8", "ignore") for text in texts]
    assert tokenizer(texts) == tokenizer(valid)
    assert tokenizer.tokenize_with_offsets(texts) == tokenizer.tokenize_with_offsets(valid)


def test_unassigned_characters_are_unknown(executor):
    tokenizer = select_executor(WordPieceTokenizer(TOKENS, special_tokens_in_text=True), executor)
    unassigned = "".join(chr(code) for code in range(0xFAE0, 0xFB00))
    assert set(tokenizer(unassigned)) == {tokenizer.unk_token_id}
    assert tokenizer.tokenize_with_offsets(unassigned)[2] == list(range(1, 33))


def test_vocabulary_without_mask_token(executor):
    tokens = [*TOKENS[:4], "[", "mask", "]"]
    tokenizer = select_executor(WordPieceTokenizer(tokens, special_tokens_in_text=True), executor)
    assert ids_to_tokens(tokenizer, tokenizer("[MASK][SEP]")) == ["[", "mask", "]", "[SEP]"]
    with pytest.raises(
        ValueError, match=r"token must be in the vocabulary of 7 tokens. Received: '\[MASK\]'"
    ):
        _ = tokenizer.mask_token_id


def piece_spans(tokenizer, text):
    ids, starts, ends = tokenizer.tokenize_with_offsets(text)
    assert ids == tokenizer(text)
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    return [
        (tokenizer.id_to_token(token_id).removeprefix("##"), text[start:end])
        for token_id, start, end in zip(ids, starts, ends, strict=True)
    ]


def strip_marks(text):
    parts = unicodedata.normalize("NFD", text.lower())
    return "".join(part for part in parts if unicodedata.category(part) not in ("Mn", "Cf", "Cc"))


def test_normalized_span_is_the_piece(executor):
    letters = "abcασω中\u1100\u1161\u11a8"
    vocabulary = vocabularies.character_vocabulary(letters, "ab", "##ca", "i", "##i")
    tokenizer = select_executor(WordPieceTokenizer(vocabulary), executor)
    text = "Á\u0301b\u0327ĈA \u200bÂ\u00adB\x00C 中a각 ΣΑΩ\u0301 İi"
    spans = [(piece, span) for piece, span in piece_spans(tokenizer, text) if piece != "[UNK]"]
    assert len(spans) == 14
    for piece, span in spans:
        assert piece == strip_marks(span) or (len(span) == 1 and piece in strip_marks(span)), (
            piece,
            span,
        )


def test_reordered_marks_share_a_span(executor):
    tone, musical, mongolian = "\u302e", "\U0001d16d", "\U00016ff0"
    vocabulary = vocabularies.character_vocabulary(("a", "b", tone, musical, mongolian))
    tokenizer = select_executor(WordPieceTokenizer(vocabulary), executor)
    text = f"a{musical}{tone}\u0301{mongolian} b{tone} a{mongolian}"
    for piece, span in piece_spans(tokenizer, text):
        assert piece in strip_marks(span)
    moved = text[1:5]
    assert [span for _, span in piece_spans(tokenizer, text)] == [
        "a", moved, moved, moved, "b", tone, "a", mongolian,
    ]  # fmt: skip
    # Marks at the start of a text do not belong to the previous text.
    batch = tokenizer.tokenize_with_offsets([f"a{musical}", f"{tone}{mongolian}b"])
    assert batch[1] == [[0, 1], [0, 0, 2]]
    assert batch[2] == [[1, 2], [2, 2, 3]]


def test_detokenize_rejects_invalid_ids():
    tokenizer = WordPieceTokenizer(TOKENS)
    with pytest.raises(ValueError, match=r"Token ids must be in \[0, 15\). Received: 99"):
        tokenizer.detokenize([5, 99])
    with pytest.raises(tf.errors.InvalidArgumentError, match="99 is not in"):
        tokenizer.detokenize(tf.constant([5, 99]))
    for invalid_ids in (5, [0.5], [[[5]]]):
        with pytest.raises(ValueError, match=r"\(tokens,\) or \(batch, tokens\)"):
            tokenizer.detokenize(invalid_ids)
    with pytest.raises(
        ValueError, match=r"must be \(tokens,\) or \(batch, tokens\). Received: \(\)"
    ):
        tokenizer.detokenize(tf.constant(5))


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (TOKENS[1:], r"without \[PAD\]"),
        ([*TOKENS, "the"], "'the' .index 5, index 15."),
        ([*TOKENS, "ก" * 100], "at most 256 bytes. Received: 300 bytes .token 15"),
    ],
)
def test_invalid_vocabulary_raises(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(vocabulary)
