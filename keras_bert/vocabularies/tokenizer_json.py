# SPDX-License-Identifier: Apache-2.0
"""The `tokenizer.json` of the `tokenizers` library: WordPiece, BPE and unigram models.

ALBERT has one beside the SentencePiece model: without it, the `transformers` library (5.23) splits
texts at user-defined pieces and begins a word after each, so that its ids differ from
SentencePiece's.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.vocabularies.byte_pair_files import BLANK, check_merge, tokens_in_order
from keras_bert.vocabularies.files import read_json
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    read_characters_map,
    read_pieces,
    write_model,
)
from keras_bert.vocabularies.tokenizer_config import WORD_LENGTH

TOKENIZER_FILE = "tokenizer.json"

# Options of BPE models that are not supported, with the values that disable them
_OFF: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}
# The regular expression of each word pattern
_WORD_PATTERNS = {
    "gpt2": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
# The field that holds the steps of a part of type Sequence
_STEPS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
_QUOTES = ("``", "''")
_SPACES = " {2,}"
# The normalizer of DeBERTa's class in `transformers` 5, which ignores the model's normalization
_COMPOSING = [
    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
    {"type": "NFC"},
    {"type": "Strip", "strip_left": False, "strip_right": True},
]
# Steps that SentencePiece does itself: it joins runs of spaces, and strips spaces at the end
_OF_SPACES = (f"Replace {_SPACES!r} by ' '", f"Replace {_SPACES!r} by {BLANK!r}", "Strip")


class TokenizerJson:
    """The content of a `tokenizer.json`; a file without a JSON object is a `ValueError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fields = read_json(path)

    def part(self, name: str) -> Mapping[str, Any]:
        """Returns a top-level object of the file; `{}` if it is absent."""
        value: Mapping[str, Any] = self._fields.get(name) or {}
        return value

    def steps(self, name: str) -> list[Mapping[str, Any]]:
        """Returns a list of the steps of a normalizer, pre-tokenizer or post-processor."""
        part = self.part(name)
        if part.get("type") != "Sequence":
            return [part] if part else []
        steps: list[Mapping[str, Any]] = part[_STEPS[name]]
        return steps

    @property
    def kind(self) -> str:
        """The type of the model: `"WordPiece"`, `"BPE"` or `"Unigram"`; all else is an error."""
        kind = self.part("model").get("type")
        if kind not in ("WordPiece", "BPE", "Unigram"):
            raise self.error(f"model.type is {kind!r}; it must be 'WordPiece', 'BPE' or 'Unigram'")
        return str(kind)

    def vocabulary(self) -> tuple[str, ...]:
        """Returns the tokens of a WordPiece or BPE model, including added tokens."""
        vocabulary = self.part("model")["vocab"]
        ids = {token["content"]: token["id"] for token in self.added_tokens()}
        for token, index in ids.items():
            if vocabulary.get(token, index) != index:
                raise self.error(
                    f"{token!r} has the id {vocabulary[token]!r} in model.vocab, and {index!r} in "
                    "added_tokens"
                )
        return tokens_in_order({**vocabulary, **ids}, f"{self.path}: model.vocab")

    def added_tokens(self) -> Sequence[Mapping[str, Any]]:
        """Returns the added tokens, which include the special tokens."""
        added: Sequence[Mapping[str, Any]] = self._fields.get("added_tokens") or []
        return added

    def error(self, what: str) -> ValueError:
        """Creates an error that names the file."""
        return ValueError(f"{self.path}: {what}.")


def byte_pair_options(tokenizer: TokenizerJson) -> dict[str, Any]:
    """Reads how a BPE tokenizer splits and merges text, as fields of a tokenizer's config."""
    model = tokenizer.part("model")
    for name, off in _OFF.items():
        if model.get(name) not in off:
            raise tokenizer.error(f"model.{name} is {model[name]!r}, which is not supported")
    options = {
        "merges": merges_of(tokenizer),
        "ignore_merges": bool(model.get("ignore_merges", False)),
        "byte_fallback": bool(model.get("byte_fallback", False)),
    }
    if options["byte_fallback"]:
        _check_byte_fallback(tokenizer)
        return {**options, "add_prefix_space": False, "word_pattern": "gpt2", "compose": False}
    normalizer = tokenizer.steps("normalizer")
    if [step.get("type") for step in normalizer] not in ([], ["NFC"]):
        raise tokenizer.error(
            f"normalizer has the steps {_described(normalizer)}; expected none, or NFC"
        )
    word_pattern, add_prefix_space = _byte_words(tokenizer)
    return {
        **options,
        "add_prefix_space": add_prefix_space,
        "word_pattern": word_pattern,
        "compose": bool(normalizer),
    }


def merges_of(tokenizer: TokenizerJson) -> list[str]:
    """Reads the merges of a BPE model; malformed ones are a `ValueError`."""
    merges = tokenizer.part("model").get("merges")
    if not isinstance(merges, list):
        raise tokenizer.error(f"model.merges is {type(merges).__name__}; it must be a list")
    merges = [" ".join(map(str, merge)) if isinstance(merge, list) else merge for merge in merges]
    vocabulary = set(tokenizer.vocabulary())
    for index, merge in enumerate(merges):
        check_merge(merge, vocabulary, f"{tokenizer.path}: model.merges[{index}]")
    return merges


def _check_byte_fallback(tokenizer: TokenizerJson) -> None:
    """Checks that a tokenizer with byte fallback replaces spaces and splits no words, as Gemma's.

    Gemma's pre-tokenizer splits at spaces, but the normalizer has replaced them all.
    """
    steps = tokenizer.steps("normalizer")
    replaced = [
        (step.get("pattern"), step.get("content"))
        for step in steps
        if step.get("type") == "Replace"
    ]
    if len(steps) != 1 or replaced != [({"String": " "}, BLANK)]:
        raise tokenizer.error(
            f"model.byte_fallback is True, and normalizer has the steps {_described(steps)}; "
            f"expected Gemma's, Replace ' ' by {BLANK!r}"
        )
    steps = tokenizer.steps("pre_tokenizer")
    of_spaces = [step.get("pattern") == {"String": " "} for step in steps]
    if steps and ([step.get("type") for step in steps] != ["Split"] or not all(of_spaces)):
        raise tokenizer.error(
            f"model.byte_fallback is True, and pre_tokenizer is {_described(steps)}; expected "
            "Gemma's, a Split at ' ', or none"
        )
    normalized_tokens = [
        token.get("content") for token in tokenizer.added_tokens() if token.get("normalized", False)
    ]
    if any(BLANK in str(token) for token in normalized_tokens):
        raise tokenizer.error(
            f"an added token has {BLANK} and is found in normalized text, which is not supported"
        )


def _byte_words(tokenizer: TokenizerJson) -> tuple[str, bool]:
    """Reads the pattern of words, and whether a space is added before a text."""
    steps = tokenizer.steps("pre_tokenizer")
    *splits, last = steps or [{}]
    names = {pattern: name for name, pattern in _WORD_PATTERNS.items()}
    word_pattern = None
    if last.get("type") == "ByteLevel" and last.get("use_regex", True) == (not splits):
        if not splits:
            word_pattern = "gpt2"
        # After a Split, add_prefix_space would add a space before every word.
        elif splits[0].get("type") == "Split" and not (splits[1:] or last.get("add_prefix_space")):
            is_usual = splits[0].get("behavior") == "Isolated" and not splits[0].get("invert")
            pattern = splits[0].get("pattern")
            regex = pattern.get("Regex") if isinstance(pattern, dict) else None
            word_pattern = names.get(str(regex)) if is_usual else None
    if word_pattern is None:
        raise tokenizer.error(
            f"pre_tokenizer is {_described(steps)}; it must be ByteLevel with its use_regex, or a "
            f"Split at the regular expression of {' or '.join(_WORD_PATTERNS)}, Isolated, before "
            "a ByteLevel without"
        )
    return word_pattern, bool(last.get("add_prefix_space", False))


def byte_pair_json(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json` for a config with defaults.

    `names` are the special tokens by their roles.
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
        "pattern": {"Regex": _WORD_PATTERNS[config["word_pattern"]]},
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


def wordpiece_options(tokenizer: TokenizerJson) -> dict[str, Any]:
    """Reads how a WordPiece tokenizer normalizes and splits text, as fields of a config.

    Steps that BERT's tokenizer does not have are an error.
    """
    model = tokenizer.part("model")
    prefix = model.get("continuing_subword_prefix", "##")
    if prefix != "##":
        raise tokenizer.error(f"model.continuing_subword_prefix is {prefix!r}; it must be '##'")
    length = model.get("max_input_chars_per_word", 100)
    if not WORD_LENGTH.allows(length):
        raise tokenizer.error(
            f"model.max_input_chars_per_word is {length!r}; it must be {WORD_LENGTH}"
        )
    steps = tokenizer.steps("pre_tokenizer")
    # BertPreTokenizer does the same as the other two together.
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
    if [step.get("type") for step in steps] != ["BertNormalizer"]:
        raise tokenizer.error(
            f"normalizer has the steps {_described(steps)}; it must be BertNormalizer"
        )
    expected_options = {
        "lowercase": (True, False),
        "strip_accents": (None, True, False),
        "handle_chinese_chars": (True, False),
        "clean_text": (True,),
    }
    options = {name: steps[0].get(name, allowed[0]) for name, allowed in expected_options.items()}
    for name, allowed in expected_options.items():
        if options[name] not in allowed:
            raise tokenizer.error(
                f"normalizer.{name} is {options[name]!r}; it must be "
                f"{' or '.join(map(repr, allowed))}"
            )
    return {
        "lowercase": options["lowercase"],
        "strip_accents": options["strip_accents"],
        "tokenize_chinese_chars": options["handle_chinese_chars"],
        "max_word_length": int(length),
    }


def wordpiece_json(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json`; see `byte_pair_json`."""
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
            "vocab": _words_of_model(config),
        },
    }


def _words_of_model(config: Mapping[str, Any]) -> dict[str, int]:
    """Returns the tokens that are also found as words: not those that were added at the end.

    `tokenizers` numbers added tokens that are no words from the end of the vocabulary on.
    """
    words = list(config["vocabulary"])
    while words[-1] in config["added_tokens"]:
        words.pop()
    return {token: index for index, token in enumerate(words)}


class RowFormats(NamedTuple):
    """How a post-processor packs texts into rows.

    Args:
        single: The special tokens of a row with one text, and `A` for the text, each with its
            segment.
        pair: The same for a row with two texts, `A` and `B`.
        ids: The ids that each special token has in a row.
    """

    single: list[tuple[str, int]]
    pair: list[tuple[str, int]]
    ids: dict[str, list[Any]]


def row_formats(tokenizer: TokenizerJson) -> RowFormats:
    """Reads how the post-processor packs one or two texts into a row.

    Post-processors of other types are an error.
    """
    # ByteLevel changes offsets only.
    steps = [step for step in tokenizer.steps("post_processor") if step.get("type") != "ByteLevel"]
    kinds = ("BertProcessing", "RobertaProcessing", "TemplateProcessing")
    if len(steps) != 1 or steps[0].get("type") not in kinds:
        raise tokenizer.error(
            f"post_processor has the steps {_described(steps)}; it must be one of "
            f"{', '.join(kinds)}, without which no special tokens are added"
        )
    step = steps[0]
    if step["type"] == "TemplateProcessing":
        single, pair = ([_template_part(part) for part in step[row]] for row in ("single", "pair"))
        special = step.get("special_tokens") or {}
        return RowFormats(single, pair, {name: token["ids"] for name, token in special.items()})
    (cls, cls_id), (sep, sep_id) = step["cls"], step["sep"]
    single = [(cls, 0), ("A", 0), (sep, 0)]
    pair = [*single, ("B", 1), (sep, 1)]
    if step["type"] == "RobertaProcessing":
        # Without these fields, `tokenizers` reads it as a BertProcessing.
        if not all(isinstance(step[name], bool) for name in ("trim_offsets", "add_prefix_space")):
            raise TypeError("trim_offsets and add_prefix_space must be true or false")
        pair = [*single, (sep, 0), ("B", 0), (sep, 0)]
    return RowFormats(single, pair, {cls: [cls_id], sep: [sep_id]})


def _template_part(part: Mapping[str, Mapping[str, Any]]) -> tuple[str, int]:
    if len(part) != 1:
        raise TypeError(f"a template has the part {part!r}")
    ((kind, value),) = part.items()
    if (kind == "Sequence") != (value["id"] in ("A", "B")):
        raise TypeError(f"{kind} is {value['id']!r}")
    return value["id"], value["type_id"]


def _described(steps: Sequence[Mapping[str, Any]]) -> str:
    """Returns the types of steps for an error message."""
    return ", ".join(str(step.get("type")) for step in steps) or "missing"


def unigram_json(
    model: bytes, config: Mapping[str, Any], names: Mapping[str, str], vocabulary: Sequence[Piece]
) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json` for a SentencePiece model; see `byte_pair_json`.

    `vocabulary` has the pieces without DeBERTa's mask token, which is an added token. ALBERT's rule
    for commas after numbers does not exist in this format.
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
    added = [
        _added_token(piece.text, index, piece.text == names["mask"])
        for index, piece in enumerate(pieces)
        if piece.text in names.values() or piece.type == PieceType.CONTROL
    ]
    return {
        **_beginning(added),
        "normalizer": {
            "type": "Sequence",
            "normalizers": _COMPOSING if config["compose"] else _normalizers(model, config),
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


def unigram_model(tokenizer: TokenizerJson) -> bytes:
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


def _present(names: Mapping[str, str], ids: Mapping[str, int]) -> list[str]:
    """Returns the special tokens that a vocabulary has, each once."""
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
    """Returns the first fields of all files."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
    }


def _normalizers(model: bytes, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": pair}, "content": '"'}
        for pair in (_QUOTES if config["albert_rules"] else ())
    ]
    if not config["keep_accents"]:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if config["lowercase"]:
        steps.append({"type": "Lowercase"})
    characters_map = read_characters_map(model)
    if characters_map:
        encoded = base64.b64encode(characters_map).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    return [*steps, {"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "}]


def _template(
    ids: Mapping[str, int], names: Mapping[str, str], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the post-processor, which puts texts between special tokens."""
    cls, sep = names["cls"], names["sep"]
    between = [sep] * config["pair_separators"]
    if config.get("repeats_cls"):
        between[-1] = cls
    # The segment of the second text and of the token after it; BPE families have one segment.
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


def pieces_without_mask(pieces: Sequence[Piece], mask: str) -> Sequence[Piece]:
    """Returns pieces without a mask token at their end."""
    text, _, kind = pieces[-1]
    return pieces[:-1] if (text, kind) == (mask, PieceType.CONTROL) else pieces


def unigram_options(tokenizer: TokenizerJson) -> dict[str, bool]:
    """Reads how a unigram tokenizer normalizes and splits text, as fields of a config.

    Steps that none of ALBERT, XLM-RoBERTa and DeBERTa has are an error.
    """
    if tokenizer.part("model").get("byte_fallback"):
        raise tokenizer.error("model.byte_fallback is True, which is not supported")
    steps = tokenizer.steps("normalizer")
    if composes(tokenizer):
        _check_pre_tokenizer(tokenizer, steps)
        return {"lowercase": False, "keep_accents": True, "albert_rules": False, "compose": True}
    names = [
        f"Replace {_replacement(step)}" if step.get("type") == "Replace" else str(step.get("type"))
        for step in steps
    ]
    keep_accents, lowercase = "StripAccents" not in names, "Lowercase" in names
    rules = [f"Replace {quotes!r} by '\"'" for quotes in _QUOTES]
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


def composes(tokenizer: TokenizerJson) -> bool:
    """Returns whether a unigram tokenizer composes characters, as DeBERTa's class does."""
    return tokenizer.steps("normalizer") == _COMPOSING


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
    drops_spaces = normalizers == _COMPOSING or (
        kinds == ["Precompiled", "Strip", "Replace"] and normalizers[-2].get("strip_right") is True
    )
    splits = types == ["WhitespaceSplit", "Metaspace"] or (types == ["Metaspace"] and drops_spaces)
    if not splits or not begins_words:
        raise tokenizer.error(
            f"pre_tokenizer has the steps {_described(steps)}; expected ALBERT's, WhitespaceSplit "
            f"and a Metaspace that begins every text with {BLANK}, or that Metaspace alone after "
            "the normalizers Precompiled, Strip on the right, and Replace of runs of spaces"
        )
