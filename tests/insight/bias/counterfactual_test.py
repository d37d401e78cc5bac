# SPDX-License-Identifier: Apache-2.0
"""Word swaps, and prediction changes that match `transformers`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import Backbone, BertConfig, MaskedLM, TextClassifier, insight  # noqa: E402
from keras_bert.insight.bias.word_swaps import Swapper  # noqa: E402
from tests.insight.hugging_face_models import save_classifier  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

pytestmark = pytest.mark.on_torch

WORDS = "he she him her his an a actor actress muslim christian hindu was saw good mary james idea"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), ".", "##s"]
TEXTS = ["He saw her.", "An actor saw Mary.", "Christian idea", "good", "a Hindu was good"]
SWAPS = {
    "gender": [("he", "she"), ("him", "her"), ("his", "her"), ("actor", "actress")],
    "names": [("James", "Mary")],
    "groups": [("Christian", "Muslim", "Hindu")],
    "none": [("mars", "venus")],
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A small random classifier in the Hugging Face format."""
    return save_classifier(TOKENS, tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def classifier(directory):
    return TextClassifier.from_preset(directory)


@pytest.fixture(scope="module")
def probabilities(directory):
    model = transformers.BertForSequenceClassification.from_pretrained(directory).eval()
    encode = transformers.BertTokenizerFast(str(directory / "vocab.txt")).encode

    def compute(text):
        with torch.no_grad():
            return torch.softmax(model(torch.tensor([encode(text)])).logits[0], dim=0).numpy()

    return compute


def test_changes_match_transformers(classifier, probabilities):
    result = insight.counterfactuals(classifier, TEXTS, SWAPS)
    assert list(zip(result.kinds, result.text_indices.tolist(), result.swapped, strict=True)) == [
        ("gender", 0, "She saw him."),
        ("gender", 1, "An actress saw Mary."),
        ("names", 1, "An actor saw James."),
        ("groups", 2, "Muslim idea"),
        ("groups", 2, "Hindu idea"),
        ("groups", 4, "a Christian was good"),
        ("groups", 4, "a Muslim was good"),
    ]
    before = np.array([probabilities(text) for text in result.texts])
    after = np.array([probabilities(text) for text in result.swapped])
    np.testing.assert_allclose(result.before, before, atol=1e-5)
    np.testing.assert_allclose(result.after, after, atol=1e-5)
    changes = np.abs(after - before).sum(axis=1) / 2
    measures = {(each.metric, each.group): each for each in result.measures()}
    group_measure = measures["change of probability", "groups"]
    np.testing.assert_allclose(group_measure.value, changes[3:].mean(), atol=1e-5)
    assert group_measure.count == 2
    # Average the changes of each text, then average over the texts.
    text_changes = [changes[0], changes[1:3].mean(), changes[3:5].mean(), changes[5:].mean()]
    overall = measures["change of probability", "all"]
    np.testing.assert_allclose(overall.value, np.mean(text_changes), atol=1e-5)
    assert overall.low <= overall.value <= overall.high
    flips = before.argmax(axis=1) != after.argmax(axis=1)
    np.testing.assert_allclose(measures["other class, %", "gender"].value, 100 * flips[:2].mean())
    assert "No text contains a word from none." in str(result)
    (largest,) = result.largest(1)
    assert largest["swapped"] == result.swapped[int(changes.argmax())]


def test_directions_are_signed_changes(classifier, probabilities):
    texts = ["He was good.", "his idea, he saw", "She was good.", "he saw, she saw", "a Hindu idea"]
    changes = insight.counterfactuals(classifier, texts, SWAPS)
    result = changes.directions(min_texts=1)
    assert result.num_mixed == 1
    assert "left out because they contain both words: 1." in str(result)
    measures = {(each.group, each.metric): each for each in result.measures()}
    swapped = {
        "gender: first to second": {0: ["She was good."], 1: ["her idea, she saw"]},
        "gender: second to first": {2: ["He was good."]},
        "gender: he to she": {0: ["She was good."], 1: ["her idea, she saw"]},
        "gender: his to her": {1: ["her idea, she saw"]},
        "gender: she to he": {2: ["He was good."]},
        "groups: Hindu to Christian": {4: ["a Christian idea"]},
        "groups: Hindu to Muslim": {4: ["a Muslim idea"]},
    }
    assert {group for group, _ in measures} == swapped.keys()
    for group, swapped_texts in swapped.items():
        expected = [
            np.mean([probabilities(other) for other in variants], axis=0)
            - probabilities(texts[text])
            for text, variants in swapped_texts.items()
        ]
        for index, name in enumerate(classifier.class_names or "012"):
            measure = measures[group, f"change of P({name})"]
            assert measure.count == len(swapped_texts)
            np.testing.assert_allclose(measure.value, np.mean(expected, axis=0)[index], atol=1e-5)
            if measure.count > 1:
                assert measure.low - 1e-9 <= measure.value <= measure.high + 1e-9


def test_swaps_keep_case_and_grammar():
    default = {kind: Swapper(kind, lines) for kind, lines in insight.default_swaps().items()}
    for kind, text, expected in (
        ("gender", "Her idea helped her.", "His idea helped him."),
        ("gender", "HE showed her that she's his.", "SHE showed him that he's hers."),
        ("gender", "Mary loves him, his book is hers.", "Mary loves her, her book is his."),
        ("gender", "His is good, and his idea", "Hers is good, and her idea"),
        ("gender", "The man-made kingdom, a king", "The woman-made kingdom, a queen"),
        ("gender", "an uncle and a niece", "an aunt and a nephew"),
        ("names", "Mary met rosa and Tom's aunt.", "James met rosa and Kate's aunt."),
        ("names", "mary met tom", "james met kate"),
        ("groups", "An American in a church", "A Mexican in a mosque"),
        ("groups", "African Americans and black people", "European Americans and white people"),
    ):
        assert default[kind].swap(text, 1)[0] == expected, text


def test_korean_swaps_fit_particles():
    swapper = Swapper(
        "x", [("신랑", "신부"), ("그는", "그녀는"), ("남편", "아내"), ("삼촌", "이모")]
    )
    for text, expected in (
        ("신랑이 신부를 보았다.", "신부가 신랑을 보았다."),
        ("그는 그 남편과 웃었다.", "그녀는 그 아내와 웃었다."),
        ("아내에게서는 삼촌으로", "남편에게서는 이모로"),
        ("신부였다. 삼촌이었지만", "신랑이었다. 이모였지만"),
        ("신랑감은 그녀석", "신랑감은 그녀석"),
    ):
        assert swapper.swap(text, 1)[0] == expected


def test_swaps_of_pairs_with_regression():
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 8}
    from keras_bert import data

    preprocessor = data.TextClassifierPreprocessor(make_tokenizer(*TOKENS), 16)
    backbone = Backbone(BertConfig(vocabulary_size=len(TOKENS), initializer_range=0.5, **sizes))
    regressor = TextClassifier(backbone, 1, preprocessor)
    result = insight.counterfactuals(regressor, [("he saw", "good"), ("a", "she")], SWAPS)
    assert result.swapped == (("she saw", "good"), ("a", "he"))
    scores = regressor.predict([*result.texts, *result.swapped], verbose=0)[:, 0]
    np.testing.assert_allclose(result.changes, np.abs(scores[2:] - scores[:2]), atol=1e-5)
    assert {each.metric for each in result.measures()} == {"change of score"}
    assert "swapped_score" in result.largest(1)[0]
    forward, backward = result.directions().measures()
    assert [forward.group, backward.group] == ["gender: first to second", "gender: second to first"]
    np.testing.assert_allclose([forward.value, backward.value], scores[2:] - scores[:2], atol=1e-5)
    assert forward.metric == "change of score"
    errors = insight.error_rates(
        regressor, list(result.texts), [0.5, 1.0], {"first": [True, False]}
    )
    np.testing.assert_allclose(errors.errors, np.abs(scores[:2] - [0.5, 1.0]), atol=1e-5)
    assert errors.measures()[1].metric == "absolute error"


def test_error_rates_by_slice(classifier, probabilities):
    labels = [0, 1, 2, 0, 1]
    wrong = [
        int(probabilities(text).argmax()) != label
        for text, label in zip(TEXTS, labels, strict=True)
    ]
    slices = {
        "short": lambda text: len(text) < 5,
        "first": np.arange(5) < 3,
        "empty": np.zeros(5, bool),
        "names": insight.contains_any(SWAPS["names"]),
    }
    rates = insight.error_rates(classifier, TEXTS, labels, slices)
    assert rates.errors.tolist() == wrong
    measures = {each.group: each for each in rates.measures()}
    assert [each.count for each in measures.values()] == [5, 1, 3, 1]
    np.testing.assert_allclose(measures["first"].value, 100 * np.mean(wrong[:3]))
    assert measures["short"].high - measures["short"].low > 50
    assert "No text belongs to empty." in str(rates)


def test_invalid_swaps_or_slices_raise(classifier):
    for swaps, message in (
        ({"x": [("he",)]}, r"swaps\['x'\] must have at least two words\. Received: \['he'\]"),
        ({"x": [("he", "she"), ("he", "it")]}, "'he' in 2 lines"),
        ({"x": [("mars", "venus")]}, "must contain a word from x. Received: 5 texts"),
    ):
        with pytest.raises(ValueError, match=message):
            insight.counterfactuals(classifier, TEXTS, swaps)
    with pytest.raises(ValueError, match=r"The default lists are English\. .* pass swaps\."):
        insight.counterfactuals(classifier, ["그는 왔다."])
    for labels, slices, message in (
        ([0], {}, "1 labels for 5 texts"),
        (
            [0] * 5,
            {"x": [True]},
            r"slices\['x'\] must be a function, or bool of shape \(5,\)\. "
            r"Received: bool of shape \(1,\)",
        ),
        ([3] * 5, {}, "3"),
    ):
        with pytest.raises(ValueError, match=message):
            insight.error_rates(classifier, TEXTS, labels, slices)


def test_unsupported_model_or_text_raises(classifier):
    masked_lm = MaskedLM(classifier.backbone, classifier.preprocessor)
    for call in (
        lambda model: insight.counterfactuals(model, TEXTS),
        lambda model: insight.error_rates(model, TEXTS, [0] * 5, {}),
    ):
        with pytest.raises(ValueError, match=r"must be a TextClassifier. Received: a MaskedLM"):
            call(masked_lm)
    for wrong in (None, ("a", "b", "c"), ("a", None)):
        with pytest.raises(ValueError, match=r"Text 1 must be a text or a pair of texts"):
            insight.counterfactuals(classifier, ["he", wrong])
