# SPDX-License-Identifier: Apache-2.0
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")

from training.benchmarks import tokenizer
from training.engine.pretrained import minilm_folder

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_all_tokenizers_tokenize_the_same_texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("A sentence of seven tokens, then.\n\nAnd another one\n", encoding="utf-8")
    results = tokenizer.run(
        rounds=2, num_lines=1500, text_file=path, vocabulary_file=minilm_folder() / "vocab.txt"
    )
    assert (results["texts"], results["characters"]) == (1500, 750 * (33 + 15))
    names = ("first_pass", "cached", "graph", "keras_hub", "tokenizers")
    assert results["tokens"] == dict.fromkeys(names, 750 * 12)
    assert results["speedup"]["cached"] == 1
    for name, median in results["tokens_per_second"].items():
        assert 0 < results["slowest"][name] <= median <= results["fastest"][name]


def test_packages_that_are_not_installed_are_left_out(monkeypatch):
    monkeypatch.setattr(tokenizer, "DEFAULT_PACKAGES", ("no_such_package", "asyncio", "numpy"))
    texts = tokenizer._texts(50, None)
    assert len(texts) == 50


def test_a_file_without_text_is_refused(tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(ValueError, match=r"blank\.txt has no text in it"):
        tokenizer.run(text_file=tmp_path / "blank.txt")
