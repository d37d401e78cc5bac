# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer files from a config."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checks import shorten_repr
from keras_bert.families.shared import WORDPIECE_TOKENS
from keras_bert.vocabularies import fairseq_ids, vocab_txt
from keras_bert.vocabularies.byte_pair_files import save_tokens_and_merges
from keras_bert.vocabularies.files import write_json
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    read_characters_map,
    read_pieces,
    replace_pieces,
)
from keras_bert.vocabularies.tokenizer_config import (
    BYTE_PAIR,
    MAX_WORD_LENGTH,
    SENTENCE_PIECE,
    WORDPIECE,
    check_tokenizer_config,
    decode_model,
    list_tokens,
    with_defaults,
    without_defaults,
)
from keras_bert.vocabularies.tokenizer_json import TOKENIZER_FILE
from keras_bert.vocabularies.tokenizer_json_writer import (
    byte_pair_json,
    pieces_without,
    unigram_json,
    wordpiece_json,
)
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_settings import (
    ALBERT,
    CAMEMBERT,
    CLASS_FAMILIES,
    DEBERTA_MODEL_FILE,
    DEBERTA_V2,
    FIRST_WORD_FIELD,
    MODEL_FILE,
    MPNET,
    SETTINGS_FILE,
    SPECIAL_IN_TEXT_FIELD,
    TOKENS_OF_CLASSES,
    USUAL_TOKENS,
    VOCABULARY_FILE,
    WORD_LENGTH_FIELD,
    XLM_ROBERTA,
)

# The config fields that RoBERTa's own files can represent
_ROBERTA_FIELDS = {
    *("vocabulary", "merges", "add_prefix_space", "added_tokens", "mask_takes_space"),
    *("special_added_tokens", "truncation_side", SPECIAL_IN_TEXT_FIELD),
}


def write_tokenizer(
    directory: Path, tokenizer: Mapping[str, Any] | None, max_sequence_length: int
) -> None:
    """Writes a tokenizer's files, including `tokenizer_config.json`. Does nothing for `None`.

    Raises:
        ValueError: If the files would be read as a different tokenizer.
    """
    if tokenizer is None:
        return
    writers = {
        WORDPIECE: _write_wordpiece,
        BYTE_PAIR: _write_byte_pair,
        SENTENCE_PIECE: _write_sentence_piece,
    }
    settings = writers[check_tokenizer_config(tokenizer)](
        directory, with_defaults(tokenizer), special_token_names(tokenizer)
    )
    # Classes that read everything else from tokenizer.json need these fields.
    settings |= _names_field(special_token_names(tokenizer), list_tokens(tokenizer))
    settings["model_max_length"] = max_sequence_length
    for field in ("truncation_side", SPECIAL_IN_TEXT_FIELD):
        if field in tokenizer:
            settings[field] = tokenizer[field]
    write_json(directory / SETTINGS_FILE, settings)
    try:
        read = read_tokenizer(directory)
    except ValueError as error:
        raise ValueError(
            f"The tokenizer cannot be saved, because its files could not be read: {error}"
        ) from error
    check_same_tokenizer(tokenizer, read or {})


def check_same_tokenizer(
    tokenizer: Mapping[str, Any], read: Mapping[str, Any], ignored: Collection[str] = ()
) -> None:
    """Checks that a tokenizer's files are read with the same value for each relevant field.

    Raises:
        ValueError: If a field outside `ignored` differs. The message contains both values.
    """
    written, reread = _effects(tokenizer), _effects(read)
    for name, value in written.items():
        if name not in ignored and value != reread.get(name):
            raise ValueError(
                f"The tokenizer's {name} cannot be saved in this format. Received: "
                f"{shorten_repr(value)}. It would be read as {shorten_repr(reread.get(name))}."
            )


def _effects(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the relevant config fields, with defaults for missing fields."""
    kind, names = tokenizer.get("kind", WORDPIECE), special_token_names(tokenizer)
    values = {"kind": kind, **with_defaults(tokenizer), "special_tokens": names}
    for field in ("added_tokens", "normalized_tokens", "special_added_tokens"):
        values[field] = sorted(values.get(field, ()))
    for field in ("vocabulary", "merges"):
        values[field] = list(values.get(field, ()))
    if kind == WORDPIECE and values["strip_accents"] is None:
        values["strip_accents"] = values["lowercase"]
    if kind == BYTE_PAIR and names["mask"] not in values["vocabulary"]:
        del values["mask_takes_space"]
    if kind == SENTENCE_PIECE:
        model = decode_model(tokenizer)
        values["model"] = read_pieces(model), read_characters_map(model)
    return values


def special_token_names(tokenizer: Mapping[str, Any]) -> dict[str, str]:
    """Returns the special tokens in a tokenizer config by role."""
    usual = USUAL_TOKENS[tokenizer.get("kind", WORDPIECE)]
    return {**usual, **(tokenizer.get("special_tokens") or {})}


def _write_wordpiece(
    directory: Path, config: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Writes a WordPiece vocabulary. Returns the fields of `tokenizer_config.json`."""
    rows = config["pair_separators"], config["num_segments"]
    name = "PreTrainedTokenizerFast"
    # The transformers classes always use a maximum word length of 100. BERT's own is 200.
    is_usual = config[WORD_LENGTH_FIELD] in (MAX_WORD_LENGTH, 100)
    if is_usual and names == WORDPIECE_TOKENS and rows[0] == 1:
        name = "BertTokenizer"
    elif is_usual and names == TOKENS_OF_CLASSES[MPNET] and rows == (2, 1):
        name = MPNET
    rules = {field: config[field] for field in ("strip_accents", "tokenize_chinese_chars")}
    settings: dict[str, Any] = {
        "tokenizer_class": name,
        "do_lower_case": config["lowercase"],
        **without_defaults(WORDPIECE, rules),
        WORD_LENGTH_FIELD: config[WORD_LENGTH_FIELD],
    }
    if rows[1] == 1:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if config["added_tokens"]:
        settings["added_tokens_decoder"] = _added_tokens_field(config, config["vocabulary"])
    # vocab.txt cannot contain PyLate's added tokens "[Q] " and "[D] ". tokenizer.json suffices.
    if not any(token != token.strip() for token in config["added_tokens"]):
        vocab_txt.save_vocabulary(config["vocabulary"], directory / VOCABULARY_FILE)
    write_json(directory / TOKENIZER_FILE, wordpiece_json(config, names))
    return settings


def _write_byte_pair(
    directory: Path, config: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Writes a BPE vocabulary. Returns the fields of `tokenizer_config.json`."""
    prefix = config["add_prefix_space"]
    write_json(directory / TOKENIZER_FILE, byte_pair_json(config, names))
    if without_defaults(BYTE_PAIR, config).keys() <= _ROBERTA_FIELDS:
        save_tokens_and_merges(config["vocabulary"], config["merges"], directory)
        # The mask token includes the preceding space, but RoBERTa's class in `transformers` 5 only
        # applies this if it is defined here.
        masks = {"<mask>": config["mask_takes_space"]} if "<mask>" in config["vocabulary"] else {}
        return {
            "tokenizer_class": "RobertaTokenizer",
            "add_prefix_space": prefix,
            "added_tokens_decoder": _added_tokens_field(config, config["vocabulary"], masks),
        }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": prefix,
        "model_input_names": ["input_ids", "attention_mask"],
        FIRST_WORD_FIELD: config[FIRST_WORD_FIELD],
    }


def _write_sentence_piece(
    directory: Path, config: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Writes a SentencePiece model. Returns the fields of `tokenizer_config.json`."""
    model = decode_model(config)
    all_tokens = [piece.text for piece in read_pieces(model)]
    # The files of the classes in `transformers` do not contain added tokens as pieces.
    pieces: Sequence[Piece] = pieces_without(read_pieces(model), config["added_tokens"])
    model_file = replace_pieces(model, pieces)
    released = fairseq_ids.released_model(model_file)
    segments = ["token_type_ids"] if config["num_segments"] > 1 else []
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # By default, classes omit segment ids, but ALBERT needs them for text pairs.
        "model_input_names": ["input_ids", *segments, "attention_mask"],
    }

    def fits_class(name: str, **fields: Any) -> bool:
        fields |= {**CLASS_FAMILIES[name].tokenizer, "special_tokens": TOKENS_OF_CLASSES[name]}
        return fields.items() <= {**config, "special_tokens": names}.items()

    if config["added_tokens"]:
        masks = {names["mask"]: True} if names["mask"] in all_tokens else {}
        settings["added_tokens_decoder"] = _added_tokens_field(config, all_tokens, masks)
    name, content = MODEL_FILE, model_file
    if released and fits_class(XLM_ROBERTA, compose=False):
        name, (content, ids) = fairseq_ids.MODEL_FILE, released
        is_camembert = ids == fairseq_ids.CAMEMBERT
        settings["tokenizer_class"] = CAMEMBERT if is_camembert else XLM_ROBERTA
    elif fits_class(DEBERTA_V2, compose=True, pair_separators=1):
        pieces = pieces_without(pieces, [names["mask"]])
        name, content = DEBERTA_MODEL_FILE, replace_pieces(model, pieces)
        settings |= {"tokenizer_class": DEBERTA_V2, "do_lower_case": False}
    elif fits_class(ALBERT, albert_rules=True, compose=False, pair_separators=1):
        cleaning = {"do_lower_case": config["lowercase"], "keep_accents": config["keep_accents"]}
        settings |= {"tokenizer_class": ALBERT, **cleaning, "remove_space": True}
    (directory / name).write_bytes(content)
    write_json(directory / TOKENIZER_FILE, unigram_json(model, config, names, pieces))
    return settings


def _added_tokens_field(
    config: Mapping[str, Any], vocabulary: Sequence[str], masks: Mapping[str, bool] | None = None
) -> dict[str, Any]:
    """Returns the field `added_tokens_decoder` of `tokenizer_config.json`.

    `masks` defines whether each mask token includes the preceding space.
    """
    ids = {token: index for index, token in enumerate(vocabulary)}
    masks = masks or {}
    return {
        str(ids[token]): {
            "content": token,
            "lstrip": masks.get(token, False),
            "rstrip": False,
            "single_word": False,
            "normalized": token in config.get("normalized_tokens", ()),
            "special": token in (*masks, *config["special_added_tokens"]),
        }
        for token in (*masks, *config["added_tokens"])
    }


def _names_field(names: Mapping[str, str], vocabulary: Collection[str]) -> dict[str, str]:
    """Returns the fields of `tokenizer_config.json` for the special tokens in a vocabulary."""
    return {f"{role}_token": name for role, name in names.items() if name in vocabulary}
