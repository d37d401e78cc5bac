# SPDX-License-Identifier: Apache-2.0
"""The base class of embedders, which add prompts to queries and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.data.adapters.texts import TextAdapter, single_texts, text_columns
from keras_bert.data.columns import (
    as_string,
    columns_of_rows,
    first_of_element,
    is_dataset,
    materialize,
)
from keras_bert.data.prompts import Prompts
from keras_bert.tasks.task import Task


class PromptedTask(Task):
    """Base class of tasks with the options `prompts` and `default_prompt_name`."""

    @property
    def _all_prompts(self) -> Prompts:
        return Prompts.from_task(self)

    def embed_queries(
        self, x: Any, batch_size: int | None = None, verbose: int | str = 0, **options: Any
    ) -> Any:
        """Computes the embeddings of queries, with the model's prompt for queries.

        This is the prompt called `query`. Without it, no prompt is added. Many models have
        different prompts for queries and documents, and find fewer documents without them.

        Args:
            x: See `embed`.
            batch_size: See `embed`.
            verbose: See `embed`.
            **options: Other arguments of `embed`, except for prompts: `dimensions` of a
                `TextEmbedder`, and `max_active_dims` of a `SparseEmbedder`.

        Returns:
            See `embed`.

        Raises:
            ImportError: See `embed`.
            ValueError: See `embed`.

        Example:

        ```python
        embedder = TextEmbedder.from_preset(
            "hf://intfloat/multilingual-e5-small",
            prompts={"query": "query: ", "document": "passage: "},
        )
        documents = ["Paris is the capital of France.", "Rome is the capital of Italy."]
        vectors = embedder.embed_documents(documents)
        vectors @ embedder.embed_queries("What is the capital of Italy?")
        ```
        """
        name = self._all_prompts.query_name
        return self.embed(x, batch_size, verbose, prompt_name=name, **options)

    def embed_documents(
        self, x: Any, batch_size: int | None = None, verbose: int | str = 0, **options: Any
    ) -> Any:
        """Computes the embeddings of documents, with the model's prompt for documents.

        This is the first prompt called `document`, `passage` or `corpus`. Without any of them, no
        prompt is added. See `embed_queries` for an example.

        Args:
            x: See `embed`.
            batch_size: See `embed`.
            verbose: See `embed`.
            **options: See `embed_queries`.

        Returns:
            See `embed`.

        Raises:
            ImportError: See `embed`.
            ValueError: See `embed`.
        """
        name = self._all_prompts.document_name
        return self.embed(x, batch_size, verbose, prompt_name=name, **options)

    def serving_answers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        texts = columns_of_rows(rows, self.fields)["text"]
        embed = getattr(self, self.predict_method)
        return self.serving_embeddings(embed(texts)) if len(rows) else []

    def serving_embeddings(self, embeddings: Any) -> list[dict[str, Any]]:
        """Returns the outputs that the signatures return after `export`, for each embedding.

        Args:
            embeddings: The embeddings, as `embed` or `predict` returns them for a list of texts.
        """
        return [{"embedding": vector.tolist()} for vector in embeddings]

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        """Returns the text to add in front of each text, given the arguments of `embed`."""
        if prompt is None:
            return self._all_prompts.text(name)
        if name is not None:
            raise ValueError(
                "Only one of prompt and prompt_name may be given. Received: "
                f"prompt={prompt!r}, prompt_name={name!r}"
            )
        if prompt in self._all_prompts.texts:
            raise ValueError(
                "prompt must be the text to add in front of each text. Received: "
                f"{prompt!r}, the name of a prompt. Pass prompt_name={prompt!r}."
            )
        return prompt


def check_single_texts(x: Any) -> Any:
    """Reads iterators, and checks that texts in any form are not pairs."""
    x = materialize(x)
    columns = first_of_element(x.element_spec) if is_dataset(x) else text_columns(x)
    if isinstance(columns, Mapping) and "text_pair" in columns:
        raise ValueError("x must be single texts. Received: pairs of texts")
    return x


def texts_with_prompt(x: Any, prompt: str) -> TextAdapter:
    """Reads single texts in any form, with a prompt in front of each. Labels are ignored."""
    return TextAdapter.read([f"{prompt}{text}" for text in _texts_in_memory(x)])


def _texts_in_memory(x: Any) -> list[str]:
    """Converts single texts in any form to strings. The labels in a dataset are ignored."""
    if not is_dataset(x):
        return single_texts(x)
    elements = map(first_of_element, x.as_numpy_iterator())
    texts = (element["text"] if isinstance(element, Mapping) else element for element in elements)
    return [as_string(text) for batch in texts for text in np.ravel(np.asarray(batch, object))]
