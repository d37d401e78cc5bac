# SPDX-License-Identifier: Apache-2.0
"""An embedder's prompts: texts in front of queries and documents, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from keras_bert import checks
from keras_bert.text.characters import check_characters

if TYPE_CHECKING:
    from keras_bert.data.packing import Preprocessor

# sentence-transformers tries these names in this order.
_DOCUMENT_NAMES = ("document", "passage", "corpus")


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Prompts by name, as in a sentence-transformers model.

    Args:
        texts: The text of each prompt by its name. An empty text is a prompt that adds nothing.
        default_name: The name of the prompt for texts without a prompt. `None` adds nothing.

    Raises:
        ValueError: If a name or a text is not a string, or if `default_name` is not in `texts`.

    Example:

    >>> prompts = Prompts({"query": "query: ", "passage": "passage: "}, default_name="passage")
    >>> prompts.text(), prompts.text("query"), prompts.document_name
    ('passage: ', 'query: ', 'passage')
    """

    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.texts, Mapping) or not all(
            isinstance(value, str) for item in self.texts.items() for value in item
        ):
            raise ValueError(
                'prompts must be a dict from names to texts, such as {"query": "query: "}. '
                f"Received: {checks.shorten_repr(self.texts)}"
            )
        for name, text in self.texts.items():
            check_characters(text, f"The prompt {name!r}")
        if self.default_name is not None and self.default_name not in self.texts:
            raise ValueError(
                f"default_prompt_name must be {self._choices}. Received: {self.default_name!r}"
            )

    @classmethod
    def from_task(cls, task: Any) -> Self:
        """Returns an embedder's prompts. Other tasks have none."""
        texts = dict(getattr(task, "prompts", {}))
        return cls(texts, getattr(task, "default_prompt_name", None))

    @property
    def _choices(self) -> str:
        names = ", ".join(map(repr, self.texts))
        return f"one of {names}" if names else "None, because the model has no prompts"

    @property
    def rule(self) -> str:
        """The rule for prompt names, for error messages."""
        return f"prompt_name must be {self._choices}"

    def text(self, name: str | None = None) -> str:
        """Returns a prompt's text, or `""` for the name `""`. `None` is the default prompt.

        Raises:
            ValueError: If the model has no prompt with this name.
        """
        name = self.default_name if name is None else name
        if not name:
            return ""
        if name not in self.texts:
            raise ValueError(f"{self.rule}. Received: {name!r}")
        return self.texts[name]

    @property
    def query_name(self) -> str:
        """The name of the prompt for queries, or `""` if queries have no prompt."""
        return "query" if "query" in self.texts else ""

    @property
    def document_name(self) -> str:
        """The name of the prompt for documents, or `""` if documents have no prompt."""
        return next((name for name in _DOCUMENT_NAMES if name in self.texts), "")

    def name_of_input_type(self, input_type: str) -> str:
        """Returns the prompt's name, or `""`, for an `input_type` of an embedding API.

        It is `query` for queries, and `document`, `passage` or `corpus` for documents, as in the
        APIs of Voyage AI and NVIDIA NIM. Cohere's `search_` or Jina AI's `retrieval.` may precede
        it. It may also be the name of a prompt.

        Raises:
            ValueError: If it is none of them.
        """
        kinds = {"query": self.query_name, **dict.fromkeys(_DOCUMENT_NAMES, self.document_name)}
        names = {**kinds, **{name: name for name in self.texts}}
        kind = input_type.removeprefix("search_").removeprefix("retrieval.")
        name = input_type if input_type in names else kind
        if name not in names:
            raise ValueError(
                f"input_type must be one of {', '.join(names)}. Received: {input_type!r}"
            )
        return names[name]


def num_prompt_tokens(preprocessor: Preprocessor, prompt: str) -> int:
    """Counts the first tokens of a sequence that a prompt adds to `[CLS]`, including `[CLS]`.

    Like sentence-transformers, it tokenizes the prompt alone. It is 0 without a prompt.
    """
    if not prompt:
        return 0
    _, (length,) = preprocessor.tokenizer.flat_ids([prompt])
    return min(1 + int(length), preprocessor.sequence_length - 1)
