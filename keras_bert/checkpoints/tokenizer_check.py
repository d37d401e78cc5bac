# SPDX-License-Identifier: Apache-2.0
"""Compares a saved `tokenizer.json` with the tokenizer, using the `tokenizers` library."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checks import shorten_repr
from keras_bert.vocabularies.tokenizer_json import TOKENIZER_FILE

# They do not contain what the library treats differently from the original code: U+0085, U+FFFD,
# private-use characters, and for ALBERT a comma after a digit.
_TEXTS = (
    "",
    "\t a\n b\r\n ",
    "Größe ÉCOLE e\u0301 İstanbul ŒUVRE ﬁ ① ½ K Å",
    "今天天气 東京タワー ｶﾀｶﾅ ガギ",
    "한국어 \u1112\u1161\u11ab 모델",
    "مرحبا بالعالم नमस्ते 𝒳 ไทย Ещё Йод",
    "👍🏽 👨\u200d👩\u200d👧 \u200b\u00ad\ufeff x",
    "\x00 \x7f \u2028 a",
    "don't ``quoted'' \"a\" (b) [c] _d_ ##e ▁f Ġg",
    "x" * 300,
    "!?...--- 3.5 10:30 a/b@c.d http://x.y/z?q=1#f",
)


def check_tokenizer_json(directory: Path, tokenizer: Any) -> None:
    """Checks that `tokenizer.json` gives the same ids as the tokenizer, for texts and text pairs.

    Other runtimes, such as transformers.js, read this file with other code. Does nothing if the
    package `tokenizers` is not installed.

    Args:
        directory: The directory of the file.
        tokenizer: The `keras_bert.text.Tokenizer`.

    Raises:
        CheckpointError: If the ids of a text differ. The message contains the text.
    """
    if importlib.util.find_spec("tokenizers") is None:
        return
    import tokenizers

    library_tokenizer = tokenizers.Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    for text in _TEXTS:
        for texts in ((text,), (text, text)):
            expected = tokenizer.encode(*texts)
            ids = library_tokenizer.encode(*texts).ids
            if ids != expected:
                raise CheckpointError(
                    f"{TOKENIZER_FILE} must give the tokenizer's ids in other libraries. Received: "
                    f"{shorten_repr(ids)} instead of {shorten_repr(expected)} for the text "
                    f"{shorten_repr(text)}. Save the model with `save_to_preset`."
                )
