# SPDX-License-Identifier: Apache-2.0
"""Writes the files of a tokenizer from its config."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from keras_bert.vocabularies import fairseq_ids, vocab_txt
from keras_bert.vocabularies.byte_pair_files import save_tokens_and_merges
from keras_bert.vocabularies.files import write_json
from keras_bert.vocabularies.sentence_piece_model import read_pieces, replace_pieces
from keras_bert.vocabularies.tokenizer_config import (
    BYTE_PAIR,
    SENTENCE_PIECE,
    WORDPIECE,
    check_tokenizer_config,
    decode_model,
    with_defaults,
    without_defaults,
)
from keras_bert.vocabularies.tokenizer_json import (
    TOKENIZER_FILE,
    byte_pair_json,
    pieces_without_mask,
    unigram_json,
    wordpiece_json,
)
from keras_bert.vocabularies.tokenizer_settings import (
    ALBERT_TOKENS,
    CAMEMBERT,
    DEBERTA_MODEL_FILE,
    DEBERTA_V2,
    FIRST_WORD_FIELD,
    MODEL_FILE,
    MPNET,
    MPNET_TOKENS,
    ROBERTA_TOKENS,
    SETTINGS_FILE,
    SPECIAL_IN_TEXT_FIELD,
    VOCABULARY_FILE,
    WORD_LENGTH_FIELD,
    WORDPIECE_TOKENS,
    XLM_ROBERTA,
)

# The fields of a config that RoBERTa's own files have
_ROBERTA_FIELDS = {
    *("vocabulary", "merges", "add_prefix_space", "added_tokens", "mask_takes_space"),
    *("truncation_side", SPECIAL_IN_TEXT_FIELD),
}


def write_tokenizer(
    folder: Path, tokenizer: Mapping[str, Any] | None, max_sequence_length: int
) -> None:
    """Writes the files of a tokenizer, including `tokenizer_config.json`; of `None`, nothing."""
    if tokenizer is None:
        return
    writers = {
        WORDPIECE: _write_wordpiece,
        BYTE_PAIR: _write_byte_pair,
        SENTENCE_PIECE: _write_sentence_piece,
    }
    settings = writers[check_tokenizer_config(tokenizer)](folder, with_defaults(tokenizer))
    settings["model_max_length"] = max_sequence_length
    for field in ("truncation_side", SPECIAL_IN_TEXT_FIELD):
        if field in tokenizer:
            settings[field] = tokenizer[field]
    write_json(folder / SETTINGS_FILE, settings)


def _write_wordpiece(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a WordPiece vocabulary; returns the fields of `tokenizer_config.json`."""
    names = {**WORDPIECE_TOKENS, **(config["special_tokens"] or {})}
    rows = config["pair_separators"], config["num_segments"]
    name = "PreTrainedTokenizerFast"
    if names == WORDPIECE_TOKENS and rows[0] == 1:
        name = "BertTokenizer"
    elif names == MPNET_TOKENS and rows == (2, 1):
        name = MPNET
    else:
        write_json(folder / TOKENIZER_FILE, wordpiece_json(config, names))
    rules = {field: config[field] for field in ("strip_accents", "tokenize_chinese_chars")}
    settings: dict[str, Any] = {
        "tokenizer_class": name,
        **(_names_field(names, config["vocabulary"]) if name != "BertTokenizer" else {}),
        "do_lower_case": config["lowercase"],
        **without_defaults(WORDPIECE, rules),
        WORD_LENGTH_FIELD: config[WORD_LENGTH_FIELD],
    }
    if rows[1] == 1:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if config["added_tokens"]:
        settings["added_tokens_decoder"] = _added_tokens_field(config)
    vocab_txt.save_vocabulary(config["vocabulary"], folder / VOCABULARY_FILE)
    return settings


def _write_byte_pair(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the vocabulary of a BPE tokenizer; returns the fields of `tokenizer_config.json`."""
    prefix = config["add_prefix_space"]
    if without_defaults(BYTE_PAIR, config).keys() <= _ROBERTA_FIELDS:
        save_tokens_and_merges(config["vocabulary"], config["merges"], folder)
        # The mask token includes the space before it, which RoBERTa's class in `transformers` 5
        # does not know by itself.
        masks = {"<mask>": config["mask_takes_space"]} if "<mask>" in config["vocabulary"] else {}
        return {
            "tokenizer_class": "RobertaTokenizer",
            "add_prefix_space": prefix,
            "added_tokens_decoder": _added_tokens_field(config, masks),
        }
    names = {**ROBERTA_TOKENS, **(config["special_tokens"] or {})}
    write_json(folder / TOKENIZER_FILE, byte_pair_json(config, names))
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": prefix,
        **_names_field(names, config["vocabulary"]),
        "model_input_names": ["input_ids", "attention_mask"],
        FIRST_WORD_FIELD: config[FIRST_WORD_FIELD],
    }


def _write_sentence_piece(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a SentencePiece model; returns the fields of `tokenizer_config.json`."""
    model = decode_model(config)
    pieces = read_pieces(model)
    names = {**ALBERT_TOKENS, **(config["special_tokens"] or {})}
    write_json(folder / TOKENIZER_FILE, unigram_json(model, config, names))
    names_field = _names_field(names, [piece.text for piece in pieces])
    segments = ["token_type_ids"] if config["num_segments"] > 1 else []
    inputs = {"model_input_names": ["input_ids", *segments, "attention_mask"]}
    released = fairseq_ids.released_model(model)
    if released and names == fairseq_ids.SPECIAL_TOKENS:
        original, ids = released
        (folder / fairseq_ids.MODEL_FILE).write_bytes(original)
        name = CAMEMBERT if ids == fairseq_ids.CAMEMBERT else XLM_ROBERTA
        return {"tokenizer_class": name, **names_field, **inputs}
    if names == WORDPIECE_TOKENS and config["compose"]:
        model = replace_pieces(model, pieces_without_mask(pieces, names["mask"]))
        (folder / DEBERTA_MODEL_FILE).write_bytes(model)
        return {"tokenizer_class": DEBERTA_V2, **names_field, **inputs, "do_lower_case": False}
    if names != ALBERT_TOKENS:
        return {"tokenizer_class": "PreTrainedTokenizerFast", **names_field, **inputs}
    rules = config["albert_rules"]
    (folder / MODEL_FILE).write_bytes(model)
    return {
        # ALBERT's class has its rules whatever is in tokenizer.json.
        "tokenizer_class": "AlbertTokenizer" if rules else "PreTrainedTokenizerFast",
        # It knows their names too.
        **({} if rules else names_field),
        # Both classes leave out the segment ids, which ALBERT needs for pairs.
        **inputs,
        "do_lower_case": config["lowercase"],
        "keep_accents": config["keep_accents"],
        "remove_space": True,
        "albert_rules": rules,
    }


def _added_tokens_field(
    config: Mapping[str, Any], masks: Mapping[str, bool] | None = None
) -> dict[str, Any]:
    """Returns the field `added_tokens_decoder` of `tokenizer_config.json`.

    `masks` says whether each mask token includes the space before it.
    """
    ids = {token: index for index, token in enumerate(config["vocabulary"])}
    masks = masks or {}
    uncased = config.get("uncased_tokens", ())
    return {
        str(ids[token]): {
            "content": token,
            "lstrip": masks.get(token, False),
            "rstrip": False,
            "single_word": False,
            "normalized": token in uncased,
            "special": token not in uncased,
        }
        for token in (*masks, *config["added_tokens"])
    }


def _names_field(names: Mapping[str, str], vocabulary: Collection[str]) -> dict[str, str]:
    """Returns the fields of `tokenizer_config.json` for the special tokens of a vocabulary."""
    return {f"{role}_token": name for role, name in names.items() if name in vocabulary}
