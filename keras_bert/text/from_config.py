# SPDX-License-Identifier: Apache-2.0
"""Creates tokenizers from their configs."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Mapping
from typing import Any

from keras_bert.text.tokenizer import Tokenizer, tokenizer_class
from keras_bert.vocabularies.tokenizer_config import check_tokenizer_config

# Maps config hashes to the tokenizers in use. Models with the same vocabulary, for example from
# runs with different seeds, share a tokenizer, so its graph is traced only once.
_IN_USE: weakref.WeakValueDictionary[bytes, Tokenizer] = weakref.WeakValueDictionary()


def tokenizer_from_config(config: Mapping[str, Any]) -> Tokenizer:
    """Creates a tokenizer from a config that its `get_config` returned.

    Tokenizers do not change, so equal configs share a tokenizer while it is in use.

    Args:
        config: A dict with the class's arguments and `kind`: `"wordpiece"` (default), `"byte_pair"`
            or `"sentence_piece"`.

    Returns:
        A `Tokenizer`.

    Raises:
        ValueError: If `kind` has an unsupported value or an argument is invalid. Paths are not
            supported, because a config does not refer to files.
    """
    kind = check_tokenizer_config(config)
    text = json.dumps({**config, "kind": kind}, sort_keys=True)
    key = hashlib.sha256(text.encode()).digest()
    tokenizer = _IN_USE.get(key)
    if tokenizer is None:
        tokenizer = _IN_USE[key] = tokenizer_class(kind).from_config(dict(config))
    return tokenizer
