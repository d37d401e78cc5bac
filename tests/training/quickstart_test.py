# SPDX-License-Identifier: Apache-2.0
"""Runs the quickstart at a small scale, with random weights."""

import dataclasses

import pytest

from keras_bert import Backbone, TextClassifier
from keras_bert.data import TextClassifierPreprocessor
from tests.checkpoints.small_models import small_config
from tests.text.small_tokenizers import make_tokenizer
from training.engine.output_directory import is_own, lock_output_dir
from training.quickstart import QuickstartConfig, main, quickstart
from training.readers.emoji import split_emoji

# Before a release, a nox session runs the command on JAX.
pytestmark = [pytest.mark.on_tensorflow, pytest.mark.slow]


def test_quickstart_trains_scores_and_predicts(tmp_path, capsys):
    characters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *characters, *(f"##{c}" for c in characters)]
    config = small_config(vocabulary_size=len(tokens), num_layers=1, max_sequence_length=128)
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*tokens), sequence_length=128)
    TextClassifier(Backbone(config), 5, preprocessor).save_to_preset(tmp_path / "preset")
    settings = QuickstartConfig(epochs=1, output_dir=str(tmp_path / "run"))
    with lock_output_dir(settings.output_dir, command="quickstart"):
        quickstart(settings, str(tmp_path / "preset"))
    rows = (tmp_path / "run" / "emoji.csv").read_text().splitlines()
    assert len(rows) == 1 + 371
    assert rows[:2] == ["name,kind", "rat,animal"]
    assert all(is_own(path.name, "quickstart") for path in (tmp_path / "run").iterdir())
    printed = capsys.readouterr().out
    for line in ("majority", "bag of words", "fine-tuned MiniLM"):
        assert line in printed
    assert f"serve --model={tmp_path / 'run' / 'export' / '1'}" in printed
    prediction_lines = printed.partition("probability\n")[2].partition("\n\n")[0].splitlines()
    wrong = [line for line in prediction_lines if "wrong: " in line]
    correct = [line for line in prediction_lines if line.endswith("  right")]
    assert 1 <= len(correct) <= 5
    assert len(wrong) == 3
    with pytest.raises(FileExistsError, match=r"with model\.keras\. Choose .*--overwrite"):
        main(settings)
    with lock_output_dir(tmp_path / "other", command="finetune"):
        (tmp_path / "other" / "model.keras").touch()
    with pytest.raises(FileExistsError, match=r"model\.keras\. Choose another --output_dir"):
        main(dataclasses.replace(settings, output_dir=str(tmp_path / "other")))
    names = set(split_emoji(seed=1)[1].texts)
    assert all(any(line.startswith(f"{name}  ") for name in names) for line in prediction_lines)
