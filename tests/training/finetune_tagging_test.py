# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on tagging at a small scale, from CoNLL files to predicted tags."""

import json

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, TokenClassifier  # noqa: E402
from keras_bert.data import TokenClassifierPreprocessor, read_conll  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from training.engine import finetuning  # noqa: E402
from training.engine.output_directory import is_own  # noqa: E402
from training.jobs.tagging import Tagging, TaggingConfig, read_data  # noqa: E402
from training.paper import recipes  # noqa: E402
from training.readers.data_inspection import count_rows  # noqa: E402
from training.readers.tagged_words import label_names, model_inputs  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ann", "lee", "sings", "in", "rome", "."]
# The labels are in IOB1, and lines end in CRLF.
SENTENCES = "Ann NNP I-PER\r\nLee NNP I-PER\r\nsings VBZ O\r\n\r\nin IN O\r\nRome NNP I-LOC\r\n"


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("preset")
    config = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=16)
    preprocessor = TokenClassifierPreprocessor(make_tokenizer(*TOKENS), 16)
    names = ["O", "B-LOC", "B-PER", "I-PER"]
    TokenClassifier(
        Backbone(config), preprocessor=preprocessor, class_names=names
    ).save_to_preset(directory)  # fmt: skip
    return str(directory)


@pytest.fixture
def conll(tmp_path):
    path = tmp_path / "train.conll"
    path.write_text(f"-DOCSTART- -X- O\n\n{SENTENCES}\n" * 4)
    return path


@pytest.mark.parametrize("recipe", ["conll_ner", "minilm_wnut17"])
def test_tagging_recipe_runs(recipe, preset, conll, tmp_path):
    """Checks a recipe's tags, scores and best model, with and without document context."""
    unlabeled = tmp_path / "test.conll"
    unlabeled.write_text("-DOCSTART-\n\nAnn\n\x01\nsings\n\nRome\n")
    config = recipes.load(recipe, TaggingConfig).replace(
        data_dir=str(tmp_path),
        train_file=conll.name,
        dev_file=conll.name,
        test_file=unlabeled.name,
        preset=preset,
        pretrained=recipe == "conll_ner",
        epochs=1,
        batch_size=4,
        num_seeds=1,
        sequence_length=16,
        precision="float32",
        output_dir=str(tmp_path / "run"),
        # finetune_test and finetune_squad_test export.
        export=False,
    )
    data = read_data(config)
    assert data.class_names == ("O", "B-LOC", "B-PER", "I-PER")
    results = finetuning.run(Tagging, config, data)
    directory = tmp_path / "run"
    assert all(is_own(path.name, "finetune") for path in directory.iterdir())
    assert set(results["baselines"]["dev"]) == {"majority", "word_majority"}
    assert set(results["summary"]["dev"]) == {"f1", "precision", "recall", "accuracy"}

    weights, initial = (
        task.backbone.get_weights()[0]
        for task in (
            keras.saving.load_model(directory / "seed_1" / "model.keras"),
            TokenClassifier.from_preset(preset, class_names=data.class_names),
        )
    )
    # Two steps change the preset's weights only a little. Random weights differ more.
    assert np.allclose(weights, initial, atol=2e-3) == config.pretrained

    dev = read_conll(directory / "dev.conll")
    assert (dev.words, dev.document_starts) == (data.dev.words, [0, 2, 4, 6])
    assert read_conll(directory / "dev.conll", label_column=1).labels == data.dev.labels
    scores = json.loads((directory / "dev_scores.json").read_text())
    assert set(scores["by_type"]) >= {"LOC", "PER"}
    assert scores["f1"] == pytest.approx(results["runs"][0]["best"]["dev"]["f1"])
    tagged_text = read_conll(directory / "test.conll")
    assert tagged_text.words == [["Ann", "\x01", "sings"], ["Rome"]]
    assert not (directory / "test_scores.json").exists()


@pytest.mark.backend_independent
def test_scheme_converts_or_keeps_labels(conll):
    config = TaggingConfig(train_file=str(conll), dev_file=str(conll))
    assert read_data(config).train.labels[:2] == [["B-PER", "I-PER", "O"], ["O", "B-LOC"]]
    bioes = read_data(config.replace(scheme="BIOES")).train.labels
    assert bioes[0] == ["B-PER", "E-PER", "O"]
    text = read_data(config.replace(scheme="keep")).train
    assert label_names(text) == ("O", "I-LOC", "I-PER")
    tags = read_data(config.replace(label_column=1))
    assert tags.class_names == ("IN", "NNP", "VBZ")


@pytest.mark.backend_independent
def test_invalid_labels_raise_and_deviations_warn(tmp_path, caplog):
    path = tmp_path / "a.conll"
    path.write_text("a B-PER\nb X-PER\nc O\n\na B-PER\nb B-\n")
    config = TaggingConfig(train_file=str(path), dev_file=str(path))
    with pytest.raises(
        ValueError, match=r"O, B-TYPE.*: 'X-PER' \(1 words\), 'B-' \(1 words\)\. Pass"
    ):
        read_data(config)
    assert "X-PER" in read_data(config.replace(scheme="keep")).class_names
    path.write_text("a B-PER\nb I-PER\nc O\n\na B-LOC\nb O\nRome I-LOC\n")
    with caplog.at_level("WARNING", logger="absl"):
        data = read_data(config)
    assert (
        "1 of 6 labels deviate from the scheme IOB2. The first is 'I-LOC' for the word 'Rome'"
        in caplog.text
    )
    assert data.train.labels[1] == ["B-LOC", "O", "B-LOC"]


@pytest.mark.backend_independent
def test_bracket_and_bare_labels_become_spans(tmp_path, caplog):
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    config = TaggingConfig(train_file=str(train), dev_file=str(dev))
    train.write_text("Ann (PER*\nLee *)\nsang *\n\nRome (LOC)\n")
    dev.write_text("here *\n")
    data = read_data(config)
    assert data.train.labels == [["B-PER", "I-PER", "O"], ["B-LOC"]]
    assert data.dev.labels == [["O"]]
    assert count_rows(data.train) == {"sentences": 2, "words": 4, "LOC": 1, "PER": 1}
    assert read_data(config.replace(scheme="keep")).dev.labels == [["*"]]
    train.write_text("Ann person\nLee person\nsang O\nin O\nRome place\n")
    dev.write_text("Rome place\n")  # The training labels determine the format.
    with caplog.at_level("WARNING", logger="absl"):
        data = read_data(config)
    assert data.train.labels == [["B-person", "I-person", "O", "O", "B-place"]]
    assert data.dev.labels == [["B-place"]]
    assert "train.conll: labels have no B- or I- prefix, so adjacent words with" in caplog.text
    # GROBID's and DeLFT's files also have columns with features of the word.
    train.write_text(
        "Ann ann A LINESTART I-<author>\nLee lee L LINEIN <author>\nin in i a <other>\n"
    )
    dev.write_text("Ann I-<author>\n")
    data = read_data(config)
    assert (data.train.labels, data.train.words) == (
        [["B-<author>", "I-<author>", "O"]],
        [["Ann", "Lee", "in"]],
    )
    assert data.dev.labels == [["B-<author>"]]
    train.write_text("Ann (A*\nLee (B*\nsang *)\nhere *)\n")
    with pytest.raises(ValueError, match=r"in the sentence 'Ann Lee sang here': .* nested.*=keep"):
        read_data(config)


@pytest.mark.backend_independent
def test_skip_invalid_skips_invalid_sentences(tmp_path, caplog):
    path = tmp_path / "a.conll"
    path.write_text("Ann B-PER\nsang\n\nLee B-PER\n\nRome B-LOC\nis big O\n")
    config = TaggingConfig(train_file=str(path), dev_file=str(path))
    with pytest.raises(ValueError, match=r"line 2: .* Received: 1 column"):
        read_data(config)
    with caplog.at_level("WARNING", logger="absl"):
        data = read_data(config.replace(skip_invalid=True))
    assert data.train.words == data.dev.words == [["Lee"]]
    assert "skipped a sentence" in caplog.text
    assert "Received: 1 column" in caplog.text
    assert "Received: 3 columns" in caplog.text


@pytest.mark.backend_independent
def test_similar_labels_warn(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Ann B-PER\nLee B-PER\u200b\nsang O\n")
    message = r"'B-PER' \(1 words\) and 'B-PER\\u200b' \(1 words\) are read as different"
    with pytest.warns(UserWarning, match=message):
        read_data(TaggingConfig(train_file=str(path), dev_file=str(path)))


@pytest.mark.backend_independent
def test_tenth_of_sentences_or_documents_is_held_out(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("\n".join(f"w{index} {'O' if index % 2 else 'B-A'}\n" for index in range(20)))
    data = read_data(TaggingConfig(train_file=str(path)))
    assert sorted(data.dev.labels) == [["B-A"], ["O"]]
    assert count_rows(data.parts()["train"]) == {"sentences": 18, "words": 18, "A": 9}
    document_path = tmp_path / "b.conll"
    document_path.write_text(f"-DOCSTART- O\n{path.read_text()}\n" * 10)
    data = read_data(TaggingConfig(train_file=str(document_path)))
    assert (len(data.train), data.dev.document_starts) == (180, [0])
    assert data.train.document_starts == list(range(0, 180, 20))


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": "nowhere"}, "nowhere does not exist"),
        ({"scheme": "IOB"}, "scheme must be one of keep, IOB1"),
    ],
)
def test_invalid_input_raises_before_training(changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        read_data(TaggingConfig(**changes))


@pytest.mark.backend_independent
def test_context_requires_documents(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Ann I-PER\n")
    config = TaggingConfig(train_file=str(path), dev_file=str(path), context=True)
    data = read_data(config)
    with pytest.raises(ValueError, match="a file that marks documents"):
        model_inputs(data.train, data.train.words, context=True)
