# SPDX-License-Identifier: Apache-2.0
"""Creates the content of a `tokenizer.json` for each tokenizer type."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from keras_bert.vocabularies.byte_pair_files import BLANK
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    read_characters_map,
    read_pieces,
)
from keras_bert.vocabularies.tokenizer_json import COMPOSING, QUOTES, SPACES, WORD_PATTERNS


def wordpiece_json(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json`. See `byte_pair_json`."""
    ids = {token: index for index, token in enumerate(config["vocabulary"])}
    added = [
        *(_added_token(token, ids[token]) for token in _present(names, ids)),
        *(
            {
                **_added_token(token, ids[token]),
                "normalized": token in config["normalized_tokens"],
                "special": token in config["special_added_tokens"],
            }
            for token in config["added_tokens"]
        ),
    ]
    return {
        **_beginning(added),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": config["tokenize_chinese_chars"],
            "strip_accents": config["strip_accents"],
            "lowercase": config["lowercase"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template(ids, names, config),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": names["unk"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": config["max_word_length"],
            "vocab": _model_words(config),
        },
    }


def _model_words(config: Mapping[str, Any]) -> dict[str, int]:
    """Returns the model's vocabulary, without added tokens at the end.

    The `tokenizers` library assigns the next ids to added tokens outside the vocabulary.
    """
    words = list(config["vocabulary"])
    while words[-1] in config["added_tokens"]:
        words.pop()
    return {token: index for index, token in enumerate(words)}


def byte_pair_json(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json`.

    `config` contains all fields (see `with_defaults`). `names` are the special tokens by role.
    """
    ids = {token: index for index, token in enumerate(config["vocabulary"])}
    byte_fallback = config["byte_fallback"]
    taking_space = names["mask"] if config["mask_takes_space"] else None
    added = [
        *(_added_token(token, ids[token], token == taking_space) for token in _present(names, ids)),
        *(
            {
                **_added_token(token, ids[token]),
                "normalized": not byte_fallback,
                "special": token in config["special_added_tokens"],
            }
            for token in config["added_tokens"]
        ),
    ]
    return {
        **_beginning(added),
        **(_gemma_steps() if byte_fallback else _byte_level_steps(config)),
        "post_processor": _template(ids, names, config),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": names["unk"] if byte_fallback else None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": byte_fallback,
            "byte_fallback": byte_fallback,
            "ignore_merges": config["ignore_merges"],
            "vocab": ids,
            "merges": [merge.split(" ") for merge in config["merges"]],
        },
    }


def _byte_level_steps(config: Mapping[str, Any]) -> dict[str, Any]:
    has_own_pattern = config["word_pattern"] == "gpt2"
    byte_level: dict[str, Any] = {
        "type": "ByteLevel",
        "add_prefix_space": config["add_prefix_space"],
        "trim_offsets": True,
        "use_regex": has_own_pattern,
    }
    split = {
        "type": "Split",
        "pattern": {"Regex": WORD_PATTERNS[config["word_pattern"]]},
        "behavior": "Isolated",
        "invert": False,
    }
    return {
        "normalizer": {"type": "NFC"} if config["compose"] else None,
        "pre_tokenizer": (
            byte_level
            if has_own_pattern
            else {"type": "Sequence", "pretokenizers": [split, byte_level]}
        ),
        "decoder": {**byte_level, "use_regex": True},
    }


def _gemma_steps() -> dict[str, Any]:
    space, blank = {"String": " "}, {"String": BLANK}
    decoders = [
        {"type": "Replace", "pattern": blank, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {
        "normalizer": {"type": "Replace", "pattern": space, "content": BLANK},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": space,
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "decoder": {"type": "Sequence", "decoders": decoders},
    }


def unigram_json(
    model: bytes, config: Mapping[str, Any], names: Mapping[str, str], vocabulary: Sequence[Piece]
) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json` for a SentencePiece model. See `byte_pair_json`.

    `vocabulary` contains the pieces without the added tokens after them, which in DeBERTa include
    the mask token. The format cannot represent ALBERT's rule for commas after numbers.
    """
    pieces = read_pieces(model)
    ids = {piece.text: index for index, piece in enumerate(pieces)}
    metaspace = {
        "type": "Metaspace",
        "replacement": BLANK,
        "prepend_scheme": "always",
        "split": True,
    }
    steps = [metaspace] if config["compose"] else [{"type": "WhitespaceSplit"}, metaspace]
    ordinary = {*config["added_tokens"]} - {*config["special_added_tokens"]}
    added = [
        {
            **_added_token(piece.text, index, piece.text == names["mask"]),
            "special": piece.text not in ordinary,
        }
        for index, piece in enumerate(pieces)
        if piece.text in names.values() or piece.type == PieceType.CONTROL
    ]
    return {
        **_beginning(added),
        "normalizer": {
            "type": "Sequence",
            "normalizers": COMPOSING if config["compose"] else _normalizers(model, config),
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": _template(ids, names, config),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": ids[names["unk"]],
            "vocab": [[piece.text, piece.score] for piece in vocabulary],
            "byte_fallback": False,
        },
    }


def _normalizers(model: bytes, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": pair}, "content": '"'}
        for pair in (QUOTES if config["albert_rules"] else ())
    ]
    if not config["keep_accents"]:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if config["lowercase"]:
        steps.append({"type": "Lowercase"})
    characters_map = read_characters_map(model)
    if characters_map:
        encoded = base64.b64encode(characters_map).decode("ascii")
        # Unlike SentencePiece, Precompiled in `tokenizers` does not compose Hangul syllables.
        steps += [{"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": encoded}]
    return [*steps, {"type": "Replace", "pattern": {"Regex": SPACES}, "content": " "}]


def pieces_without(pieces: Sequence[Piece], tokens: Collection[str]) -> Sequence[Piece]:
    """Removes tokens at the end of the pieces."""
    end = len(pieces)
    while end and pieces[end - 1].text in tokens and pieces[end - 1].type == PieceType.CONTROL:
        end -= 1
    return pieces[:end]


def _present(names: Mapping[str, str], ids: Mapping[str, int]) -> list[str]:
    """Returns a vocabulary's distinct special tokens."""
    return list(dict.fromkeys(token for token in names.values() if token in ids))


def _added_token(token: str, token_id: int, takes_space: bool = False) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": token,
        "single_word": False,
        "lstrip": takes_space,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _beginning(added: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the first fields. They are the same for all tokenizer types."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
    }


def _template(
    ids: Mapping[str, int], names: Mapping[str, str], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the post-processor that puts texts between special tokens."""
    cls, sep = names["cls"], names["sep"]
    between = [sep] * config["pair_separators"]
    if config.get("repeats_cls"):
        between[-1] = cls
    # The segment of the second text and the token after it. BPE families only have one segment.
    segment = config.get("num_segments", 1) - 1

    def special(token: str, segment: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int = 0) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    first = [special(cls), text("A")]
    return {
        "type": "TemplateProcessing",
        "single": [*first, special(sep)],
        "pair": [*first, *map(special, between), text("B", segment), special(sep, segment)],
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (cls, sep)
        },
    }
