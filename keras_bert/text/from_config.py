# SPDX-License-Identifier: Apache-2.0
"""Creation of tokenizers from their configs."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Mapping
from typing import Any

from keras_bert.text.tokenizer import Tokenizer, tokenizer_class
from keras_bert.vocabularies.tokenizer_config import check_tokenizer_config

# The tokenizers in use by the hashes of their configs: models with the same vocabulary, such as
# models of several seeds, share one, and its graph is traced once.
_IN_USE: weakref.WeakValueDictionary[bytes, Tokenizer] = weakref.WeakValueDictionary()


def tokenizer_from_config(config: Mapping[str, Any]) -> Tokenizer:
    """Returns a tokenizer with the config that its `get_config` returned.

    Tokenizers do not change, so equal configs share one as long as it is in use.

    Args:
        config: A dict of the arguments of the class and of `kind`: `"wordpiece"`, `"byte_pair"` or
            `"sentence_piece"`. Without `kind`, it is the config of a `WordPieceTokenizer`.

    Returns:
        A tokenizer.

    Raises:
        ValueError: If `kind` is not one of the above, or an argument of the class is invalid; a
            path is, since a config names no files.
    """
    kind = check_tokenizer_config(config)
    text = json.dumps({**config, "kind": kind}, sort_keys=True)
    key = hashlib.sha256(text.encode()).digest()
    tokenizer = _IN_USE.get(key)
    if tokenizer is None:
        tokenizer = _IN_USE[key] = tokenizer_class(kind).from_config(dict(config))
    return tokenizer
