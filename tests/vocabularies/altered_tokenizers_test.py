# SPDX-License-Identifier: Apache-2.0
"""Compares a sample of altered tokenizer files with `transformers`."""

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from tests.vocabularies import altered_tokenizers

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_altered_files_match_transformers():
    descriptions = altered_tokenizers.run(every=97, progress=False)
    assert not descriptions["differ"]
    assert not descriptions["traceback"]
    assert len(descriptions["equal"]) > 15
    assert len(descriptions["keras_bert rejects"]) > 3
