# SPDX-License-Identifier: Apache-2.0
"""Reads the config of a tokenizer from the files of a folder."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.families.shared import ROBERTA_TOKENS, WORDPIECE_TOKENS
from keras_bert.vocabularies import fairseq_ids, vocab_txt
from keras_bert.vocabularies.byte_pair_files import (
    MERGES_FILE,
    TOKENS_FILE,
    load_merges,
    load_tokens,
)
from keras_bert.vocabularies.files import read_bytes
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    have_same_pieces,
    read_characters_map,
    read_pieces,
    replace_pieces,
    without_characters_map,
)
from keras_bert.vocabularies.tokenizer_config import (
    BYTE_PAIR,
    MAX_WORD_LENGTH,
    SENTENCE_PIECE,
    WORD_LENGTH,
    WORDPIECE,
    without_defaults,
)
from keras_bert.vocabularies.tokenizer_json import (
    TOKENIZER_FILE,
    TokenizerJson,
    byte_pair_options,
    composes,
    merges_of,
    row_formats,
    unigram_model,
    unigram_options,
    wordpiece_options,
)
from keras_bert.vocabularies.tokenizer_settings import (
    ALBERT,
    ALBERT_TOKENS,
    CAMEMBERT,
    DEBERTA_MODEL_FILE,
    DEBERTA_V2,
    DEFINED_BY_FILE,
    FIRST_WORD_FIELD,
    KINDS,
    MODEL_FILE,
    MPNET,
    RELEASED_MODEL_FILE,
    SAME_ROLES,
    SPECIAL_IN_TEXT_FIELD,
    VOCABULARY_FILE,
    WORD_LENGTH_FIELD,
    XLM_ROBERTA,
    TokenizerSettings,
)

# The tokenizer class that each SentencePiece model implies, if no file names a class
_MODEL_FILES = {
    MODEL_FILE: ALBERT,
    RELEASED_MODEL_FILE: ALBERT,
    fairseq_ids.MODEL_FILE: XLM_ROBERTA,
    DEBERTA_MODEL_FILE: DEBERTA_V2,
}
_KINDS_OF_MODELS = {"WordPiece": WORDPIECE, "BPE": BYTE_PAIR, "Unigram": SENTENCE_PIECE}
# The maximum number of characters in a word in the transformers library
_THEIR_WORD_LENGTH = 100
# The options of a SentencePiece tokenizer that only applies its model
_PLAIN = {"lowercase": False, "keep_accents": True, "albert_rules": False}
# The special tokens to look for by role, in files that do not name them
_USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    # Gemma's vocabulary has `<s>` too.
    "cls": ("<bos>", "<s>", "[CLS]"),
    "sep": ("<eos>", "</s>", "[SEP]"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}


def read_tokenizer(folder: Path) -> dict[str, Any] | None:
    """Reads the tokenizer of a folder of this package, of Hugging Face or of a TF1 release.

    If there is a `tokenizer.json`, the vocabulary is read from it, and a SentencePiece model beside
    it must have the same pieces. The class that `tokenizer_config.json` or `config.json` names
    determines where settings come from, as in the transformers library: for the classes of BERT,
    MPNet, RoBERTa, ALBERT, XLM-RoBERTa, CamemBERT and DeBERTa, first from `tokenizer_config.json`;
    for other classes or none, from `tokenizer.json`. Without a `tokenizer.json`, vocabularies are
    tried in this order: `vocab.txt` (WordPiece), `spiece.model`, the released `30k-clean.model`,
    XLM-RoBERTa's `sentencepiece.bpe.model` or DeBERTa's `spm.model` (SentencePiece), and
    `vocab.json` with `merges.txt` (BPE).

    Returns the config; `None` if the folder has none of the files.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a file is malformed, or the tokenizer is not supported.
    """
    try:
        return _read_tokenizer(folder)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: a tokenizer file is malformed: {error!r}.") from error


def _read_tokenizer(folder: Path) -> dict[str, Any] | None:
    path = folder / TOKENIZER_FILE
    file = TokenizerJson(path) if path.exists() else None
    kind = _kind_of_files(folder, file)
    if kind is None:
        return None
    settings = TokenizerSettings(folder, file, kind)
    kind_of_class = KINDS.get(settings.tokenizer_class or "", kind)
    if kind_of_class != kind:
        raise ValueError(
            f"{folder}: the class of the tokenizer is {settings.tokenizer_class}, of the kind "
            f"{kind_of_class}; the files have a {kind} vocabulary."
        )
    settings.check(kind)
    readers = {WORDPIECE: _wordpiece, BYTE_PAIR: _byte_pair, SENTENCE_PIECE: _sentence_pieces}
    tokenizer = readers[kind](folder, settings, file)
    in_text = settings.flag(SPECIAL_IN_TEXT_FIELD)
    if in_text is not None:
        tokenizer[SPECIAL_IN_TEXT_FIELD] = in_text
    return tokenizer | without_defaults(kind, {"truncation_side": settings.side("truncation")})


def _kind_of_files(folder: Path, file: TokenizerJson | None) -> str | None:
    """Returns the kind of the vocabulary in a folder; `None` if there is no vocabulary."""
    if file is not None:
        return _KINDS_OF_MODELS[file.kind]
    if (folder / VOCABULARY_FILE).exists():
        return WORDPIECE
    if any((folder / name).exists() for name in _MODEL_FILES):
        return SENTENCE_PIECE
    has_merges = (folder / TOKENS_FILE).exists() and (folder / MERGES_FILE).exists()
    return BYTE_PAIR if has_merges else None


def read_byte_pair(tokens_path: Path, merges_path: Path, add_prefix_space: bool) -> dict[str, Any]:
    """Reads the config of a BPE tokenizer from its two files.

    With `add_prefix_space`, the first word of a text is tokenized as if it followed a space.
    """
    vocabulary = load_tokens(tokens_path)
    config = _roberta(vocabulary, add_prefix_space, tokens_path)
    return {**config, "merges": list(load_merges(merges_path, set(vocabulary)))}


def _byte_pair(
    folder: Path, settings: TokenizerSettings, file: TokenizerJson | None
) -> dict[str, Any]:
    """Creates the config of a BPE tokenizer."""
    if settings.is_defined_by_file and file is not None:
        return _byte_pair_of_file(file, settings)
    prefix = bool(settings.flag("add_prefix_space"))
    if file is None:
        config = read_byte_pair(folder / TOKENS_FILE, folder / MERGES_FILE, prefix)
    else:
        config = _roberta(file.vocabulary(), prefix, file.path)
        config["merges"] = merges_of(file)
    config, lstrip = _with_added_tokens(config, settings)
    takes_space = lstrip.get(ROBERTA_TOKENS["mask"], True)
    return config | without_defaults(BYTE_PAIR, {"mask_takes_space": takes_space})


def _roberta(vocabulary: Sequence[str], add_prefix_space: bool, path: Path) -> dict[str, Any]:
    _check_names(ROBERTA_TOKENS, vocabulary, path, "RoBERTa's has")
    return {
        "kind": BYTE_PAIR,
        "vocabulary": list(vocabulary),
        "add_prefix_space": add_prefix_space,
    }


def _byte_pair_of_file(file: TokenizerJson, settings: TokenizerSettings) -> dict[str, Any]:
    """Creates the config of a BPE tokenizer from a `tokenizer.json`."""
    options = byte_pair_options(file)
    vocabulary = file.vocabulary()
    names, between, _ = _special_tokens(file, settings, vocabulary)
    _check_names(names, vocabulary, file.path, "expected")
    unknown = file.part("model").get("unk_token")
    if unknown not in (None, names["unk"]):
        raise file.error(f"model.unk_token is {unknown!r}, and unk_token {names['unk']!r}")
    config = {
        "kind": BYTE_PAIR,
        "vocabulary": list(vocabulary),
        "merges": options.pop("merges"),
        "add_prefix_space": options.pop("add_prefix_space"),
        "special_tokens": _renamed(names, ROBERTA_TOKENS),
    }
    config, lstrip = _with_added_tokens(config, settings)
    is_roberta = names["cls"] == ROBERTA_TOKENS["cls"]
    first_word = settings.flag(FIRST_WORD_FIELD)
    return config | without_defaults(
        BYTE_PAIR,
        {
            **options,
            "special_tokens": config.pop("special_tokens"),
            "pair_separators": len(between),
            "mask_takes_space": lstrip.get(names["mask"], False),
            FIRST_WORD_FIELD: is_roberta if first_word is None else first_word,
            "repeats_cls": between[-1] == names["cls"],
        },
    )


def _special_tokens(
    file: TokenizerJson, settings: TokenizerSettings, vocabulary: Sequence[str]
) -> tuple[dict[str, str], list[str], int]:
    """Reads the special tokens of a tokenizer that is defined by a `tokenizer.json`.

    CLS and SEP are the tokens that its post-processor adds. The others are named by
    `tokenizer_config.json` or `special_tokens_map.json`, or have usual names. A vocabulary without
    a padding token has the SEP token in its place, and one without an unknown token has the padding
    token. Returns the tokens by role, the tokens between the texts of a pair, and the number of
    segments.
    """
    names = {}
    for role, usual in _USUAL_NAMES.items():
        candidates = [settings.token(name) for name in (role, SAME_ROLES.get(role, role))]
        if candidates[0] is not None and candidates[0] not in vocabulary:
            what = f"expected a token of the vocabulary of {len(vocabulary)} tokens"
            raise settings.error(f"{role}_token", what, candidates[0])
        if role == "pad" and candidates[0] is None:
            candidates = [file.part("padding").get("pad_token")]
        tokens = [name for name in (*candidates, *usual) if name in vocabulary]
        names[role] = str(tokens[0] if tokens else ROBERTA_TOKENS[role])
    if file.kind == "WordPiece":
        names["unk"] = str(file.part("model").get("unk_token", names["unk"]))
    formats = row_formats(file)
    single, pair = ([name for name, _ in row] for row in (formats.single, formats.pair))
    if len(single) != 3 or single[1] != "A":
        raise file.error(
            f"post_processor makes the row {' '.join(single) or 'of nothing'}; it must add a token "
            f"before each text and one after it, such as {names['cls']} A {names['sep']}"
        )
    names["cls"], _, names["sep"] = single
    for role, other in (("pad", "sep"), ("unk", "pad")):
        if names[role] not in vocabulary:
            names[role] = names[other]
    cls, sep = names["cls"], names["sep"]
    count = max(1, len(pair) - len(single) - 1)
    repeats_cls = file.kind == "BPE" and pair[-3:-2] == [cls]
    between = [sep] * (count - repeats_cls) + [cls] * repeats_cls
    usual_row = [cls, "A", *between, "B", sep]
    if pair != usual_row:
        raise file.error(
            f"post_processor makes the row {' '.join(pair)}; it must be {' '.join(usual_row)}"
        )
    for token in (cls, sep):
        if token not in vocabulary or formats.ids.get(token) != [vocabulary.index(token)]:
            raise file.error(
                f"post_processor gives {token!r} the ids {formats.ids.get(token)}, which are not "
                "those of the vocabulary"
            )
    segments = [[segment for _, segment in row] for row in (formats.single, formats.pair)]
    firsts = len(between) + 2
    of_two = [[0, 0, 0], [0] * firsts + [1, 1]]
    is_usual = file.kind == "WordPiece" or (file.kind == "Unigram" and cls == ALBERT_TOKENS["cls"])
    if not settings.has_segments(is_usual) or not any(map(any, segments)):
        return names, between, 1
    if segments != of_two or file.kind == "BPE":
        raise file.error(
            f"post_processor gives pairs the segment ids {segments[1]}; expected {of_two[1]}, or 0 "
            "only"
        )
    return names, between, 2


def _check_names(
    names: Mapping[str, str], vocabulary: Collection[str], path: Path, expected: str
) -> None:
    """Checks that a vocabulary has all special tokens except the mask token."""
    required = list(dict.fromkeys(names[role] for role in ("cls", "pad", "sep", "unk")))
    absent_tokens = [token for token in required if token not in vocabulary]
    if absent_tokens:
        raise ValueError(
            f"{path}: the vocabulary of {len(vocabulary)} tokens lacks {', '.join(absent_tokens)}; "
            f"{expected} {', '.join(required)}."
        )


def _renamed(names: Mapping[str, str], usual: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the special tokens that differ from the usual ones; `None` if none does."""
    return {role: name for role, name in names.items() if name != usual[role]} or None


def read_sentence_piece(path: Path) -> dict[str, Any]:
    """Reads the config of a tokenizer with ALBERT's special tokens that only applies its model."""
    return _sentence_piece(read_bytes(path), path, ALBERT_TOKENS, **_PLAIN)


def _sentence_pieces(
    folder: Path, settings: TokenizerSettings, file: TokenizerJson | None
) -> dict[str, Any]:
    """Creates the config of a SentencePiece tokenizer."""
    path = next((folder / name for name in _MODEL_FILES if (folder / name).exists()), None)
    name = settings.tokenizer_class
    if name is None and path is not None:
        name = _MODEL_FILES[path.name]
    model = None if path is None else _released_model(path, name)
    if file is not None:
        of_file = unigram_model(file)
        if model is None:
            model = of_file
        elif not _are_same_models(model, of_file, name == DEBERTA_V2 or composes(file)):
            raise ValueError(
                f"{file.path}: model.vocab or the Precompiled normalizer differs from {path}; "
                "expected the same pieces, or one of the files."
            )
    if model is None:
        raise ValueError(f"{folder} has no SentencePiece model.")
    model = _with_added_pieces(model, settings)
    if name == DEBERTA_V2:
        model = _with_mask(model)
    where = file.path if path is None and file is not None else path or folder
    options = {**_PLAIN, "compose": name == DEBERTA_V2}
    pair_separators, num_segments, names = 2, 1, ROBERTA_TOKENS
    if file is not None and name in (None, *DEFINED_BY_FILE):
        options = unigram_options(file)
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
            raise settings.error("do_lower_case", "it must be False or absent", True)
    if file is not None and (
        name in (None, *DEFINED_BY_FILE)
        # The class of ALBERT takes the tokens of a row from the file too.
        or (name == ALBERT and file.part("post_processor"))
    ):
        vocabulary = [piece.text for piece in read_pieces(model)]
        names, between, num_segments = _special_tokens(file, settings, vocabulary)
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
            f"{where}: the unknown piece is {', '.join(unknown) or 'missing'}; expected "
            f"{names['unk']}."
        )
    model = _with_control_pieces(model, names, settings)
    rows = {
        "pair_separators": pair_separators,
        "num_segments": num_segments,
        "compose": options.pop("compose"),
    }
    return _sentence_piece(model, where, names, **options) | without_defaults(SENTENCE_PIECE, rows)


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
    _check_names(names, pieces, path, "expected")
    renamed = _renamed(names, ALBERT_TOKENS)
    return {
        "kind": SENTENCE_PIECE,
        "model": base64.b64encode(model).decode("ascii"),
        "lowercase": lowercase,
        "keep_accents": keep_accents,
        "albert_rules": albert_rules,
        **({"special_tokens": renamed} if renamed else {}),
    }


def _wordpiece(
    folder: Path, settings: TokenizerSettings, file: TokenizerJson | None
) -> dict[str, Any]:
    """Creates the config of a WordPiece tokenizer.

    Whether text is lowercased is read from `tokenizer_config.json`, or else from the normalizer of
    `tokenizer.json`, or else inferred from the vocabulary. If the class of the tokenizer is defined
    by `tokenizer.json`, or no file names a class, everything is read from `tokenizer.json`.
    """
    is_mpnet = settings.tokenizer_class == MPNET
    names = settings.special_tokens(WORDPIECE)
    options: dict[str, Any] = {
        "max_word_length": MAX_WORD_LENGTH if settings.is_empty else _THEIR_WORD_LENGTH,
        "num_segments": 1 if is_mpnet else 1 + settings.has_segments(True),
        "pair_separators": 2 if is_mpnet else 1,
        "strip_accents": (
            None if settings.fields.get("strip_accents") is None else settings.flag("strip_accents")
        ),
        "tokenize_chinese_chars": settings.flag("tokenize_chinese_chars") is not False,
    }
    lowercase = settings.flag("do_lower_case")
    if file is None:
        required = [name for role, name in names.items() if role != "mask"]
        vocabulary = vocab_txt.load_vocabulary(folder / VOCABULARY_FILE, required)
    else:
        vocabulary = file.vocabulary()
        if settings.is_defined_by_file:
            options |= wordpiece_options(file)
            names, between, options["num_segments"] = _special_tokens(file, settings, vocabulary)
            options["pair_separators"] = len(between)
            lowercase = options.pop("lowercase")
            if names["mask"] not in vocabulary:
                names = {**names, "mask": WORDPIECE_TOKENS["mask"]}
        elif lowercase is None:
            lowercase = file.part("normalizer").get("lowercase")
        required = [name for role, name in names.items() if role != "mask"]
        try:
            vocab_txt.check_vocabulary(vocabulary, required)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from error
    if not isinstance(lowercase, bool):
        lowercase = vocab_txt.looks_uncased(vocabulary)
    options["special_tokens"] = _renamed(names, WORDPIECE_TOKENS)
    if options["strip_accents"] == lowercase:
        options["strip_accents"] = None
    own_length = settings.fields.get(WORD_LENGTH_FIELD)
    if own_length is not None:
        if not WORD_LENGTH.allows(own_length):
            raise settings.error(WORD_LENGTH_FIELD, f"it must be {WORD_LENGTH}", own_length)
        options["max_word_length"] = own_length
    config: dict[str, Any] = {
        "vocabulary": list(vocabulary),
        "lowercase": lowercase,
        **without_defaults(WORDPIECE, options),
    }
    config, _ = _with_added_tokens(config, settings)
    if lowercase or options["strip_accents"]:
        of_model: Collection[str] = file.part("model")["vocab"] if file else vocabulary
        normalized: Sequence[str] = config.get("normalized_tokens", ())
        added: Sequence[str] = config.get("added_tokens", ())
        for token in (*added, *names.values()):
            if token in of_model and token not in normalized and token.isalnum():
                raise ValueError(
                    f"{folder}: the added token {token!r} is also a word of the vocabulary, which "
                    "is found in lowercased text; this is not supported."
                )
    return config


def _with_added_tokens(
    config: dict[str, Any], settings: TokenizerSettings
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Adds tokens to the config of a WordPiece or BPE tokenizer.

    Also returns whether each token includes the whitespace before it, if files say so. The ids of
    new tokens must follow the vocabulary. `single_word` is not supported; with BPE, neither is
    `rstrip`, nor `lstrip` except for the mask token.
    """
    kind = config.get("kind", WORDPIECE)
    usual = ROBERTA_TOKENS if kind == BYTE_PAIR else WORDPIECE_TOKENS
    roles = {**usual, **(config.get("special_tokens") or {})}
    is_normalized = bool(config.get("lowercase") or config.get("strip_accents"))
    vocabulary = list(config["vocabulary"])
    indices = {token: index for index, token in enumerate(vocabulary)}
    added = settings.added_tokens()
    for token in sorted(added, key=lambda token: (token["id"] is None, token["id"] or 0)):
        content, index = token["content"], token["id"]
        if index is None:
            if content in roles.values() and content not in indices:
                continue  # such as a mask token, which a vocabulary may lack
            index = indices.get(content, len(vocabulary))
        if index == len(vocabulary) and content not in indices:
            indices[content] = index
            vocabulary.append(content)
        elif not 0 <= index < len(vocabulary) or vocabulary[index] != content:
            has = repr(vocabulary[index]) if 0 <= index < len(vocabulary) else "nothing"
            raise ValueError(
                f"{token['path']}: the added token {content!r} has id {index}, where the "
                f"vocabulary of {len(vocabulary)} tokens has {has}."
            )
    lstrip = {
        token["content"]: token.get("lstrip", False)
        for token in added
        if "lstrip" in token or (token["id"] is not None and "special" in token)
    }
    for token in added:
        refused = ["single_word"]
        if kind == BYTE_PAIR:
            refused += ["rstrip"] if token["content"] == roles["mask"] else ["lstrip", "rstrip"]
        elif token["content"] in roles.values() and is_normalized:
            refused.append("normalized")
        for option in refused:
            if token.get(option):
                raise ValueError(
                    f"{token['path']}: the added token {token['content']!r} has {option}, which is "
                    "not supported."
                )
    own = [token for token in added if token["content"] not in roles.values()]
    names = [token["content"] for token in own]
    special = [token["content"] for token in own if token.get("special", False)]
    # "normalized" means that the token is found in the normalized text.
    normalized = [
        token["content"]
        for token in own
        if kind == WORDPIECE and token.get("normalized", not token.get("special", False))
    ]
    config = {
        **config,
        "vocabulary": vocabulary,
        **({"added_tokens": names} if names else {}),
        **({"normalized_tokens": normalized} if normalized else {}),
        **({"special_added_tokens": special} if special else {}),
    }
    return config, lstrip
