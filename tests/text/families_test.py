# SPDX-License-Identifier: Apache-2.0
"""Compares the newer encoders' tokenizers with the tokenizers library."""

import functools
import itertools
import random
import re
import unicodedata

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")
sentencepiece = pytest.importorskip("sentencepiece")

from keras_bert.data import TextClassifierPreprocessor, TokenClassifierPreprocessor  # noqa: E402
from keras_bert.export.saved_model import check_serving_ops  # noqa: E402
from keras_bert.text import BytePairTokenizer, tokenizer_from_config  # noqa: E402
from keras_bert.text.special_tokens import longest_of  # noqa: E402
from keras_bert.vocabularies.sentence_piece_model import read_pieces  # noqa: E402
from tests.text import families, real_text, vocabularies  # noqa: E402
from tests.text.executors import EXECUTORS, GraphTokenizer, select_executor  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

IS_COMPOSED = functools.partial(unicodedata.is_normalized, "NFC")
BYTE_PAIRS = ("modernbert", "eurobert", "mmbert")
FAIRSEQ = ("xlm_roberta", "camembert")
EDGE_CASES = [
    "ｶﾞﾗｽ ﾊﾟ",
    "", " ", "   ", "\n", " \n \n", "\r\n\r\n  a", ".\n\n  x", "a  \n\tb", "x" + " " * 60 + "y",
    "it's we'll THEY'VE I'M she'd you'RE don'T 'ſ", "'s't're'street 'S 'LL ''s a' x''s \n's",
    "1234567 12 1,234.5", "..abc .abc ... abc!?\n\nnext", "a.\r\n b", "\t\tindented  code",
    "e\u0301 A\u030a \u1100\u1161\u11a8 a\u0327\u0301\u0323 \u0301x q\u0958",
    "👩‍👩‍👧‍👦🇩🇪👍🏽", "\x00\x07\x7f\u200b\ufeff\ufffd\ue000", "z" * 3000, "é" * 300,
    " hello", "hello hello", "<mask></s> <s>", "</s>", "[CLS]", "<|begin_of_text|>",
]  # fmt: skip


def expected_span(text, token, start, end):
    """Returns the library's offsets without spaces, unless the token consists of spaces."""
    span = text[start:end]
    if token.isspace():
        return start, end
    # A mask token includes all whitespace before it, and so can the space before a word.
    includes_whitespace = "mask" in token.lower() or token.startswith("▁")
    start = end - len(span.lstrip(None if includes_whitespace else " "))
    return start, max(end - len(span) + len(span.rstrip(" ")), start)


def find_mismatches(tokenizer, texts, has_same_offsets=lambda text: True):
    """Returns texts whose ids, or offsets if `has_same_offsets`, differ from the library's.

    The graph may choose different pieces with equal scores. If the space before a word is a token,
    the library places it at the start of the word. Its span is empty here.
    """
    encodings = families.build_reference(tokenizer).encode_batch(texts, add_special_tokens=False)
    mismatches = []
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        ids, starts, ends = executor.tokenize_with_offsets(texts)
        ids_only = executor(texts)
        for index, (text, encoding) in enumerate(zip(texts, encodings, strict=True)):
            is_tie = executor is not tokenizer and scores_tie(tokenizer, encoding.ids, ids[index])
            rows = zip(
                encoding.tokens, encoding.offsets, starts[index], ends[index], strict=not is_tie
            )
            same_offsets = (
                is_tie
                or not has_same_offsets(text)
                or all(
                    token == "▁" or expected_span(text, token, *offsets) == (start, end)
                    for token, offsets, start, end in rows
                )
            )
            same_ids = encoding.ids == ids[index] or is_tie
            if not (same_ids and ids[index] == ids_only[index] and same_offsets):
                mismatches.append(text)
    return mismatches


def scores_tie(tokenizer, expected, ids):
    """Returns whether `ids` have the same text and the same score in a SentencePiece model."""
    if expected == ids or not hasattr(tokenizer, "model"):
        return False
    scores = [piece.score for piece in read_pieces(tokenizer.model)]
    expected_score, score = (sum(scores[index] for index in row) for row in (expected, ids))
    return (
        tokenizer.detokenize(ids) == tokenizer.detokenize(expected)
        and abs(score - expected_score) < 1e-4
    )


@functools.cache
def make_normalizers(family):
    """Returns how the library and SentencePiece normalize text for a unigram model."""
    tokenizer = families.make(family)
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    return families.build_reference(tokenizer).normalizer.normalize_str, processor.normalize


def is_normalized_equally(family, text):
    """Returns whether the library and SentencePiece normalize a text equally.

    They differ if one grapheme has multiple mapped or dropped characters, such as a halfwidth
    katakana letter with its sound mark. The library also splits at U+0085.
    """
    library_text, sentence_piece_text = (normalize(text) for normalize in make_normalizers(family))
    words = "".join(f"▁{word}" for word in library_text.split())
    return words == sentence_piece_text and "\0" not in text


def has_no_control_characters(text):
    """Returns whether no character is dropped. The library adds it to the next character's span."""
    return not any(unicodedata.category(character) in ("Cc", "Cf", "Mn") for character in text)


@pytest.mark.parametrize("family", families.CONFIGS)
def test_languages_match_tokenizers(family):
    texts = families.texts()
    if family in FAIRSEQ:
        assert all(is_normalized_equally(family, text) for text in texts)
    compare = has_no_control_characters if family in FAIRSEQ else IS_COMPOSED
    assert find_mismatches(families.make(family), texts, compare) == []


def random_texts(count, count_with_parts, parts, special_tokens_in_text):
    """Returns random texts with parts. Without special tokens in text, adds texts without parts."""
    texts = [*EDGE_CASES, *families.mixed_texts(count_with_parts // real_text.STEP, *parts, seed=1)]
    return (
        texts
        if special_tokens_in_text
        else [*texts, *families.mixed_texts(count // real_text.STEP)]
    )


@pytest.mark.parametrize("family", BYTE_PAIRS)
@pytest.mark.parametrize("special_tokens_in_text", [False, True])
def test_random_texts_match_byte_pairs(family, special_tokens_in_text):
    tokenizer = families.make(family, special_tokens_in_text=special_tokens_in_text)
    tokens_in_text = [
        *tokenizer.special_tokens(),
        *tokenizer.added_tokens[:4],
        tokenizer.added_tokens[-1],
    ]
    parts = (*tokens_in_text, "    ", " " * 30, "\n\n", "'LL", "\u0338")
    texts = random_texts(4000, 3000, parts, special_tokens_in_text)
    # The library composes a combining character with a `>` before it.
    texts = [text for text in texts if ">\u0338" not in text]
    assert find_mismatches(tokenizer, texts, IS_COMPOSED) == []


@pytest.mark.parametrize("family", FAIRSEQ)
@pytest.mark.parametrize("special_tokens_in_text", [False, True])
def test_random_texts_match_unigrams(family, special_tokens_in_text):
    tokenizer = families.make(family, special_tokens_in_text=special_tokens_in_text)
    parts = (*tokenizer.special_tokens(), "    ", "<s>NOTUSED", "the")
    texts = random_texts(3000, 2000, parts, special_tokens_in_text)
    comparable = [text for text in texts if is_normalized_equally(family, text)]
    assert len(comparable) > len(texts) / 2
    # The library also finds special tokens that only appear after normalization.
    normalize, _ = make_normalizers(family)
    special = [*tokenizer.special_tokens(), "<s>NOTUSED", "</s>NOTUSED"]
    texts_with_new_tokens = [
        text
        for text in comparable
        if any(
            token in normalize(text) and not (special_tokens_in_text and token in text)
            for token in special
        )
    ]
    assert len(texts_with_new_tokens) < len(comparable) / 2
    comparable = [text for text in comparable if text not in texts_with_new_tokens]
    assert find_mismatches(tokenizer, comparable, has_no_control_characters) == []
    # Without special tokens in text, all texts match SentencePiece itself.
    if not special_tokens_in_text:
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
        texts = [text.replace("\0", "") for text in texts]
        assert tokenizer(texts) == processor.encode(texts)


@pytest.mark.parametrize("special_tokens_in_text", [False, True])
def test_random_texts_match_composed_unigrams(special_tokens_in_text):
    tokenizer = families.make("deberta_v2", special_tokens_in_text=special_tokens_in_text)
    parts = (*tokenizer.special_tokens(), "    ", "\n", "\xa0", "the", "\u0338")
    texts = random_texts(3000, 2000, parts, special_tokens_in_text)
    if not special_tokens_in_text:
        # The library treats special tokens as pieces in this case.
        special = tokenizer.special_tokens()
        texts = [text for text in texts if not any(token in text for token in special)]
    # SentencePiece treats a "▁" at either end of a text as a space.
    texts = [text.replace("\0", "\ue000") for text in texts if "▁" not in text]
    assert find_mismatches(tokenizer, texts, IS_COMPOSED) == []


@pytest.mark.parametrize("family", [*BYTE_PAIRS, "deberta_v2"])
def test_characters_match_tokenizers(family):
    texts = [
        f"a{character}1{character} {character}{character}'s"
        for character in vocabularies.assigned_characters()[:: 11 * real_text.STEP]
    ]
    assert find_mismatches(families.make(family), texts, IS_COMPOSED) == []


def test_cross_word_pieces_match_tokenizers():
    tokenizer = tokenizer_from_config(families.cross_word_config())
    assert any("▁" in token[1:-1].strip("▁") for token in tokenizer.vocabulary)
    texts = [*families.texts()[:200], *EDGE_CASES[:-6], *families.mixed_texts(1000)]
    assert find_mismatches(tokenizer, texts) == []


def test_long_runs_match_tokenizers():
    # Longer runs are merged first, so equal pairs must not all be merged at once.
    tokenizer = families.make("mmbert")
    texts = [f"{' ' * count}end" for count in (3, 12, 13, 40, 200)]
    texts += ["\n" * 200, "a" * 500, "the " * 300, "中" * 300 + "文"]
    assert find_mismatches(tokenizer, texts) == []
    # Like a space, a "▁" in the text is not part of any span.
    assert find_mismatches(tokenizer, ["▁" * 30, "a▁b ▁c"], lambda text: "▁" not in text) == []
    run = " " * 20_000  # takes n log n steps
    expected = families.build_reference(tokenizer).encode(run, add_special_tokens=False).ids
    assert tokenizer(run) == expected


def test_byte_fallback():
    tokenizer = families.make("mmbert")
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        ids, starts, ends = executor.tokenize_with_offsets("a 🙂b")
        assert [tokenizer.id_to_token(index) for index in ids] == [
            "a", "▁", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "b",
        ]  # fmt: skip
        assert starts == [0, 2, 2, 2, 2, 2, 3]
        assert ends == [1, 2, 3, 3, 3, 3, 4]
        assert executor.detokenize(ids) == "a 🙂b"
        assert executor.detokenize(ids[2:4]) == "\ufffd"
    assert tokenizer.token_text(tokenizer.token_to_id("▁the")) == " the"
    continuing = {tokenizer.vocabulary[index] for index in tokenizer.continuation_token_ids}
    assert {"<0x9F>", "s"} <= continuing
    assert not continuing & {"▁the", "<bos>", "<unused0>", "▁"}


def test_offsets_of_composed_characters():
    tokenizer = families.make("modernbert")
    text = "e\u0301t\u0327\u0301 [\u1100\u1161\u11a8] a\u0958"
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        ids, starts, ends = executor.tokenize_with_offsets([text, "a", f"\u0301{text}"])
        assert ids[0] == tokenizer(unicodedata.normalize("NFC", text))
        spans = {(start, end) for start, end in zip(starts[0], ends[0], strict=True)}
        # `é`, the reordered marks of `t`, a Hangul syllable, and a decomposed syllable
        assert {(0, 2), (7, 10), (13, 14)} <= spans
        assert min(end for start, end in spans if start == 2) == 3 or (2, 5) in spans
        assert starts[0] == sorted(starts[0])
        assert ends[0] == sorted(ends[0])
        assert max(ends[0]) == len(text)
        assert starts[2][0] == 0
        assert max(ends[2]) == len(text) + 1


@pytest.mark.parametrize("family", families.CONFIGS)
def test_encode_matches_tokenizers(family):
    tokenizer = families.make(family)
    library = families.build_reference(tokenizer)
    first, second = "The train to the coast", "Wir fahren nach Hause."
    assert tokenizer.encode(first) == library.encode(first).ids
    assert tokenizer.encode(first, second) == library.encode(first, second).ids
    features = TextClassifierPreprocessor(tokenizer, 64)([first], [second])
    mask = features["padding_mask"][0]
    assert features["token_ids"][0][mask].tolist() == library.encode(first, second).ids
    assert features["segment_ids"].any() == (tokenizer.num_segments > 1)
    assert tokenizer.decode(tokenizer.encode(first), skip_special_tokens=True) == first


def split_rows(windows):
    ids = iter(np.asarray(windows.token_ids.values).tolist())
    return [list(itertools.islice(ids, length)) for length in np.asarray(windows.token_ids.lengths)]


@pytest.mark.parametrize("family", BYTE_PAIRS)
def test_words_after_the_first_follow_a_space(family):
    tokenizer = families.make(family)
    sentences = [["The", "train", "leaves"], [], ["The", "train"], [""]]
    expected = [
        list(map(tokenizer, words))
        for words in (["The", " train", " leaves"], [], ["The", " train"], [""])
    ]
    assert expected[0][1] != tokenizer("train")
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        assert executor.tokenize_words(sentences) == expected
        assert executor.tokenize_words(sentences[0]) == expected[0]
    row = [tokenizer.cls_token_id, *itertools.chain(*expected[0]), tokenizer.sep_token_id]
    preprocessor = TokenClassifierPreprocessor(tokenizer, 64)
    for words in (sentences[:3:2], tf.ragged.constant(sentences[:3:2])):
        assert split_rows(preprocessor.windows(words))[0] == row
    # In a document, only the first word has no space before it.
    documents = [[["The", "train"], ["The", "end"]], [["The"]]]
    second_sentence = [*tokenizer(" The"), *tokenizer(" end")]
    for words in (documents, tf.ragged.constant(documents)):
        windows = split_rows(preprocessor.windows(words))
        assert windows[0] == [
            *row[:-1][: 1 + sum(map(len, expected[2]))],
            *second_sentence,
            row[-1],
        ]
        assert windows[2] == [row[0], *expected[0][0], row[-1]]


@pytest.mark.parametrize("family", ["modernbert", "mmbert", "xlm_roberta"])
def test_saved_model_finds_special_tokens(family, tmp_path):
    tokenizer = families.make(family, special_tokens_in_text=True)
    texts = [f"the {tokenizer.mask_token}  train", "    indented\u0301", ""]
    module = tf.Module()
    module.resources = list(tokenizer.graph.resources)
    module.tokenize = tf.function(
        tokenizer.tokenize_with_offsets, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, tmp_path / "model")
    assert not list((tmp_path / "model" / "assets").iterdir())
    check_serving_ops(tmp_path / "model")
    loaded = tf.saved_model.load(tmp_path / "model")
    parts = [part.to_list() for part in loaded.tokenize(tf.constant(texts))]
    assert parts == list(map(list, tokenizer.tokenize_with_offsets(texts)))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("family", families.CONFIGS)
def test_detokenize_round_trip(family, executor):
    tokenizer = select_executor(families.make(family), executor)
    texts = [
        text for text in families.LANGUAGES.values() if unicodedata.is_normalized("NFKC", text)
    ]
    assert tokenizer.detokenize(tokenizer(texts)) == texts


def test_continuation_token_ids():
    pieces = families.make("xlm_roberta")
    continuing = {pieces.vocabulary[index] for index in pieces.continuation_token_ids}
    assert {"s", "の"} <= continuing
    assert not continuing & {"▁", "▁the", "<s>", "<mask>"}
    byte_pairs = families.make("modernbert")
    continuing = {byte_pairs.vocabulary[index] for index in byte_pairs.continuation_token_ids}
    assert not continuing & {"Ġthe", "[unused0]", "    ", "[CLS]"}


def test_special_tokens_in_text_are_off_by_default():
    for family in families.CONFIGS:
        tokenizer = families.make(family)
        special = {*tokenizer.special_token_ids}
        for token in tokenizer.special_tokens():
            for executor in (tokenizer, GraphTokenizer(tokenizer)):
                assert not special & {*executor(token), *executor(f"a {token} b")}


def test_invalid_options_raise():
    config = families.CONFIGS["modernbert"]()
    del config["kind"]
    with pytest.raises(ValueError, match="word_pattern must be gpt2, llama3"):
        BytePairTokenizer(**config, word_pattern="gpt5")
    with pytest.raises(
        ValueError, match=r"added_tokens must be in the vocabulary. Received: 'x y'"
    ):
        BytePairTokenizer(**{**config, "added_tokens": ["x y"]})
    with pytest.raises(
        ValueError, match=r"special_tokens must be pad, unk, cls, sep, mask. Received: 'start'"
    ):
        BytePairTokenizer(**{**config, "special_tokens": {"start": "[CLS]"}})
    with pytest.raises(ValueError, match=r"must contain <s>, <pad>, </s>, <unk>. Received"):
        BytePairTokenizer(**{**config, "special_tokens": None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": ("<0xE4>", None)}, "a vocabulary without <0xE4>"),
        ({"vocabulary": ("\t", None)}, "a vocabulary without <0x09>"),
        (
            {"merges": ("<0xE4> <0xE5>",)},
            "merges must consist of characters, not bytes. Received: '<0xE4> <0xE5>'",
        ),
    ],
)
def test_byte_fallback_needs_all_bytes(changes, message):
    config = families.CONFIGS["mmbert"]()
    del config["kind"]
    tokens = config["vocabulary"]
    if "vocabulary" in changes:
        config["vocabulary"] = [token for token in tokens if token != changes["vocabulary"][0]]
        config["merges"] = []
    else:
        config |= {"vocabulary": [*tokens, "<0xE4><0xE5>"], "merges": list(changes["merges"])}
    with pytest.raises(ValueError, match=message):
        BytePairTokenizer(**config)


def test_longest_of_matches_longest_token():
    generator = random.Random(0)
    tokens = ["  ", "   ", " ", "a", "ab", "abcd", "b(", "b(c", "é"]
    pattern = re.compile(longest_of(tokens))
    for _ in range(2000):
        text = "".join(generator.choices(" abcd(é", k=generator.randrange(12)))
        longest = [
            max((token for token in tokens if text.startswith(token, start)), key=len, default="")
            for start in range(len(text))
        ]
        for match in pattern.finditer(text):
            assert match[0] == longest[match.start()]
        covered = {*itertools.chain(*(range(*match.span()) for match in pattern.finditer(text)))}
        assert not any(longest[start] for start in range(len(text)) if start not in covered)
