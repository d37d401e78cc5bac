# SPDX-License-Identifier: Apache-2.0
"""ELECTRA's objective matches NumPy, and detectors are saved and loaded."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import Backbone, BertConfig, ConfigError
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.layers import TokenSampler
from keras_bert.tasks import MaskedLM, ReplacedTokenDetector
from keras_bert.tasks.replaced_token_detector import generator_config
from tests.models.small_backbone import WITHOUT_DROPOUT, features, random_weights, to_numpy
from tests.text.small_tokenizers import make_tokenizer

CONFIG = WITHOUT_DROPOUT.replace(pooler=False)
POSITIONS = np.array([[2, 4, 6], [1, 3, 0], [1, 0, 0], [1, 3, 0]], "int32")
WEIGHTS = np.array([[1, 1, 1], [1, 1, 0], [2, 0, 0], [0, 0, 0]], "float32")
IDS = np.random.default_rng(1).integers(1, 50, POSITIONS.shape).astype("int32")


def make_inputs() -> dict[str, np.ndarray]:
    return {**features(batch=4), "mask_positions": POSITIONS}


def make_detector(config=CONFIG, **arguments) -> ReplacedTokenDetector:
    keras.utils.set_random_seed(0)
    model = ReplacedTokenDetector(
        Backbone(config), **{"generator_size": 0.5, "seed": 3, **arguments}
    )
    random_weights(model)
    return model


def compute_outputs(model, x):
    return {name: to_numpy(value) for name, value in model(x).items()}


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def numpy_losses(outputs, x):
    """Returns the losses of generator and discriminator, the replaced tokens and the weights."""
    chosen = np.take_along_axis(
        log_softmax(outputs["masked_lm_logits"].astype("float64")), IDS[..., None], axis=-1
    )[..., 0]
    masked = -(chosen * WEIGHTS).sum() / WEIGHTS.sum()
    replaced = np.zeros(x["token_ids"].shape, bool)
    for row, slot in zip(*np.nonzero(POSITIONS), strict=True):
        replaced[row, POSITIONS[row, slot]] = outputs["sampled_ids"][row, slot] != IDS[row, slot]
    weights = x["padding_mask"] * WEIGHTS.max(axis=1)[:, None]
    logits = outputs["replaced_token_logits"].astype("float64")
    wrong_way = np.where(replaced, -logits, logits)
    detection = (np.log1p(np.exp(wrong_way)) * weights).sum() / weights.sum()
    return masked, detection, replaced, weights


def test_losses_and_metrics_match_numpy():
    model, x = make_detector(), make_inputs()
    # A sampled token that equals the original counts as original.
    right = compute_outputs(model, x)["sampled_ids"]
    IDS[0, :2] = right[0, :2]
    masked, detection, replaced, weights = numpy_losses(compute_outputs(model, x), x)
    assert not replaced[0, [2, 4]].any()
    assert replaced.any()
    model.compile()
    received = model.evaluate(x, IDS, sample_weight=WEIGHTS, return_dict=True, verbose=0)
    predicted = compute_outputs(model, x)["replaced_token_logits"] > 0
    expected = {
        "loss": masked + 50 * detection,
        "masked_lm_loss": masked,
        "replaced_token_loss": detection,
        "discriminator_accuracy": np.average(predicted == replaced, weights=weights),
        "discriminator_precision": np.average(replaced, weights=weights * predicted),
        "discriminator_recall": np.average(predicted, weights=weights * replaced),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=1e-5, err_msg=name)
    assert set(received) == {*expected, "generator_accuracy"}


def test_discriminator_encodes_sampled_tokens():
    model, x = make_detector(), make_inputs()
    outputs = compute_outputs(model, x)
    rows = x["token_ids"].copy()
    for row, slot in zip(*np.nonzero(POSITIONS), strict=True):
        rows[row, POSITIONS[row, slot]] = outputs["sampled_ids"][row, slot]
    encoded = model.discriminator({**features(batch=4), "token_ids": rows})["sequence_output"]
    np.testing.assert_allclose(
        outputs["replaced_token_logits"], to_numpy(model.head(encoded)), atol=1e-5
    )


@pytest.mark.parametrize("training", [True, False])
def test_samples_follow_softmax(training):
    num_samples, logits = 40_000, np.array([2.0, 1.0, 0.0, -1.0, 0.5, -3.0], "float32")
    layer = TokenSampler(seed=0)
    rows = np.random.default_rng(0).integers(0, 30_000, (num_samples // 4, 9), "int32")
    positions = np.tile(np.array([1, 4, 5, 8], "int32"), (len(rows), 1))
    first = to_numpy(
        layer(np.tile(logits, (num_samples // 4, 4, 1)), rows, positions, training=training)
    ).astype(int)
    counts = np.bincount(first.ravel(), minlength=6)
    expected = num_samples * np.exp(log_softmax(logits))
    # With 5 degrees of freedom, the statistic exceeds this value once in 10,000 times.
    assert (np.square(counts - expected) / expected).sum() < 25.74


def test_samples_change_only_in_training():
    random = np.random.default_rng(0)
    rows = random.integers(1, 50, (4, 9), "int32")
    positions = np.tile(np.array([1, 3, 4, 6, 7], "int32"), (4, 1))
    inputs = np.zeros((4, 5, 50), "float32"), rows, positions
    layer, twin = TokenSampler(seed=1), TokenSampler(seed=1)
    samples = [to_numpy(layer(*inputs, training=True)) for _ in range(2)]
    assert (samples[0] != samples[1]).any()
    np.testing.assert_array_equal(to_numpy(twin(*inputs, training=True)), samples[0])
    evaluated = to_numpy(layer(*inputs))
    np.testing.assert_array_equal(evaluated, to_numpy(twin(*inputs)))
    # A single row, with padding and an unused masked position
    logits = np.zeros((1, 6, 50), "float32")
    longer = np.pad(rows[2:3], ((0, 0), (0, 3))), np.pad(positions[2:3], ((0, 0), (0, 1)))
    np.testing.assert_array_equal(to_numpy(layer(logits, *longer))[:, :5], evaluated[2:3])


def compute_step_changes(discriminator_weight):
    """Returns how a step of gradient descent changes the three parts of the model."""
    model = make_detector(discriminator_weight=discriminator_weight)
    model.compile(keras.optimizers.SGD(0.1))
    shared = [model.discriminator.token_embedding, model.discriminator.embeddings]
    heads = [model.get_layer(name) for name in ("masked_lm_transform", "masked_lm_bias")]
    owners = {
        "shared": shared,
        "generator": [model.generator.embedding_projection, *model.generator.blocks, *heads],
        "discriminator": [*model.discriminator.blocks, model.head],
    }
    variables = {
        owner: [variable for layer in layers for variable in layer.trainable_variables]
        for owner, layers in owners.items()
    }
    assert sum(map(len, variables.values())) == len(model.trainable_variables)
    before = {owner: [v.numpy().copy() for v in parts] for owner, parts in variables.items()}
    model.fit(make_inputs(), IDS, sample_weight=WEIGHTS, batch_size=4, verbose=0)
    return {
        owner: [v.numpy() - old for v, old in zip(parts, before[owner], strict=True)]
        for owner, parts in variables.items()
    }


@pytest.mark.on_torch
def test_discriminator_loss_skips_generator():
    alone, both = compute_step_changes(0.0), compute_step_changes(50.0)
    for one, other in zip(alone["generator"], both["generator"], strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)
        assert (one != 0).any()
    for owner in ("shared", "discriminator"):
        for one, other in zip(alone[owner], both[owner], strict=True):
            assert abs(other - one).max() > 1e-5


@pytest.mark.on_torch
def test_disentangled_embeddings_are_added(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [f"word{number}" for number in range(CONFIG.vocabulary_size - len(tokens))]
    text = TextClassifierPreprocessor(make_tokenizer(*tokens), sequence_length=12)
    model = make_detector(embedding_sharing="disentangled", preprocessor=text)
    own, base = model.discriminator.token_embedding, model.generator.token_embedding
    difference = own.trainable_variables[0]
    assert abs(difference.numpy()).max() > 0  # The weights are random.
    start, base_start = to_numpy(own.embeddings), to_numpy(base.embeddings)
    alone = make_detector(embedding_sharing="disentangled", discriminator_weight=0.0)
    for task in (model, alone):
        task.compile(keras.optimizers.SGD(0.1))
        task.fit(make_inputs(), IDS, sample_weight=WEIGHTS, batch_size=4, verbose=0)
    # DeBERTaV3, section 3.3: the discriminator's loss does not change the generator's table.
    np.testing.assert_allclose(
        to_numpy(base.embeddings), to_numpy(alone.generator.token_embedding_table), atol=1e-7
    )
    # The generator's table moves both tables. The discriminator's updates stay in its own table.
    moved = to_numpy(base.embeddings) - base_start
    assert abs(moved).max() > 1e-5
    np.testing.assert_allclose(
        to_numpy(alone.backbone.token_embedding_table), start + moved, atol=1e-6
    )
    assert abs(to_numpy(own.embeddings) - start - moved).max() > 1e-5

    # Presets and files store the sum, and detectors loaded from either give the same outputs.
    expected = compute_outputs(model, make_inputs())
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for loaded in (
        ReplacedTokenDetector.from_preset(tmp_path / "preset"),
        keras_bert.load_model(tmp_path / "model.keras"),
    ):
        np.testing.assert_allclose(
            to_numpy(loaded.backbone.token_embedding.trainable_variables[0]),
            difference.numpy(),
            atol=1e-6,
        )
        for name, output in compute_outputs(loaded, make_inputs()).items():
            np.testing.assert_allclose(output, expected[name], atol=1e-5)
    alone = MaskedLM(model.discriminator)
    alone.save(tmp_path / "alone.keras")
    for task in (alone, keras_bert.load_model(tmp_path / "alone.keras")):
        table = task.backbone.token_embedding_table
        np.testing.assert_allclose(to_numpy(table), to_numpy(own.embeddings), atol=1e-7)


@pytest.mark.parametrize(
    ("name", "size", "generator"),
    [
        ("electra_small_discriminator", 1.0, "electra_small_generator"),
        ("electra_base_discriminator", 1 / 3, "electra_base_generator"),
        ("electra_large_discriminator", 0.25, "electra_large_generator"),
    ],
)
def test_generator_size_matches_released_models(name, size, generator):
    config = generator_config(BertConfig.from_name(name), size)
    assert config == BertConfig.from_name(generator)


def test_unsupported_generator_or_method_raises():
    with pytest.raises(ValueError, match="causal=False"):
        ReplacedTokenDetector(Backbone(CONFIG.replace(causal=True)))
    with pytest.raises(
        ValueError, match=r"generator_size must be a number in \(0, 1\]\. Received: 1\.5"
    ):
        make_detector(generator_size=1.5)
    with pytest.raises(
        ConfigError, match=r"number of heads. Received: 0\.2, which gives hidden_dim 3 and"
    ):
        make_detector(CONFIG.replace(num_heads=8), generator_size=0.2)
    with pytest.raises(ValueError, match="same vocabulary_size"):
        make_detector(generator=CONFIG.replace(vocabulary_size=51, embedding_dim=16))
    with pytest.raises(ValueError, match="embedding_sharing must be one of all, disentangled"):
        make_detector(embedding_sharing="none")
    with pytest.raises(ValueError, match=r"has its own losses and metrics. Received: loss"):
        make_detector().compile(loss="mse")
    with pytest.raises(ValueError, match="For text, use `detect`"):
        make_detector().predict(["a text"])
