# SPDX-License-Identifier: Apache-2.0
"""The quickstart at miniature size, with a network of random weights."""

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert import Backbone, BertConfig, TextClassifier  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from tests.text.small_tokenizers import of_tokens  # noqa: E402
from training.pretraining.from_scratch import from_scratch  # noqa: E402
from training.quickstart import QuickstartConfig, quickstart  # noqa: E402
from training.readers.docstrings import collect_docstrings  # noqa: E402


def test_it_trains_scores_exports_and_asks_a_fresh_process(tmp_path, capsys):
    docstrings = collect_docstrings(("keras", "sklearn"), max_per_package=20)
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{c}" for c in letters)]
    config = BertConfig(
        vocabulary_size=len(tokens),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=128,
    )
    preprocessor = TextClassifierPreprocessor(of_tokens(*tokens), sequence_length=128)
    TextClassifier(Backbone(config), 2, preprocessor).save_to_preset(tmp_path / "preset")
    settings = QuickstartConfig(epochs=1, output_dir=str(tmp_path / "run"))
    quickstart(settings, tmp_path / "preset", docstrings)
    printed = capsys.readouterr().out
    for line in ("majority", "bag of words", "fine-tuned MiniLM"):
        assert line in printed
    assert f"Correct: {docstrings.held_out_label}." in printed
    assert "Predicted: keras" in printed or "Predicted: sklearn" in printed


def test_a_tiny_bert_of_its_own(tmp_path, capsys):
    docstrings = collect_docstrings(("keras", "sklearn"), max_per_package=20)
    folder = tmp_path / "from_scratch"
    folder.mkdir()
    sentences = [*docstrings.train.texts, *("returns a " + text for text in docstrings.train.texts)]
    (folder / "corpus.txt").write_text("\n".join(sentences) + "\n")
    from_scratch(
        folder,
        docstrings,
        seed=1,
        epochs=1,
        vocabulary_size=300,
        hidden_dim=16,
        num_heads=2,
        num_layers=1,
        batch_size=4,
        num_steps=4,
        warmup_steps=1,
        interval=2,
        num_workers=1,
    )
    printed = capsys.readouterr().out
    assert "Returns the [MASK] of an array.  ->  " in printed
    assert "fine-tuned, random weights" in printed
    assert "fine-tuned, pre-trained" in printed
