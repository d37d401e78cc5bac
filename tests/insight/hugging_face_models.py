# SPDX-License-Identifier: Apache-2.0
"""Small random models of `transformers`, in folders as Hugging Face stores them."""

from pathlib import Path
from typing import Any

import torch
import transformers


def save_model(kind: type[Any], tokens: list[str], folder: Path, **changes: Any) -> Path:
    """Writes a model of a class of `transformers`, and its vocabulary; returns the folder."""
    torch.manual_seed(1)
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    kind_of_config = kind.config_class
    sizes = {kind_of_config.attribute_map.get(name, name): size for name, size in sizes.items()}
    config = kind_of_config(vocab_size=len(tokens), **{**sizes, **changes})
    kind(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return folder


def save_masked_lm(tokens: list[str], folder: Path) -> Path:
    """Writes a masked LM whose predictions differ much from token to token; returns the folder."""
    kind, sizes = transformers.BertForMaskedLM, {"max_position_embeddings": 64}
    return save_model(kind, tokens, folder, initializer_range=0.5, **sizes)


def save_classifier(tokens: list[str], folder: Path, **config: Any) -> Path:
    """Writes a classifier with three classes and returns its directory."""
    defaults = {"max_position_embeddings": 64, "initializer_range": 0.6, "num_labels": 3}
    return save_model(
        transformers.BertForSequenceClassification, tokens, folder, **{**defaults, **config}
    )
