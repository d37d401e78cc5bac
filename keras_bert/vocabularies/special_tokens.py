# SPDX-License-Identifier: Apache-2.0
"""Reads special and added tokens from tokenizer files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.families.shared import ROBERTA_TOKENS, WORDPIECE_TOKENS
from keras_bert.vocabularies.tokenizer_config import BYTE_PAIR, WORDPIECE
from keras_bert.vocabularies.tokenizer_json import TokenizerJson, row_formats
from keras_bert.vocabularies.tokenizer_settings import ALBERT_TOKENS, SAME_ROLES, TokenizerSettings

# The special tokens to look for by role, if the files do not define them
_USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    # Gemma's vocabulary also contains `<s>`.
    "cls": ("<bos>", "<s>", "[CLS]"),
    "sep": ("<eos>", "</s>", "[SEP]"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}


def read_special_tokens(
    file: TokenizerJson, settings: TokenizerSettings, vocabulary: Sequence[str]
) -> tuple[dict[str, str], list[str], int]:
    """Reads the special tokens of a tokenizer defined by its `tokenizer.json`.

    CLS and SEP are the tokens that its post-processor adds. The other special tokens are defined in
    `tokenizer_config.json` or `special_tokens_map.json`, or have their usual names. If the
    vocabulary has no padding token, the SEP token is used. If it has no unknown token, the padding
    token is used.

    Returns the tokens by role, the tokens between two texts, and the number of segments.
    """
    names = {}
    for role, usual in _USUAL_NAMES.items():
        candidates = [settings.token(name) for name in (role, SAME_ROLES.get(role, role))]
        if candidates[0] is not None and candidates[0] not in vocabulary:
            what = f"must be in the vocabulary ({len(vocabulary)} tokens)"
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
            "post_processor must add one token before and one after each text, for example "
            f"{names['cls']} A {names['sep']}. Received: {' '.join(single) or 'no tokens'}"
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
            f"post_processor must return {' '.join(usual_row)} for a text pair. Received: "
            f"{' '.join(pair)}"
        )
    for token in (cls, sep):
        if token not in vocabulary or formats.ids.get(token) != [vocabulary.index(token)]:
            raise file.error(
                f"post_processor must give {token!r} its id in the vocabulary. Received: "
                f"{formats.ids.get(token)}"
            )
    segments = [[segment for _, segment in row] for row in (formats.single, formats.pair)]
    firsts = len(between) + 2
    expected_segments = [[0, 0, 0], [0] * firsts + [1, 1]]
    is_usual = file.kind == "WordPiece" or (file.kind == "Unigram" and cls == ALBERT_TOKENS["cls"])
    if not settings.has_segments(is_usual) or not any(map(any, segments)):
        return names, between, 1
    if segments != expected_segments or file.kind == "BPE":
        raise file.error(
            f"post_processor must give pairs the segment ids {expected_segments[1]}, or only 0. "
            f"Received: {segments[1]}"
        )
    return names, between, 2


def check_names(
    names: Mapping[str, str], vocabulary: Collection[str], path: Path, expected: str
) -> None:
    """Checks that a vocabulary contains all special tokens except the mask token."""
    required = list(dict.fromkeys(names[role] for role in ("cls", "pad", "sep", "unk")))
    absent_tokens = [token for token in required if token not in vocabulary]
    if absent_tokens:
        raise ValueError(
            f"{path}: the vocabulary of {len(vocabulary)} tokens lacks {', '.join(absent_tokens)}. "
            f"{expected} {', '.join(required)}."
        )


def renamed_tokens(names: Mapping[str, str], usual: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the special tokens that differ from the usual tokens, or `None` if all are equal."""
    return {role: name for role, name in names.items() if name != usual[role]} or None


def reject_options(token: Mapping[str, Any], options: Iterable[str]) -> None:
    """Raises a `ValueError` if an added token has one of some options."""
    for option in options:
        if token.get(option):
            raise ValueError(
                f"{token['path']}: {option} of the added token {token['content']!r} is not "
                f"supported and must be false. Received: {token[option]!r}"
            )


def with_added_tokens(
    config: dict[str, Any], settings: TokenizerSettings
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Adds the added tokens to a WordPiece or BPE tokenizer's config.

    Also returns whether each token includes preceding whitespace, if files define it. The ids of
    new tokens must follow the vocabulary. `single_word` is not supported. With BPE, `rstrip` is not
    supported either, and `lstrip` only for the mask token. With WordPiece that lowercases or strips
    accents, `normalized` is not supported for special tokens.
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
                continue  # For example, the vocabulary has no mask token.
            index = indices.get(content, len(vocabulary))
        if index == len(vocabulary) and content not in indices:
            indices[content] = index
            vocabulary.append(content)
        elif not 0 <= index < len(vocabulary) or vocabulary[index] != content:
            has = repr(vocabulary[index]) if 0 <= index < len(vocabulary) else "no token"
            raise ValueError(
                f"{token['path']}: the id of the added token {content!r} must match the vocabulary "
                f"of {len(vocabulary)} tokens. Received: the id {index} of {has}"
            )
    lstrip = {
        token["content"]: token.get("lstrip", False)
        for token in added
        if "lstrip" in token or (token["id"] is not None and "special" in token)
    }
    for token in added:
        rejected = ["single_word"]
        if kind == BYTE_PAIR:
            rejected += ["rstrip"] if token["content"] == roles["mask"] else ["lstrip", "rstrip"]
        elif token["content"] in roles.values() and is_normalized:
            rejected.append("normalized")
        reject_options(token, rejected)
    own = [token for token in added if token["content"] not in roles.values()]
    names = [token["content"] for token in own]
    special = [token["content"] for token in own if token.get("special", False)]
    # A token with "normalized" is found in the normalized text.
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
