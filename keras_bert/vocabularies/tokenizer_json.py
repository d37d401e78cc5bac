# SPDX-License-Identifier: Apache-2.0
"""The `tokenizer.json` of the `tokenizers` library: WordPiece, BPE and unigram models.

For ALBERT it is written in addition to the SentencePiece model: without it, the `transformers`
library (5.23) splits texts at user-defined pieces and begins a word after each, so that its ids
differ from those of SentencePiece.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.vocabularies.byte_pair_files import check_merge, tokens_in_order
from keras_bert.vocabularies.files import read_json
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    read_characters_map,
    read_pieces,
    write_model,
)

TOKENIZER_FILE = "tokenizer.json"

# Options of BPE models that RoBERTa's tokenizer does not use, and the values that disable them
_OFF: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
    "ignore_merges": (None, False),
}
# The field of the steps of each part that is a Sequence
_STEPS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
_ALBERT_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_QUOTES = ("``", "''")
_SPACES = " {2,}"
_SPACE = "▁"


class TokenizerJson:
    """The content of a `tokenizer.json`.

    Args:
        path: Path of the file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file does not contain a JSON object.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fields = read_json(path)

    def part(self, name: str) -> Mapping[str, Any]:
        """Returns an object of the file; `{}` if it is absent."""
        value = self._fields.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(f"{name} is {type(value).__name__}; it must be an object")
        return value

    def steps(self, name: str) -> list[Mapping[str, Any]]:
        """Returns the steps of a normalizer, pre-tokenizer or post-processor, even if it is one."""
        part = self.part(name)
        if part.get("type") != "Sequence":
            return [part] if part else []
        steps = part.get(_STEPS[name])
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise self.error(f"{name} is a Sequence; its {_STEPS[name]} must be a list of objects")
        return steps

    @property
    def kind(self) -> str:
        """The type of the model: `"WordPiece"`, `"BPE"` or `"Unigram"`.

        Raises:
            ValueError: If it is not one of them.
        """
        kind = self.part("model").get("type")
        if kind not in ("WordPiece", "BPE", "Unigram"):
            raise self.error(f"model.type is {kind!r}; it must be 'WordPiece', 'BPE' or 'Unigram'")
        return str(kind)

    def vocabulary(self) -> tuple[str, ...]:
        """Returns the tokens of a WordPiece or BPE model, including added tokens."""
        vocabulary = self.part("model").get("vocab")
        if not isinstance(vocabulary, dict):
            raise self.error(
                f"model.vocab is {type(vocabulary).__name__}; it must be a dictionary of ids"
            )
        try:
            ids = {token["content"]: token["id"] for token in self.added_tokens()}
        except (KeyError, TypeError) as error:
            raise self.error(
                f"added_tokens must contain objects with id and content ({error!r})"
            ) from error
        return tokens_in_order({**vocabulary, **ids}, f"{self.path}: model.vocab")

    def added_tokens(self) -> Sequence[Mapping[str, Any]]:
        """Returns the added tokens, which include the special tokens."""
        added = self._fields.get("added_tokens") or []
        if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
            raise self.error("added_tokens must be a list of objects with id and content")
        return added

    def error(self, what: str) -> ValueError:
        """Creates an error that names the file."""
        return ValueError(f"{self.path}: {what}.")


def byte_pair_merges(tokenizer: TokenizerJson) -> tuple[list[str], bool]:
    """Reads the merges of a BPE tokenizer.

    Returns:
        A tuple of the merges, and of whether the tokenizer adds a space before a text.

    Raises:
        ValueError: If the file is malformed, or its tokenizer differs from RoBERTa's.
    """
    model = tokenizer.part("model")
    for name, off in _OFF.items():
        if model.get(name) not in off:
            raise tokenizer.error(f"model.{name} is {model[name]!r}, which is not supported")
    if tokenizer.steps("normalizer"):
        raise tokenizer.error("it has a normalizer; RoBERTa's tokenizer has none")
    steps = tokenizer.steps("pre_tokenizer")
    if [step.get("type") for step in steps] != ["ByteLevel"] or not steps[0].get("use_regex", True):
        types = ", ".join(str(step.get("type")) for step in steps) or "missing"
        raise tokenizer.error(f"pre_tokenizer is {types}; it must be ByteLevel with its use_regex")
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise tokenizer.error(f"model.merges is {type(merges).__name__}; it must be a list")
    merges = [" ".join(map(str, merge)) if isinstance(merge, list) else merge for merge in merges]
    vocabulary = set(tokenizer.vocabulary())
    for index, merge in enumerate(merges):
        check_merge(merge, vocabulary, f"{tokenizer.path}: model.merges[{index}]")
    return merges, bool(steps[0].get("add_prefix_space", False))


def wordpiece_settings(tokenizer: TokenizerJson) -> dict[str, Any]:
    """Reads how a WordPiece tokenizer normalizes text.

    Returns:
        The equivalent settings of BERT's tokenizer: `do_lower_case`, `strip_accents`,
        `tokenize_chinese_chars` and `clean_text`.

    Raises:
        ValueError: If the tokenizer differs from BERT's; the message names the step.
    """
    model = tokenizer.part("model")
    for name, expected in (("continuing_subword_prefix", "##"), ("unk_token", "[UNK]")):
        if model.get(name, expected) != expected:
            raise tokenizer.error(f"model.{name} is {model[name]!r}; it must be {expected!r}")
    steps = tokenizer.steps("pre_tokenizer")
    # BertPreTokenizer does what the other two do one after the other.
    splits = {str(step.get("type")) for step in steps}
    if (
        splits - {"BertPreTokenizer", "WhitespaceSplit", "Punctuation"}
        or not ("BertPreTokenizer" in splits or splits == {"WhitespaceSplit", "Punctuation"})
        or any(step.get("behavior", "Isolated") != "Isolated" for step in steps)
    ):
        raise tokenizer.error(
            f"pre_tokenizer is {_described(steps)}; it must be BertPreTokenizer, or split at "
            "whitespace and at punctuation as that does"
        )
    # Texts are split at whitespace, so that stripping it has no effect.
    steps = [step for step in tokenizer.steps("normalizer") if step.get("type") != "Strip"]
    types = [str(step.get("type")) for step in steps]
    if types == ["BertNormalizer"]:
        return {
            "do_lower_case": steps[0].get("lowercase", True),
            "strip_accents": steps[0].get("strip_accents"),
            "tokenize_chinese_chars": steps[0].get("handle_chinese_chars", True),
            "clean_text": steps[0].get("clean_text", True),
        }
    # Accents are separate characters, which can be stripped, only after NFD.
    strips = "NFD" in types and "StripAccents" in types[types.index("NFD") :]
    if set(types) - {"NFD", "Lowercase", "StripAccents"} or ("StripAccents" in types) != strips:
        raise tokenizer.error(
            f"normalizer has the steps {_described(steps)}; it must be BertNormalizer, or have the "
            "steps NFD, Lowercase and StripAccents only"
        )
    return {
        "do_lower_case": "Lowercase" in types,
        "strip_accents": strips,
        "tokenize_chinese_chars": False,
        "clean_text": False,
    }


def row_formats(tokenizer: TokenizerJson) -> list[list[tuple[str, int]]]:
    """Reads how the post-processor packs a text, and two, into a row.

    Returns:
        A list of the two formats, each a list of special tokens, and of `A` and `B` for the texts,
        with their segment ids; an empty list if there is no post-processor.

    Raises:
        ValueError: If the file is malformed, or the post-processor is of another kind.
    """
    # ByteLevel changes offsets only.
    steps = [step for step in tokenizer.steps("post_processor") if step.get("type") != "ByteLevel"]
    if not steps:
        return []
    kinds = ("BertProcessing", "RobertaProcessing", "TemplateProcessing")
    if len(steps) > 1 or steps[0].get("type") not in kinds:
        raise tokenizer.error(
            f"post_processor has the steps {_described(steps)}; it must be one of "
            f"{', '.join(kinds)}"
        )
    kind = steps[0]["type"]
    try:
        if kind == "TemplateProcessing":
            rows = (steps[0]["single"], steps[0]["pair"])
            return [[_template_part(part) for part in row] for row in rows]
        start, end = (str(steps[0][name][0]) for name in ("cls", "sep"))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise tokenizer.error(f"post_processor is a malformed {kind} ({error!r})") from error
    single = [(start, 0), ("A", 0), (end, 0)]
    if kind == "BertProcessing":
        return [single, [*single, ("B", 1), (end, 1)]]
    return [single, [*single, (end, 0), ("B", 0), (end, 0)]]


def _template_part(part: Mapping[str, Mapping[str, Any]]) -> tuple[str, int]:
    (value,) = part.values()
    return str(value["id"]), int(value["type_id"])


def _described(steps: Sequence[Mapping[str, Any]]) -> str:
    """Returns the types of steps for an error message."""
    return ", ".join(str(step.get("type")) for step in steps) or "missing"


def unigram_json(
    model: bytes, lowercase: bool, keep_accents: bool, albert_rules: bool = True
) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json` for a SentencePiece model.

    Args:
        model: The serialized SentencePiece model.
        lowercase: Whether text is lowercased.
        keep_accents: Whether accents are kept.
        albert_rules: Whether pairs of backticks or apostrophes become a quotation mark, as in
            ALBERT. (Its rule for commas after numbers does not exist in this format.)
    """
    pieces = read_pieces(model)
    ids = {piece.text: index for index, piece in enumerate(pieces)}
    metaspace = {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": "always",
        "split": True,
    }
    steps = [{"type": "WhitespaceSplit"}, metaspace]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(token, ids[token]) for token in _ALBERT_TOKENS if token in ids
        ],
        "normalizer": _normalizer(
            read_characters_map(model), lowercase, keep_accents, _QUOTES if albert_rules else ()
        ),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": _template(ids),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": ids["<unk>"],
            "vocab": [[piece.text, piece.score] for piece in pieces],
            "byte_fallback": False,
        },
    }


def unigram_model(tokenizer: TokenizerJson) -> tuple[bytes, bool, bool]:
    """Creates a SentencePiece model from the pieces of a `tokenizer.json`.

    Returns:
        A tuple of the serialized model, of whether text is lowercased, and of whether accents are
        kept.

    Raises:
        ValueError: If the file is malformed, or its tokenizer differs from ALBERT's.
    """
    lowercase, keep_accents, characters_map = _normalizing(tokenizer)
    _check_pre_tokenizer(tokenizer)
    return write_model(_pieces(tokenizer), characters_map), lowercase, keep_accents


def _added_token(token: str, token_id: int) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": token,
        "single_word": False,
        "lstrip": token == "[MASK]",
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _normalizer(
    characters_map: bytes, lowercase: bool, keep_accents: bool, quotes: Sequence[str]
) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": pair}, "content": '"'} for pair in quotes
    ]
    if not keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        steps.append({"type": "Lowercase"})
    if characters_map:
        encoded = base64.b64encode(characters_map).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    steps.append({"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "})
    return {"type": "Sequence", "normalizers": steps}


def _template(ids: dict[str, int]) -> dict[str, Any]:
    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), special("[SEP]", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]}
            for token in ("[CLS]", "[SEP]")
        },
    }


def _pieces(tokenizer: TokenizerJson) -> list[Piece]:
    model = tokenizer.part("model")
    if model.get("byte_fallback"):
        raise tokenizer.error("model.byte_fallback is True, which is not supported")
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


def _normalizing(tokenizer: TokenizerJson) -> tuple[bool, bool, bytes]:
    """Reads `lowercase`, `keep_accents` and the precompiled normalization map."""
    names = []
    characters_map = b""
    for step in tokenizer.steps("normalizer"):
        name = str(step.get("type"))
        if name == "Replace":
            name = f"Replace {_replacement(step)}"
        elif name == "Precompiled":
            try:
                encoded = step.get("precompiled_charsmap") or ""
                characters_map = base64.b64decode(encoded, validate=True)
            except (TypeError, binascii.Error) as error:
                raise tokenizer.error(f"precompiled_charsmap is not base64 ({error})") from error
        names.append(name)
    keep_accents, lowercase = "StripAccents" not in names, "Lowercase" in names
    expected = [
        *(f"Replace {quotes!r} by '\"'" for quotes in _QUOTES),
        *([] if keep_accents else ["NFKD", "StripAccents"]),
        *(["Lowercase"] if lowercase else []),
        *(["Precompiled"] if "Precompiled" in names else []),
    ]
    if [name for name in names if name != f"Replace {_SPACES!r} by ' '"] != expected:
        raise tokenizer.error(
            f"normalizer has the steps {', '.join(names) or 'none'}; expected ALBERT's, "
            f"{', '.join(expected)}. Use the spiece.model of the checkpoint instead"
        )
    return lowercase, keep_accents, characters_map


def _replacement(step: Mapping[str, Any]) -> str:
    pattern = step.get("pattern")
    pattern = next(iter(pattern.values()), None) if isinstance(pattern, dict) else pattern
    return f"{pattern!r} by {step.get('content')!r}"


def _check_pre_tokenizer(tokenizer: TokenizerJson) -> None:
    steps = tokenizer.steps("pre_tokenizer")
    types = [step.get("type") for step in steps]
    last = steps[-1] if steps else {}
    begins_words = (
        last.get("prepend_scheme", "always") == "always"
        and last.get("add_prefix_space", True)
        and last.get("replacement", _SPACE) == _SPACE
    )
    # Files of transformers 4 have normalizers of runs of whitespace instead of WhitespaceSplit.
    normalizers = [step.get("type") for step in tokenizer.steps("normalizer")]
    splits = types == ["WhitespaceSplit", "Metaspace"] or (
        types == ["Metaspace"] and normalizers[-2:] == ["Precompiled", "Replace"]
    )
    if not splits or not begins_words:
        raise tokenizer.error(
            f"pre_tokenizer has the steps {_described(steps)}; expected ALBERT's, WhitespaceSplit "
            f"and a Metaspace that begins every text with {_SPACE}. Use the spiece.model of the "
            "checkpoint instead"
        )
