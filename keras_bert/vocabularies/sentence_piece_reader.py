# SPDX-License-Identifier: Apache-2.0
"""Reads the config of a SentencePiece tokenizer from the files of a folder."""

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
from keras_bert.vocabularies.special_tokens import check_names, read_special_tokens, renamed_tokens
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
    MODEL_FILE,
    RELEASED_MODEL_FILE,
    XLM_ROBERTA,
    TokenizerSettings,
)

# The tokenizer class that each SentencePiece model implies, if no file names a class
MODEL_FILES = {
    MODEL_FILE: ALBERT,
    RELEASED_MODEL_FILE: ALBERT,
    fairseq_ids.MODEL_FILE: XLM_ROBERTA,
    DEBERTA_MODEL_FILE: DEBERTA_V2,
}
# Steps that SentencePiece does itself: it joins runs of spaces, and strips spaces at the end
_OF_SPACES = (f"Replace {SPACES!r} by ' '", f"Replace {SPACES!r} by {BLANK!r}", "Strip")


def read_sentence_piece(path: Path) -> dict[str, Any]:
    """Reads the config of a tokenizer with ALBERT's special tokens that only applies its model."""
    return _sentence_piece(read_bytes(path), path, ALBERT_TOKENS, **UNCLEANED)


def read_sentence_piece_files(
    folder: Path, settings: TokenizerSettings, file: TokenizerJson | None
) -> dict[str, Any]:
    """Creates the config of a SentencePiece tokenizer."""
    path = next((folder / name for name in MODEL_FILES if (folder / name).exists()), None)
    name = settings.tokenizer_class
    if name is None and path is not None:
        name = MODEL_FILES[path.name]
    model = _with_added_pieces(_model_of_files(folder, path, name, file), settings)
    if name == DEBERTA_V2:
        model = _with_mask(model)
    where = file.path if path is None and file is not None else path or folder
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
    elif name == DEBERTA_V2:
        names, pair_separators = WORDPIECE_TOKENS, 1
        num_segments = 1 + settings.has_segments(True)
        if settings.flag("do_lower_case"):
            raise settings.error("do_lower_case", "must be False or absent", True)
    if file is not None and (
        name in (None, *DEFINED_BY_FILE)
        # The class of ALBERT takes the tokens of a row from the file too.
        or (name == ALBERT and file.part("post_processor"))
    ):
        vocabulary = [piece.text for piece in read_pieces(model)]
        names, between, num_segments = read_special_tokens(file, settings, vocabulary)
        pair_separators = len(between)
    has_spaces = options["albert_rules"] or options["compose"] or read_characters_map(model)
    if file is not None and not has_spaces:
        raise file.error(
            "normalizer has no Precompiled step, which replaces whitespace by the space; without, "
            "other whitespace is unknown to the model"
        )
    unknown = [piece.text for piece in read_pieces(model) if piece.type == PieceType.UNKNOWN]
    if unknown != [names["unk"]]:
        raise ValueError(
            f"{where}: the unknown piece must be {names['unk']}. Received: "
            f"{', '.join(unknown) or 'missing'}"
        )
    model = _with_control_pieces(model, names, settings)
    rows = {
        "pair_separators": pair_separators,
        "num_segments": num_segments,
        "compose": options.pop("compose"),
    }
    return _sentence_piece(model, where, names, **options) | without_defaults(SENTENCE_PIECE, rows)


def _model_of_files(
    folder: Path, path: Path | None, name: str | None, file: TokenizerJson | None
) -> bytes:
    """Reads the model at `path`, or else creates it from the pieces of a `tokenizer.json`."""
    if path is None:
        if file is None:
            raise ValueError(f"{folder} has no SentencePiece model.")
        return _unigram_model(file)
    model = _released_model(path, name)
    if file is not None and not _are_same_models(
        model, _unigram_model(file), name == DEBERTA_V2 or _composes(file)
    ):
        raise ValueError(
            f"{file.path}: model.vocab or the Precompiled normalizer differs from {path}; "
            "expected the same pieces, or one of the files."
        )
    return model


def _released_model(path: Path, name: str | None) -> bytes:
    """Reads a model; for XLM-RoBERTa and CamemBERT, its ids are changed to fairseq's."""
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
    """Returns whether two models are the same for a class of the transformers library.

    DeBERTa's class, which composes characters, ignores their map, and adds the mask token.
    """
    if not composes:
        return have_same_pieces(model, other)
    model, other = (without_characters_map(_with_mask(each)) for each in (model, other))
    return have_same_pieces(model, other)


def _with_added_pieces(model: bytes, settings: TokenizerSettings) -> bytes:
    """Returns a model with the special tokens that files add directly after its pieces."""
    pieces = read_pieces(model)
    count = len(pieces)
    tokens = [token for token in settings.added_tokens() if token.get("special", False)]
    for token in sorted(tokens, key=lambda token: token["id"] or 0):
        if token["id"] == len(pieces):
            pieces.append(Piece(token["content"], 0.0, PieceType.CONTROL))
    is_changed = count < len(pieces) == len({piece.text for piece in pieces})
    return replace_pieces(model, pieces) if is_changed else model


def _with_mask(model: bytes) -> bytes:
    """Returns a model of DeBERTa with the mask token added to its pieces, if it is not one."""
    pieces, mask = read_pieces(model), WORDPIECE_TOKENS["mask"]
    if any(piece.text == mask for piece in pieces):
        return model
    return replace_pieces(model, [*pieces, Piece(mask, 0.0, PieceType.CONTROL)])


def _with_control_pieces(
    model: bytes, names: Mapping[str, str], settings: TokenizerSettings
) -> bytes:
    """Returns a model in which all further special tokens are control pieces.

    Any other added token is an error, since SentencePiece finds only pieces of the model.
    """
    pieces = read_pieces(model)
    indices = {piece.text: index for index, piece in enumerate(pieces)}
    is_changed = False
    for token in settings.added_tokens():
        content = token["content"]
        index = indices.get(content)
        if content in names.values() or (content in ALBERT_TOKENS.values() and index is None):
            continue
        if index is None or not token.get("special", False) or token["id"] not in (None, index):
            raise ValueError(
                f"{token['path']}: the token {content!r} was added to the vocabulary; this is not "
                f"supported for a {SENTENCE_PIECE} tokenizer, but for special tokens that are "
                "pieces of its model."
            )
        if pieces[index].type != PieceType.CONTROL:
            pieces[index] = pieces[index]._replace(type=PieceType.CONTROL)
            is_changed = True
    return replace_pieces(model, pieces) if is_changed else model


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
    check_names(names, pieces, path, "expected")
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
    """Creates a SentencePiece model from the pieces and the Precompiled normalizer of a file."""
    characters_map = b""
    for step in tokenizer.steps("normalizer"):
        if step.get("type") == "Precompiled":
            try:
                encoded = step.get("precompiled_charsmap") or ""
                characters_map = base64.b64decode(encoded, validate=True)
            except (TypeError, ValueError) as error:
                raise tokenizer.error(f"precompiled_charsmap is not base64 ({error})") from error
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
            "model.vocab must be a list of pieces with their scores, and model.unk_id the index "
            f"of a piece ({error!r})"
        ) from error
    pieces[model["unk_id"]] = unknown._replace(type=PieceType.UNKNOWN)
    return pieces


def _unigram_options(tokenizer: TokenizerJson) -> dict[str, bool]:
    """Reads how a unigram tokenizer normalizes and splits text, as fields of a config.

    Steps that none of ALBERT, XLM-RoBERTa and DeBERTa has are an error.
    """
    if tokenizer.part("model").get("byte_fallback"):
        raise tokenizer.error("model.byte_fallback is True, which is not supported")
    steps = tokenizer.steps("normalizer")
    if _composes(tokenizer):
        _check_pre_tokenizer(tokenizer, steps)
        return {**UNCLEANED, "compose": True}
    names = [
        f"Replace {_replacement(step)}" if step.get("type") == "Replace" else str(step.get("type"))
        for step in steps
    ]
    keep_accents, lowercase = "StripAccents" not in names, "Lowercase" in names
    rules = [f"Replace {quotes!r} by '\"'" for quotes in QUOTES]
    albert_rules = any(name.startswith("Replace") and name not in _OF_SPACES for name in names)
    usual_names = [
        *(rules if albert_rules else []),
        *([] if keep_accents else ["NFKD", "StripAccents"]),
        *(["Lowercase"] if lowercase else []),
        # Precompiled replaces whitespace with the space, as ALBERT's rules do.
        *(["Precompiled"] if "Precompiled" in names or not albert_rules else []),
    ]
    if [name for name in names if name not in _OF_SPACES] != usual_names:
        raise tokenizer.error(
            f"normalizer has the steps {', '.join(names) or 'none'}; expected ALBERT's, "
            f"{', '.join([*rules, *usual_names[len(rules) * albert_rules :]])}, or XLM-RoBERTa's, "
            "Precompiled"
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
    # Instead of WhitespaceSplit, files of transformers 4 may have normalizers that join runs of
    # spaces and strip spaces at the end.
    kinds = [step.get("type") for step in normalizers[-3:]]
    drops_spaces = normalizers == COMPOSING or (
        kinds == ["Precompiled", "Strip", "Replace"] and normalizers[-2].get("strip_right") is True
    )
    splits = types == ["WhitespaceSplit", "Metaspace"] or (types == ["Metaspace"] and drops_spaces)
    if not splits or not begins_words:
        raise tokenizer.error(
            f"pre_tokenizer has the steps {describe_steps(steps)}; expected ALBERT's, "
            f"WhitespaceSplit and a Metaspace that begins every text with {BLANK}, or that "
            "Metaspace alone after the normalizers Precompiled, Strip on the right, and Replace of "
            "runs of spaces"
        )
