# SPDX-License-Identifier: Apache-2.0
"""The `tokenizer.json` of the tokenizers library: which tokenizer it is, and its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json

TOKENIZER_FILE = "tokenizer.json"


class TokenizerJson:
    """The fields of a file.

    Args:
        path: The file.

    Raises:
        CheckpointError: If it cannot be read or holds no object.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fields = read_json(path)

    def part(self, name: str) -> Mapping[str, Any]:
        """An object of the file, `{}` where there is none."""
        value = self._fields.get(name)
        return value if isinstance(value, dict) else {}

    def steps(self, name: str) -> list[Mapping[str, Any]]:
        """The steps of a normalizer or a pre-tokenizer, a single one too."""
        part = self.part(name)
        if part.get("type") != "Sequence":
            return [part] if part else []
        steps = part.get(f"{name}s", part.get("pretokenizers"))
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise self.error(f"{name} is a Sequence of {steps!r}; expected a list of objects")
        return steps

    @property
    def kind(self) -> str:
        """The type of the model.

        Raises:
            CheckpointError: If it is none that there is a tokenizer for.
        """
        kind = self.part("model").get("type")
        if kind not in ("WordPiece", "BPE", "Unigram"):
            raise self.error(f"model.type is {kind!r}; it must be 'WordPiece', 'BPE' or 'Unigram'")
        return str(kind)

    def vocabulary(self) -> list[str]:
        """The tokens of a model with ids for tokens, and the added ones."""
        vocabulary = self.part("model").get("vocab")
        if not isinstance(vocabulary, dict):
            raise self.error(
                f"model.vocab is {type(vocabulary).__name__}; it must be a dictionary of ids"
            )
        try:
            ids = {token["content"]: token["id"] for token in self.added_tokens()}
        except (KeyError, TypeError) as error:
            raise self.error(
                f"added_tokens must hold objects with id and content ({error!r})"
            ) from error
        return tokens_in_order({**vocabulary, **ids}, f"{self.path}: model.vocab")

    def added_tokens(self) -> Sequence[Mapping[str, Any]]:
        """The tokens that are not the model's own, or special."""
        return self._fields.get("added_tokens") or ()

    def error(self, what: str) -> CheckpointError:
        """An error that names the file."""
        return CheckpointError(f"{self.path}: {what}.")


def tokens_in_order(ids: Mapping[str, Any], where: str) -> list[str]:
    """Tokens by their ids.

    Args:
        ids: The id of each token.
        where: What they are, for messages.

    Raises:
        CheckpointError: If the ids are not 0, 1, 2 …
    """
    try:
        tokens = {int(index): token for token, index in ids.items()}
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{where} must give each token an id; the file is malformed ({error!r})."
        ) from error
    gaps = [index for index in range(len(tokens)) if index not in tokens]
    if gaps or not tokens:
        raise CheckpointError(
            f"{where} must give the ids 0, 1, 2 …, each to a word piece; "
            f"no piece has id {gaps[0] if gaps else 0}."
        )
    return [tokens[index] for index in range(len(tokens))]
