# SPDX-License-Identifier: Apache-2.0
"""A sample of the comparison of altered tokenizer files with `transformers`."""

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from tests.vocabularies import altered_tokenizers

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_altered_files_match_transformers():
    by_outcome = altered_tokenizers.run(every=97, progress=False)
    assert not by_outcome["differ"]
    assert not by_outcome["traceback"]
    assert len(by_outcome["equal"]) > 15
    assert len(by_outcome["ours refuses"]) > 3
