# SPDX-License-Identifier: Apache-2.0
"""The default learning rate and number of epochs."""

import pytest

from keras_bert import (
    Backbone,
    BertConfig,
    MultipleChoice,
    QuestionAnswerer,
    TextClassifier,
    TokenClassifier,
)
from training.engine import finetuning_config
from training.jobs.classification import FinetuneConfig
from training.jobs.multiple_choice import ChoiceConfig
from training.jobs.question_answering import SquadConfig
from training.jobs.tagging import TaggingConfig

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("minilm_l6_h384_uncased", (1.5e-4, 1.5e-4)),
        ("bert_large_uncased", (2e-5, 2e-5)),
    ],
)
def test_default_learning_rates_and_epochs(name, rates):
    hidden_dim = BertConfig.from_name(name).hidden_dim
    for num_rows in (2_490, 67_349, 392_702):
        rate, epochs = finetuning_config.default_hyperparameters(num_rows, hidden_dim)
        assert rates[0] <= rate <= rates[1]
        assert epochs == (4 if num_rows == 2_490 else 3)


def test_fewer_examples_get_more_epochs():
    epochs = [
        finetuning_config.default_hyperparameters(rows, 384)[1]
        for rows in (1, 100, 800, 8_000, 10**6)
    ]
    assert epochs == [20, 20, 10, 3, 3]


def test_more_classes_get_more_epochs():
    epochs = [
        finetuning_config.default_hyperparameters(9_003, 384, num_classes)[1]
        for num_classes in (2, 20, 77, 10**4)
    ]
    assert epochs == [3, 3, 9, 20]


def test_fill_defaults_keeps_given_values(tmp_path, caplog):
    config = BertConfig(
        vocabulary_size=10, num_layers=1, num_heads=1, hidden_dim=8, intermediate_dim=8
    )
    Backbone(config).save_to_preset(tmp_path)
    completed = finetuning_config.fill_defaults(FinetuneConfig(), 800, str(tmp_path))
    assert (completed.learning_rate, completed.epochs) == (1.5e-4, 10)
    config_with_values = FinetuneConfig(learning_rate=2e-5)
    completed = finetuning_config.fill_defaults(config_with_values, 800, str(tmp_path))
    assert completed == config_with_values.replace(epochs=10)
    config_with_values = FinetuneConfig(learning_rate=0.0, epochs=2)
    assert finetuning_config.fill_defaults(config_with_values, 800, "nowhere") is config_with_values


@pytest.mark.parametrize(
    ("name", "directory"),
    [("a/.train.csv", "train"), ("b-v1.1_train.tsv.gz", "b-v1.1_train"), ("/", "run")],
)
def test_output_dir_is_named_after_the_data(name, directory):
    field = "data_dir" if name == "/" else "train_file"
    assert FinetuneConfig.from_flags(**{field: name}).output_dir == f"runs/{directory}"


TASKS = [
    (FinetuneConfig, 32, 20, lambda backbone: TextClassifier(backbone, num_classes=2)),
    (TaggingConfig, 32, 20, lambda backbone: TokenClassifier(backbone, num_classes=2)),
    (ChoiceConfig, 16, 20, MultipleChoice),
    (SquadConfig, 32, 3, QuestionAnswerer),
]


@pytest.mark.parametrize(("hidden_dim", "rate"), [(8, 1.5e-4), (768, 3e-5)])
@pytest.mark.parametrize(("config_class", "batch_size", "epochs", "make_task"), TASKS)
def test_fill_defaults_matches_compile(
    tmp_path, config_class, batch_size, epochs, make_task, hidden_dim, rate
):
    config = BertConfig(
        vocabulary_size=10, num_layers=1, num_heads=1, hidden_dim=hidden_dim, intermediate_dim=8
    )
    model = make_task(Backbone(config))
    model.compile()
    assert float(model.optimizer.learning_rate) == pytest.approx(rate)
    model.backbone.save_to_preset(tmp_path)
    completed = finetuning_config.fill_defaults(config_class(), 150, str(tmp_path))
    assert (completed.learning_rate, completed.epochs) == (rate, epochs)
    assert completed.batch_size == batch_size
    config_with_values = config_class(learning_rate=2e-5, epochs=3)
    assert finetuning_config.fill_defaults(config_with_values, 150, "nowhere") is config_with_values


def test_negative_epochs_and_rate_raise():
    for field, value in (("epochs", -1), ("learning_rate", -1.0)):
        with pytest.raises(ValueError, match=rf"--{field} must be .*\. Received: -1"):
            TaggingConfig(**{field: value})
