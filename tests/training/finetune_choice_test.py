# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on multiple choice at a small scale, from files to predictions."""

import csv

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, MultipleChoice  # noqa: E402
from keras_bert.data import MultipleChoicePreprocessor  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from training.engine import finetuning  # noqa: E402
from training.engine.output_directory import is_own  # noqa: E402
from training.jobs.multiple_choice import ChoiceConfig, ChoiceJob, read_data  # noqa: E402
from training.paper import recipes  # noqa: E402
from training.readers.choice_files import read_choices  # noqa: E402
from training.readers.data_inspection import count_rows  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "she", "opens", "the", "door", "fridge", "."]
HEADER = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
ENDINGS = [f"ending{index}" for index in range(4)]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("preset")
    config = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=32)
    preprocessor = MultipleChoicePreprocessor(make_tokenizer(*TOKENS), 16)
    MultipleChoice(Backbone(config), preprocessor).save_to_preset(directory)
    return str(directory)


def write_swag(path, rows=8, label=True):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*HEADER, *ENDINGS, *(["label"] if label else [])])
        for index in range(rows):
            endings = ["the door.", 'the "fridge", she', "opens.", "the."]
            labels = [index % 4] if label else []
            writer.writerow(
                [index, "v", index, "x", "She opens.", "She", "gold", *endings, *labels]
            )


def test_swag_recipe_runs(preset, tmp_path):
    config = recipes.load("swag", ChoiceConfig)
    write_swag(tmp_path / config.train_file)
    write_swag(tmp_path / config.dev_file, rows=4)
    write_swag(tmp_path / "test.csv", rows=3, label=False)
    config = config.replace(
        data_dir=str(tmp_path),
        test_file="test.csv",
        preset=preset,
        epochs=1,
        batch_size=4,
        num_seeds=1,
        sequence_length=16,
        precision="float32",
        output_dir=str(tmp_path / "run"),
        # finetune_test and finetune_squad_test export.
        export=False,
    )
    results = finetuning.run(ChoiceJob, config, read_data(config))
    directory = tmp_path / "run"
    assert all(is_own(path.name, "finetune") for path in directory.iterdir())
    assert list(results["summary"]) == list(results["baselines"]) == ["dev"]
    trained, pretrained = (
        task.backbone.get_weights()[0]
        for task in (
            keras.saving.load_model(directory / "seed_1" / "model.keras"),
            MultipleChoice.from_preset(preset),
        )
    )
    np.testing.assert_allclose(trained, pretrained, atol=2e-3)
    predictions = (directory / "predictions.tsv").read_text().splitlines()
    assert predictions[0] == "choice\ttext\tscore"
    assert len(predictions) == 4


@pytest.mark.backend_independent
def test_swag_choices_join_sentence_and_ending(tmp_path):
    write_swag(tmp_path / "val.csv", rows=5)
    data = read_choices(tmp_path / "val.csv")
    assert data.texts[0] == "She opens."
    assert data.choices[0] == ["She the door.", 'She the "fridge", she', "She opens.", "She the."]
    assert data.labels.tolist() == [0, 1, 2, 3, 0]


@pytest.mark.backend_independent
def test_number_of_choices_may_vary(tmp_path):
    (tmp_path / "a.csv").write_text("sent1,sent2,ending0,ending1,ending2,label\na,b,c,d,,1\n")
    assert read_choices(tmp_path / "a.csv").choices == [["b c", "b d"]]
    (tmp_path / "a.jsonl").write_text(
        '{"text": "a", "choices": ["b", "c"], "label": 1}\n\n'
        '{"text": "a", "choices": ["b", "c", "d"], "label": "2"}\n'
    )
    # The published file format of CODAH
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbfi\tShe opens the\tdoor.\tfridge.\t1\r\n")
    assert read_choices(tmp_path / "a.tsv").inputs == (["She opens the"], [["door.", "fridge."]])
    data = read_choices(tmp_path / "a.jsonl")
    assert [len(choices) for choices in data.choices] == [2, 3]
    assert data.labels.tolist() == [1, 2]


SWAG = "sent1,sent2,ending0,ending1,label\n"


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "sent1,ending0\na,b\n", "a.csv, line 2: the fields must include sent2. Received"),
        (
            "a.csv",
            SWAG + 'a,b,c,"d\ne",0\na,b,c,d,2\n',
            "line 4: label must be one of 0, 1",
        ),
        ("a.csv", SWAG + "a,b,,d,0\n", "line 2: ending0 must not be empty"),
        ("a.tsv", "i\ta\tb\t0\n", "line 1: the columns must be a category, .* Received: 4 columns"),
    ],
)
def test_error_includes_file_line_and_field(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_choices(tmp_path / name)


@pytest.mark.backend_independent
def test_unknown_format_raises():
    with pytest.raises(ValueError, match="format must be one of auto, swag"):
        ChoiceConfig(format="csv")


@pytest.mark.backend_independent
def test_missing_files_and_labels_raise(tmp_path):
    with pytest.raises(ValueError, match="--train_file must be"):
        read_data(ChoiceConfig())
    with pytest.raises(FileNotFoundError, match=r"train\.csv does not exist"):
        read_data(ChoiceConfig(data_dir=str(tmp_path), train_file="train.csv"))
    write_swag(tmp_path / "train.csv", label=False)
    with pytest.raises(ValueError, match="must have labels"):
        read_data(ChoiceConfig(data_dir=str(tmp_path), train_file="train.csv"))
    write_swag(tmp_path / "train.csv", rows=40)
    data = read_data(ChoiceConfig(data_dir=str(tmp_path), train_file="train.csv"))
    assert count_rows(data.parts()["dev"]) == {"rows": 4} | {
        f"choice {n} is correct": 1 for n in range(4)
    }
    write_swag(tmp_path / "train.csv", rows=8)
    with pytest.raises(ValueError, match=r"to hold out a tenth.* Received: 8 rows"):
        read_data(ChoiceConfig(data_dir=str(tmp_path), train_file="train.csv"))
