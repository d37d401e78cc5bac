# SPDX-License-Identifier: Apache-2.0
"""Reads a SentencePiece tokenizer's config from the files in a directory."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.families.shared import ROBERTA_TOKENS, UNCLEANED, WORDPIECE_TOKENS
from keras_bert.vocabularies import fairseq_ids
from keras_bert.vocabularies.byte_pair_files import BLANK
from keras_bert.vocabularies.files import read_bytes
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    have_same_pieces,
    read_characters_map,
    read_pieces,
    replace_pieces,
    without_characters_map,
    write_model,
)
from keras_bert.vocabularies.special_tokens import (
    check_names,
    read_special_tokens,
    reject_options,
    renamed_tokens,
)
from keras_bert.vocabularies.tokenizer_config import SENTENCE_PIECE, without_defaults
from keras_bert.vocabularies.tokenizer_json import (
    COMPOSING,
    QUOTES,
    SPACES,
    TokenizerJson,
    describe_steps,
)
from keras_bert.vocabularies.tokenizer_settings import (
    ALBERT,
    ALBERT_TOKENS,
    CAMEMBERT,
    DEBERTA_MODEL_FILE,
    DEBERTA_V2,
    DEFINED_BY_FILE,
    KOBERT,
    KOBERT_CLASSES,
    MODEL_FILE,
    RELEASED_MODEL_FILE,
    VOCABULARY_FILE,
    XLM_ROBERTA,
    TokenizerSettings,
)
from keras_bert.vocabularies.vocab_txt import load_vocabulary

# The tokenizer class that each model file implies if no file defines a class
MODEL_FILES = {
    MODEL_FILE: ALBERT,
    RELEASED_MODEL_FILE: ALBERT,
    fairseq_ids.MODEL_FILE: XLM_ROBERTA,
    DEBERTA_MODEL_FILE: DEBERTA_V2,
}
_BERT_UNKNOWN = WORDPIECE_TOKENS["unk"]
_SPECIAL_TYPES = (PieceType.UNKNOWN, PieceType.CONTROL)
# Steps that every SentencePiece model applies: joining runs of spaces and stripping trailing spaces
_SPACE_STEPS = (f"Replace {SPACES!r} by ' '", f"Replace {SPACES!r} by {BLANK!r}", "Strip")


def read_sentence_piece(path: Path) -> dict[str, Any]:
    """Reads a tokenizer with ALBERT's special tokens and no rules beyond its model."""
    return _sentence_piece(read_bytes(path), path, ALBERT_TOKENS, **UNCLEANED)


def read_sentence_piece_files(
    directory: Path, settings: TokenizerSettings, file: TokenizerJson | None
) -> dict[str, Any]:
    """Creates a SentencePiece tokenizer's config."""
    vocabulary_path = None if file else directory / VOCABULARY_FILE
    if vocabulary_path is not None and not vocabulary_path.exists():
        vocabulary_path = None
    path = _find_model(directory, vocabulary_path)
    name = settings.tokenizer_class
    if name is None and path is not None:
        name = MODEL_FILES.get(path.name, ALBERT)
    model = _read_or_create_model(directory, path, name, file)
    if vocabulary_path is not None and path is not None:
        model = _with_vocabulary_ids(model, path, vocabulary_path)
    if not settings.tokenizer_class and name == ALBERT and _unknown(model) == [_BERT_UNKNOWN]:
        name = None if file else KOBERT  # ALBERT's unknown piece is <unk>.
    num_pieces = len(read_pieces(model))
    model = _with_added_pieces(model, settings)
    if name == DEBERTA_V2:
        model = _with_mask(model)
    where = file.path if path is None and file is not None else path or directory
    options = {**UNCLEANED, "compose": name == DEBERTA_V2}
    pair_separators, num_segments, names = 2, 1, ROBERTA_TOKENS
    if file is not None and name in (None, *DEFINED_BY_FILE):
        options = _unigram_options(file)
    elif name in (ALBERT, *DEFINED_BY_FILE):
        names, pair_separators = ALBERT_TOKENS, 1
        num_segments = 1 + settings.has_segments(True)
        options = {
            "lowercase": settings.flag("do_lower_case") is not False,
            "keep_accents": bool(settings.flag("keep_accents")),
            "albert_rules": True,
            "compose": False,
        }
    elif name in KOBERT_CLASSES:
        names, pair_separators = WORDPIECE_TOKENS, 1
        num_segments = 1 + settings.has_segments(True)
        # The encoder was pre-trained without the rules of XLNet's class for quotes and numbers.
        options |= {
            "lowercase": bool(settings.flag("do_lower_case")),
            "keep_accents": settings.flag("keep_accents") is not False,
        }
    elif name == DEBERTA_V2:
        names, pair_separators = WORDPIECE_TOKENS, 1
        num_segments = 1 + settings.has_segments(True)
        if settings.flag("do_lower_case"):
            raise settings.error("do_lower_case", "must be False or absent", True)
    if file is not None and (
        name in (None, *DEFINED_BY_FILE)
        # ALBERT's class also reads the special tokens around a text from the file.
        or (name == ALBERT and file.part("post_processor"))
    ):
        vocabulary = [piece.text for piece in read_pieces(model)]
        names, between, num_segments = read_special_tokens(file, settings, vocabulary)
        pair_separators = len(between)
    has_spaces = options["albert_rules"] or options["compose"] or read_characters_map(model)
    if file is not None and not has_spaces:
        raise file.error(
            "normalizer must have a Precompiled step to replace whitespace with spaces, because "
            "the model has no pieces for other whitespace"
        )
    unknown = _unknown(model)
    if unknown != [names["unk"]]:
        raise ValueError(
            f"{where}: the unknown piece must be {names['unk']}. Received: "
            f"{', '.join(unknown) or 'missing'}"
        )
    model, added = _with_control_pieces(model, names, settings, num_pieces)
    rows = {
        **added,
        "pair_separators": pair_separators,
        "num_segments": num_segments,
        "compose": options.pop("compose"),
    }
    return _sentence_piece(model, where, names, **options) | without_defaults(SENTENCE_PIECE, rows)


def _find_model(directory: Path, vocabulary_path: Path | None) -> Path | None:
    """Returns the path of the SentencePiece model in a directory, or `None`.

    With a `vocab.txt` of pieces, the model can have any name, such as
    `tokenizer_78b3253a26.model` in KoBERT.
    """
    paths = [directory / name for name in MODEL_FILES if (directory / name).exists()]
    if paths or vocabulary_path is None:
        return paths[0] if paths else None
    paths = sorted(directory.glob("*.model"))
    if len(paths) != 1:
        raise ValueError(
            f"{vocabulary_path} has SentencePiece pieces, so its directory must contain one "
            f"SentencePiece model (*.model). Received: "
            f"{', '.join(path.name for path in paths) or 'no model'}"
        )
    return paths[0]


def _with_vocabulary_ids(model: bytes, path: Path, vocabulary_path: Path) -> bytes:
    """Gives a model's pieces their ids in a `vocab.txt`.

    The `vocab.txt` has BERT's special tokens. It can omit the model's own special pieces.
    """
    tokens = load_vocabulary(vocabulary_path, (_BERT_UNKNOWN,))
    pieces = {piece.text: piece for piece in read_pieces(model)}
    special = {text for text, piece in pieces.items() if piece.type in _SPECIAL_TYPES}
    absent_pieces = sorted(pieces.keys() - special - set(tokens))
    if absent_pieces:
        raise ValueError(
            f"{vocabulary_path} must contain the pieces of {path.name}. Received: "
            f"{len(tokens)} tokens without {', '.join(map(repr, absent_pieces[:5]))} "
            f"({len(absent_pieces)} of {len(pieces)} pieces)"
        )
    ordered_pieces = [
        pieces[token] if token not in special and token in pieces else Piece(token, 0.0, kind)
        for token, kind in (
            (token, PieceType.UNKNOWN if token == _BERT_UNKNOWN else PieceType.CONTROL)
            for token in tokens
        )
    ]
    return replace_pieces(model, ordered_pieces)


def _unknown(model: bytes) -> list[str]:
    """Returns a model's pieces for unknown text. A valid model has one."""
    return [piece.text for piece in read_pieces(model) if piece.type == PieceType.UNKNOWN]


def _read_or_create_model(
    directory: Path, path: Path | None, name: str | None, file: TokenizerJson | None
) -> bytes:
    """Reads the model at `path`, or creates it from the pieces in a `tokenizer.json`."""
    if path is None:
        if file is None:
            raise ValueError(f"{directory} must contain a SentencePiece model.")
        return _unigram_model(file)
    model = _released_model(path, name)
    if file is not None and not _are_same_models(
        model, _unigram_model(file), name == DEBERTA_V2 or _composes(file)
    ):
        raise ValueError(
            f"{file.path}: model.vocab and the Precompiled normalizer must match {path}. Received: "
            "different pieces. Keep only one of the files."
        )
    return model


def _released_model(path: Path, name: str | None) -> bytes:
    """Reads a model. For XLM-RoBERTa and CamemBERT, its ids are converted to fairseq's ids."""
    model = read_bytes(path)
    try:
        if path.name == fairseq_ids.MODEL_FILE:
            ids = fairseq_ids.CAMEMBERT if name == CAMEMBERT else fairseq_ids.XLM_ROBERTA
            return fairseq_ids.with_fairseq_ids(model, ids)
        read_pieces(model)
    except ValueError as error:
        raise ValueError(f"{path}: the file is {error}.") from error
    return model


def _are_same_models(model: bytes, other: bytes, composes: bool) -> bool:
    """Returns whether two models are equivalent for a tokenizer class in transformers.

    DeBERTa's class composes characters, ignores the normalization map and adds the mask token.
    """
    if not composes:
        return have_same_pieces(model, other)
    model, other = (without_characters_map(_with_mask(each)) for each in (model, other))
    return have_same_pieces(model, other)


def _with_added_pieces(model: bytes, settings: TokenizerSettings) -> bytes:
    """Appends the added tokens whose ids follow a model's last piece.

    If a piece would be repeated, the model is returned unchanged.
    """
    pieces = read_pieces(model)
    count = len(pieces)
    for token in sorted(settings.added_tokens(), key=lambda token: token["id"] or 0):
        if token["id"] == len(pieces):
            pieces.append(Piece(token["content"], 0.0, PieceType.CONTROL))
    is_changed = count < len(pieces) == len({piece.text for piece in pieces})
    return replace_pieces(model, pieces) if is_changed else model


def _with_mask(model: bytes) -> bytes:
    """Adds the mask token to a DeBERTa model's pieces, unless they already contain it."""
    pieces, mask = read_pieces(model), WORDPIECE_TOKENS["mask"]
    if any(piece.text == mask for piece in pieces):
        return model
    return replace_pieces(model, [*pieces, Piece(mask, 0.0, PieceType.CONTROL)])


def _with_control_pieces(
    model: bytes, names: Mapping[str, str], settings: TokenizerSettings, num_pieces: int
) -> tuple[bytes, dict[str, list[str]]]:
    """Converts all additional special tokens in a model to control pieces.

    Tokens after the first `num_pieces` pieces, and ordinary tokens that are control pieces, are
    added tokens. Other ordinary tokens raise an error, because SentencePiece finds them as pieces.

    Returns the model and the config fields for the added tokens.
    """
    added: dict[str, list[str]] = {"added_tokens": [], "special_added_tokens": []}
    pieces = read_pieces(model)
    indices = {piece.text: index for index, piece in enumerate(pieces)}
    is_changed = False
    for token in settings.added_tokens():
        content = token["content"]
        index = indices.get(content)
        if content in names.values() or (content in ALBERT_TOKENS.values() and index is None):
            continue
        is_special = token.get("special", False)
        is_added = index is not None and (
            index >= num_pieces or (not is_special and pieces[index].type == PieceType.CONTROL)
        )
        if index is None or not (is_special or is_added) or token["id"] not in (None, index):
            raise ValueError(
                f"{token['path']}: a {SENTENCE_PIECE} tokenizer must not have added tokens, except "
                "for special tokens in its model and tokens whose ids follow its pieces. Received: "
                f"{content!r}"
            )
        if is_added:
            reject_options(token, ("single_word", "normalized"))
            added["added_tokens"].append(content)
            added["special_added_tokens"] += [content] * is_special
        if pieces[index].type != PieceType.CONTROL:
            pieces[index] = pieces[index]._replace(type=PieceType.CONTROL)
            is_changed = True
    return replace_pieces(model, pieces) if is_changed else model, added


def _sentence_piece(
    model: bytes,
    path: Path,
    names: Mapping[str, str],
    *,
    lowercase: bool,
    keep_accents: bool,
    albert_rules: bool,
) -> dict[str, Any]:
    try:
        pieces = {piece.text for piece in read_pieces(model)}
    except ValueError as error:
        raise ValueError(f"{path}: the file is {error}.") from error
    check_names(names, pieces, path, "It must have")
    renamed = renamed_tokens(names, ALBERT_TOKENS)
    return {
        "kind": SENTENCE_PIECE,
        "model": base64.b64encode(model).decode("ascii"),
        "lowercase": lowercase,
        "keep_accents": keep_accents,
        "albert_rules": albert_rules,
        **({"special_tokens": renamed} if renamed else {}),
    }


def _unigram_model(tokenizer: TokenizerJson) -> bytes:
    """Creates a SentencePiece model from a file's pieces and Precompiled normalizer."""
    characters_map = b""
    for step in tokenizer.steps("normalizer"):
        if step.get("type") == "Precompiled":
            try:
                encoded = step.get("precompiled_charsmap") or ""
                characters_map = base64.b64decode(encoded, validate=True)
            except (TypeError, ValueError) as error:
                raise tokenizer.error(f"precompiled_charsmap must be base64 ({error})") from error
            break
    return write_model(_pieces(tokenizer), characters_map)


def _pieces(tokenizer: TokenizerJson) -> list[Piece]:
    model = tokenizer.part("model")
    kinds = {
        token.get("content"): PieceType.CONTROL if token.get("special") else PieceType.USER_DEFINED
        for token in tokenizer.added_tokens()
    }
    try:
        pieces = [
            Piece(text, float(score), kinds.get(text, PieceType.NORMAL))
            for text, score in model["vocab"]
        ]
        unknown = pieces[model["unk_id"]]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise tokenizer.error(
            "model.vocab must be a list of pieces with their scores, and model.unk_id one of its "
            f"indices ({error!r})"
        ) from error
    pieces[model["unk_id"]] = unknown._replace(type=PieceType.UNKNOWN)
    return pieces


def _unigram_options(tokenizer: TokenizerJson) -> dict[str, bool]:
    """Returns config fields for how a unigram tokenizer normalizes and splits text.

    Steps that do not occur in ALBERT, XLM-RoBERTa or DeBERTa raise an error.
    """
    if tokenizer.part("model").get("byte_fallback"):
        raise tokenizer.error("model.byte_fallback must be False. Received: True")
    steps = tokenizer.steps("normalizer")
    if _composes(tokenizer):
        _check_pre_tokenizer(tokenizer, steps)
        return {**UNCLEANED, "compose": True}
    names = [
        f"Replace {_replacement(step)}" if step.get("type") == "Replace" else str(step.get("type"))
        for step in steps
    ]
    # SentencePiece composes characters itself.
    names = [
        name
        for name, after in zip(names, [*names[1:], ""], strict=True)
        if (name, after) != ("NFC", "Precompiled")
    ]
    keep_accents, lowercase = "StripAccents" not in names, "Lowercase" in names
    rules = [f"Replace {quotes!r} by '\"'" for quotes in QUOTES]
    albert_rules = any(name.startswith("Replace") and name not in _SPACE_STEPS for name in names)
    usual_names = [
        *(rules if albert_rules else []),
        *([] if keep_accents else ["NFKD", "StripAccents"]),
        *(["Lowercase"] if lowercase else []),
        # Like ALBERT's rules, Precompiled replaces whitespace with spaces.
        *(["Precompiled"] if "Precompiled" in names or not albert_rules else []),
    ]
    if [name for name in names if name not in _SPACE_STEPS] != usual_names:
        raise tokenizer.error(
            "normalizer must have ALBERT's steps "
            f"({', '.join([*rules, *usual_names[len(rules) * albert_rules :]])}) or "
            f"XLM-RoBERTa's step (Precompiled). Received: {', '.join(names) or 'no steps'}"
        )
    _check_pre_tokenizer(tokenizer, steps)
    return {
        "lowercase": lowercase,
        "keep_accents": keep_accents,
        "albert_rules": albert_rules,
        "compose": False,
    }


def _composes(tokenizer: TokenizerJson) -> bool:
    """Returns whether a unigram tokenizer composes characters, as DeBERTa's class does."""
    return tokenizer.steps("normalizer") == COMPOSING


def _replacement(step: Mapping[str, Any]) -> str:
    pattern = step.get("pattern")
    pattern = next(iter(pattern.values()), None) if isinstance(pattern, dict) else pattern
    return f"{pattern!r} by {step.get('content')!r}"


def _check_pre_tokenizer(
    tokenizer: TokenizerJson, normalizers: Sequence[Mapping[str, Any]]
) -> None:
    steps = tokenizer.steps("pre_tokenizer")
    types = [step.get("type") for step in steps]
    last = steps[-1] if steps else {}
    begins_words = (
        last.get("prepend_scheme", "always") == "always"
        and last.get("add_prefix_space", True)
        and last.get("replacement", BLANK) == BLANK
    )
    # Instead of WhitespaceSplit, files from transformers 4 may have normalizers that join runs of
    # spaces and strip spaces at the end.
    kinds = [step.get("type") for step in normalizers[-3:]]
    drops_spaces = normalizers == COMPOSING or (
        kinds == ["Precompiled", "Strip", "Replace"] and normalizers[-2].get("strip_right") is True
    )
    splits = types == ["WhitespaceSplit", "Metaspace"] or (types == ["Metaspace"] and drops_spaces)
    if not splits or not begins_words:
        raise tokenizer.error(
            "pre_tokenizer must have ALBERT's steps, WhitespaceSplit and a Metaspace that starts "
            f"every text with {BLANK}. After the normalizers Precompiled, Strip (right) and "
            "Replace (runs of spaces), WhitespaceSplit is optional. Received: "
            f"{describe_steps(steps)}"
        )
