# SPDX-License-Identifier: Apache-2.0
"""Small random `transformers` models in the Hugging Face format."""

from pathlib import Path
from typing import Any

import torch
import transformers


def save_model(kind: type[Any], tokens: list[str], directory: Path, **changes: Any) -> Path:
    """Saves a `transformers` model and its vocabulary, and returns the directory."""
    torch.manual_seed(1)
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config_class = kind.config_class
    sizes = {config_class.attribute_map.get(name, name): size for name, size in sizes.items()}
    config = config_class(vocab_size=len(tokens), **{**sizes, **changes})
    kind(config).save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return directory


def save_masked_lm(tokens: list[str], directory: Path) -> Path:
    """Saves a masked LM whose predictions differ much between tokens, and returns the directory."""
    kind, sizes = transformers.BertForMaskedLM, {"max_position_embeddings": 64}
    return save_model(kind, tokens, directory, initializer_range=0.5, **sizes)


def save_classifier(tokens: list[str], directory: Path, **config: Any) -> Path:
    """Saves a classifier with three classes, and returns the directory."""
    defaults = {"max_position_embeddings": 64, "initializer_range": 0.6, "num_labels": 3}
    return save_model(
        transformers.BertForSequenceClassification, tokens, directory, **{**defaults, **config}
    )
