# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of the newer encoders, and the same ones built with the tokenizers library.

Their vocabularies are trained on a few texts. All other settings match the released
`tokenizer.json` files of ModernBERT and EuroBERT, or match how `transformers` builds the
tokenizers of XLM-RoBERTa, CamemBERT and DeBERTa.
"""

import functools
import io
import json
import random

import sentencepiece
import tokenizers
from tokenizers import AddedToken, normalizers, pre_tokenizers, processors, trainers

from keras_bert.families.shared import ROBERTA_TOKENS
from keras_bert.text import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    tokenizer_from_config,
    train_byte_pair_vocabulary,
)
from keras_bert.vocabularies import fairseq_ids
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    read_characters_map,
    read_pieces,
    replace_pieces,
)
from tests.text import small_tokenizers

LANGUAGES = {
    "English": "The train to the coast leaves at 7:45, doesn't it? We'll take 2 bags and 1,250 kg.",
    "German": "Größere Straßen führen über die Brücke; das kostet 12,50 € (früher 9,80 €).",
    "French": "L'été dernier, nous avons mangé des crêpes à Noël — «c'était délicieux», dit-elle.",
    "Spanish": "¿Dónde está la estación? ¡Mañana llegará el niño con su pingüino!",
    "Russian": "Вчера мы ехали на поезде из Москвы в Казань, ещё 800 километров.",
    "Greek": "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας· ο ουρανός είναι γαλάζιος.",
    "Arabic": "ذهب الولدُ إلى المدرسةِ في الساعة ٧ صباحًا، ثم عاد إلى البيت.",
    "Hindi": "दिल्ली में आज बहुत गर्मी है, लेकिन पहाड़ों पर बर्फ़ गिर रही है। १२ लोग आए।",
    "Chinese": "今天天气很好，我们去公园散步吧！票价是３０元。",
    "Japanese": "明日は雨が降るでしょう。ｶｰトではなくガラスのコップを２つ買いました。",
    "Korean": "내일 아침 9시에 서울역에서 만나요. 기차표는 59,800원입니다.",
    "Vietnamese": "Hôm nay trời đẹp quá, chúng tôi sẽ đi chợ Bến Thành lúc 10 giờ.",
    "Thai": "พรุ่งนี้เราจะไปกรุงเทพฯ ด้วยรถไฟ เวลา ๘ โมงเช้า",
    "Hebrew": "הרכבת לירושלים יוצאת בשעה 8:15, והיא מָלֵאָה.",
}
SPACES = [" " * count for count in range(24, 1, -1)]
LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHARACTERS = (
    "ab1 2é.,'stmdrevlSTRELV\u017f\t\n\r\x0b\x1c\x85\xa0\u1680\u2003\u2028\u3000   中国٣½Ⅷ’'ﬁ🙂👍🏽"
    "\x00\x7f\u200b\u200d\ufeff\ufffd\ue000\U0010ffff<>_-ĠÂ\u0958e\u0301\u0327\u0338\u1100\u1161\u11a8"
)


@functools.cache
def texts():
    """Returns sentences in many languages, their words, and some English code."""
    parts = [part for text in LANGUAGES.values() for part in text.split(" ")]
    return [*LANGUAGES.values(), *parts, *small_tokenizers.texts()[::4]]


def mixed_texts(count, *parts, seed=0):
    """Returns random mixtures of characters and `parts`."""
    generator = random.Random(seed)
    choices = [*CHARACTERS, *parts * 3]
    return ["".join(generator.choices(choices, k=generator.randrange(16))) for _ in range(count)]


@functools.cache
def _byte_pairs():
    vocabulary, merges = train_byte_pair_vocabulary(
        [*LANGUAGES.values(), *small_tokenizers.texts()], 700, progress=False
    )
    return vocabulary[5:], merges


def _modernbert():
    tokens, merges = _byte_pairs()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    first_token, other_tokens = (
        "|||IP_ADDRESS|||",
        [*SPACES, "|||EMAIL_ADDRESS|||", "<|endoftext|>"],
    )
    unused = [f"[unused{number}]" for number in range(83)]
    return {
        "kind": "byte_pair",
        "vocabulary": [first_token, *tokens, *other_tokens, *special, *unused],
        "merges": list(merges),
        "add_prefix_space": False,
        "special_tokens": {
            "pad": "[PAD]",
            "unk": "[UNK]",
            "cls": "[CLS]",
            "sep": "[SEP]",
            "mask": "[MASK]",
        },
        "pair_separators": 1,
        "added_tokens": [first_token, *other_tokens, *unused],
        "compose": True,
        "space_before_first_word": False,
    }


def _eurobert():
    tokens, merges = _byte_pairs()
    added = [f"<|reserved_special_token_{number}|>" for number in range(20)]
    # No merge produces this token, so it is only found as a whole word.
    whole_word = "Ġhello"
    start_token, end_token, mask_token = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
    return {
        "kind": "byte_pair",
        "vocabulary": [*tokens, whole_word, start_token, end_token, mask_token, *added],
        "merges": list(merges),
        "add_prefix_space": False,
        "special_tokens": {
            "pad": end_token,
            "unk": end_token,
            "cls": start_token,
            "sep": end_token,
            "mask": mask_token,
        },
        "pair_separators": 1,
        "mask_takes_space": False,
        "added_tokens": added,
        "word_pattern": "llama3",
        "ignore_merges": True,
        "space_before_first_word": False,
    }


@functools.cache
def _character_pairs():
    """Returns pieces that do not cross words, in the order in which they were learned."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False)
    library.train_from_iterator(texts(), trainer)
    return sorted(library.get_vocab(), key=library.token_to_id)


def _merges_from_pieces(scores):
    """Returns all merges that produce pieces, as `transformers` derives them from SentencePiece."""
    scored_merges = [
        (score, index, len(piece) - index, f"{piece[:index]} {piece[index:]}")
        for piece, score in scores.items()
        for index in range(1, len(piece))
        if piece[:index] in scores and piece[index:] in scores
    ]
    return [merge for *_, merge in sorted(scored_merges, reverse=True)]


def _mmbert():
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    runs = [letter * count for letter in "\n▁" for count in range(2, 13)]
    added = ["[@BOS@]", "<unused0>", *runs[:11], "<table>", "<s>", "</s>"]
    tokens = _character_pairs()
    # Gemma has a tab in place of the byte token for tabs.
    fallback = [f"<0x{byte:02X}>" if byte != 9 else "\t" for byte in range(256)]
    # User-defined pieces have the best score, so merges of runs come before other merges.
    scores = {**dict.fromkeys((*runs, *added, "\n"), 0)}
    scores |= {token: -index for index, token in enumerate(tokens, 1) if token not in scores}
    vocabulary = dict.fromkeys([*special, *added, *runs, *fallback, "\n", *tokens])
    return {
        "kind": "byte_pair",
        "vocabulary": list(vocabulary),
        "merges": _merges_from_pieces(scores),
        "add_prefix_space": False,
        "special_tokens": {"cls": "<bos>", "sep": "<eos>"},
        "pair_separators": 1,
        "mask_takes_space": False,
        "added_tokens": added,
        "space_before_first_word": False,
        "byte_fallback": True,
    }


def cross_word_config():
    """Returns a config like mmBERT's with pieces that cross words, so they contain spaces."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False)
    library.train_from_iterator(texts(), trainer)
    model = json.loads(library.to_str())["model"]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {
        **_mmbert(),
        "vocabulary": [*special, *fallback, *tokens],
        "merges": list(map(" ".join, model["merges"])),
        "added_tokens": [],
    }


DEBERTA_TOKENS = {
    "pad": "[PAD]",
    "unk": "[UNK]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}
_DEBERTA_TRAINER_OPTIONS = {
    f"{name}_{field}": value
    for index, (name, piece) in enumerate(
        {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}.items()
    )
    for field, value in {"id": index, "piece": piece}.items()
}


@functools.cache
def released_model(deberta=False):
    """Returns a SentencePiece model as released for DeBERTa or XLM-RoBERTa, without fairseq ids."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        **(_DEBERTA_TRAINER_OPTIONS if deberta else {}),
        sentence_iterator=iter([*LANGUAGES.values(), *small_tokenizers.texts()]),
        model_writer=model,
        model_type="unigram",
        vocab_size=800,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    return model.getvalue()


def _fairseq(ids):
    model = fairseq_ids.with_fairseq_ids(released_model(), ids)
    tokenizer = SentencePieceTokenizer(
        model,
        lowercase=False,
        keep_accents=True,
        albert_rules=False,
        special_tokens=ROBERTA_TOKENS,
        pair_separators=2,
        num_segments=1,
    )
    return tokenizer.get_config()


def _deberta_v2():
    model = released_model(deberta=True)
    mask = Piece("[MASK]", 0.0, PieceType.CONTROL)
    tokenizer = SentencePieceTokenizer(
        replace_pieces(model, [*read_pieces(model), mask]),
        lowercase=False,
        keep_accents=True,
        albert_rules=False,
        special_tokens=DEBERTA_TOKENS,
        compose=True,
    )
    return tokenizer.get_config()


CONFIGS = {
    "modernbert": _modernbert,
    "eurobert": _eurobert,
    "mmbert": _mmbert,
    "xlm_roberta": lambda: _fairseq(fairseq_ids.XLM_ROBERTA),
    "camembert": lambda: _fairseq(fairseq_ids.CAMEMBERT),
    "deberta_v2": _deberta_v2,
}


@functools.cache
def make(family, **options):
    """Returns a family's tokenizer."""
    config = CONFIGS[family]()
    # `get_config` returns this default.
    config = {"special_tokens_in_text": False, **config, **options}
    tokenizer = tokenizer_from_config(config)
    assert tokenizer.get_config() == config
    return tokenizer


def build_reference(tokenizer):
    """Returns the same tokenizer, built with the tokenizers library."""
    if isinstance(tokenizer, BytePairTokenizer):
        library = _byte_pair_reference(tokenizer)
    else:
        library = _unigram_reference(tokenizer)
    cls, sep = tokenizer.cls_token, tokenizer.sep_token
    separators = " ".join([sep] * (tokenizer.pair_separators - tokenizer.repeats_cls))
    separators += f" {cls}" * tokenizer.repeats_cls
    library.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {separators} $B {sep}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in {cls, sep}],
    )
    library.encode_special_tokens = not tokenizer.special_tokens_in_text
    return library


def _byte_pair_reference(tokenizer):
    ids = {token: index for index, token in enumerate(tokenizer.vocabulary)}
    is_llama3 = tokenizer.word_pattern == "llama3"
    library = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab=ids,
            merges=[tuple(merge.split(" ")) for merge in tokenizer.merges],
            ignore_merges=tokenizer.ignore_merges,
            byte_fallback=tokenizer.byte_fallback,
            fuse_unk=tokenizer.byte_fallback,
            unk_token=tokenizer.unk_token if tokenizer.byte_fallback else None,
        )
    )
    if tokenizer.compose:
        library.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(tokenizers.Regex(LLAMA3_WORDS), "isolated", invert=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not is_llama3)
    library.pre_tokenizer = (
        pre_tokenizers.Sequence([split, byte_level]) if is_llama3 else byte_level
    )
    if tokenizer.byte_fallback:
        library.normalizer = normalizers.Replace(" ", "▁")
        library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    library.add_special_tokens(
        [
            AddedToken(
                token,
                lstrip=token == tokenizer.mask_token and tokenizer.mask_takes_space,
                normalized=False,
            )
            for token in tokenizer.special_tokens()
        ]
    )
    normalized = not tokenizer.byte_fallback
    library.add_tokens(
        [AddedToken(token, normalized=normalized) for token in tokenizer.added_tokens]
    )
    assert library.get_vocab() == ids
    return library


def _unigram_reference(tokenizer):
    pieces = read_pieces(tokenizer.model)
    library = tokenizers.Tokenizer(
        tokenizers.models.Unigram(
            [(piece.text, piece.score) for piece in pieces],
            unk_id=tokenizer.unk_token_id,
            byte_fallback=False,
        )
    )
    library.normalizer = normalizers.Precompiled(read_characters_map(tokenizer.model))
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    if tokenizer.compose:
        spaces = normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " ")
        strip = normalizers.Strip(left=False, right=True)
        library.normalizer = normalizers.Sequence([spaces, normalizers.NFC(), strip])
        library.pre_tokenizer = metaspace
    special_tokens = [piece.text for piece in pieces if piece.type != PieceType.NORMAL]
    library.add_special_tokens(
        [AddedToken(token, lstrip=token == "<mask>", normalized=False) for token in special_tokens]
    )
    return library
