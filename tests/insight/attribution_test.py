# SPDX-License-Identifier: Apache-2.0
"""Attributions match Captum, and find the words that a trained model depends on."""

import gc
import weakref

import keras
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
captum_attr = pytest.importorskip("captum.attr")

from keras_bert import (  # noqa: E402
    Backbone,
    BertConfig,
    MaskedLM,
    MultipleChoice,
    QuestionAnswerer,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
    data,
    insight,
    optimizers,
)
from tests.insight.hugging_face_models import save_classifier  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

WORDS = "a the film was gripping dull good bad , . ? who in paris ann ate slept"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s"]
SIZES = {"num_layers": 1, "hidden_dim": 32, "num_heads": 2, "intermediate_dim": 64}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A small random classifier in the Hugging Face format."""
    options = {"max_position_embeddings": 32, "initializer_range": 0.3}
    return save_classifier(TOKENS, tmp_path_factory.mktemp("classifier"), **options)


def compute_with_captum(directory, ids, segments, target, method):
    """Computes Captum's attributions for the word embeddings of the `transformers` model."""
    model = transformers.BertForSequenceClassification.from_pretrained(directory).eval()
    look_up = model.get_input_embeddings()

    def logits(vectors):
        types = torch.tensor([segments]).expand(len(vectors), -1)
        return model(inputs_embeds=vectors, token_type_ids=types).logits

    special = {TOKENS.index("[CLS]"), TOKENS.index("[SEP]")}
    vectors = look_up(torch.tensor([ids])).detach().requires_grad_(True)
    baseline = torch.tensor([[token if token in special else 0 for token in ids]])
    if method == "gradient_x_input":
        scores = captum_attr.InputXGradient(logits).attribute(vectors, target=target)
    else:
        scores, error = captum_attr.IntegratedGradients(logits).attribute(
            vectors,
            baselines=look_up(baseline).detach(),
            target=target,
            n_steps=20,
            return_convergence_delta=True,
        )
        return scores.sum(-1)[0].detach().numpy(), float(error)
    return scores.sum(-1)[0].detach().numpy(), np.nan


@pytest.mark.parametrize("method", ["integrated_gradients", "gradient_x_input"])
def test_scores_match_captum(directory, method):
    classifier = TextClassifier.from_preset(directory)
    for text in ("The films was gripping.", ("A dull film", "bad, who ate?")):
        attributions = insight.attributions(classifier, text, method, target=1, steps=20)
        ids = [TOKENS.index(token) for token in attributions.tokens]
        second = ids.index(TOKENS.index("[SEP]")) + 1
        segments = [int(position >= second) for position in range(len(ids))]
        expected, error = compute_with_captum(directory, ids, segments, 1, method)
        np.testing.assert_allclose(attributions.scores, expected, atol=1e-5)
        np.testing.assert_allclose(attributions.convergence_delta, error, atol=1e-5)


@pytest.mark.on_torch
def test_more_steps_reduce_convergence_delta(directory):
    classifier = TextClassifier.from_preset(directory)
    errors = [
        abs(
            insight.attributions(
                classifier, "the film was dull", steps=steps, baseline="mask"
            ).convergence_delta
        )
        for steps in (2, 60)
    ]
    assert errors[1] < 1e-3 < errors[0]


@pytest.mark.on_torch
def test_occlusion_score_is_output_change(directory):
    classifier = TextClassifier.from_preset(directory)
    attributions = insight.attributions(classifier, "the films was", "occlusion", target=2)
    assert attributions.tokens == ("[CLS]", "the", "film", "##s", "was", "[SEP]")
    whole = classifier.predict(["the films was"], verbose=0)[0, 2]
    ids = np.array([[TOKENS.index(token) for token in attributions.tokens]])
    ids[0, 2:4] = 0
    baseline = classifier.predict(ids, verbose=0)[0, 2]
    np.testing.assert_allclose(attributions.output, whole, atol=1e-5)
    films = attributions.words[1]
    assert (films["word"], films["start"], films["end"]) == ("films", 4, 9)
    np.testing.assert_allclose(films["score"], whole - baseline, atol=1e-5)
    assert attributions.scores[2] == attributions.scores[3]


@pytest.mark.on_torch
def test_attributions_find_the_decisive_word():
    keras.utils.set_random_seed(1)
    classifier = TextClassifier(
        Backbone(BertConfig(vocabulary_size=len(TOKENS), dropout=0.0, **SIZES)),
        class_names=["bad", "good"],
        preprocessor=data.TextClassifierPreprocessor(make_tokenizer(*TOKENS), 24),
    )
    subjects = ["the film", "a film", "paris", "ann", "the film in paris", "who"]
    texts = [f"{who} was {what}" for who in subjects for what in ("gripping", "dull")] * 40
    labels = ["good", "bad"] * 240
    classifier.compile(optimizers.AdamW(3e-3, num_train_steps=120, num_warmup_steps=6))
    classifier.fit(texts, labels, batch_size=8, epochs=2, verbose=0)
    assert (
        classifier.evaluate(texts[:12], labels[:12], verbose=0, return_dict=True)["accuracy"] == 1
    )
    for method in ("integrated_gradients", "occlusion"):
        last_word_score = {}
        for what in ("gripping", "dull"):
            attributions = insight.attributions(classifier, f"the film was {what}", method, "good")
            last_word_score[what] = attributions.words[-1]["score"]
        # The model may react to only one of the words, and to its absence.
        assert last_word_score["gripping"] - last_word_score["dull"] > 0.5, (
            method,
            last_word_score,
        )
    assert insight.attributions(classifier, "the film was dull").target == "bad"
    word = max(last_word_score, key=lambda what: abs(last_word_score[what]))
    other = "good" if word == "dull" else "bad"
    against = insight.attributions(classifier, f"the film was {word}", "occlusion", target=other)
    assert min(against.words, key=lambda word: word["score"])["word"] == word
    assert f'rgba(209, 87, 12, 0.600)">{word}</span>' in against._repr_html_()
    assert str(against).splitlines()[1].endswith(f"  {word}")


PREPROCESSORS = {
    TokenClassifier: (data.TokenClassifierPreprocessor, {}),
    QuestionAnswerer: (data.QuestionAnswererPreprocessor, {"doc_stride": 4, "max_query_length": 6}),
    MultipleChoice: (data.MultipleChoicePreprocessor, {}),
    MaskedLM: (data.TextClassifierPreprocessor, {}),
}


def random_task(kind, *arguments):
    keras.utils.set_random_seed(2)
    backbone = Backbone(BertConfig(vocabulary_size=len(TOKENS), initializer_range=0.2, **SIZES))
    make, options = PREPROCESSORS[kind]
    preprocessor = make(make_tokenizer(*TOKENS), 24, **options)
    return kind(backbone, *arguments, preprocessor=preprocessor)


@pytest.mark.on_torch
def test_attributions_explain_each_task_output():
    """Integrated gradients add up to the task's prediction minus the baseline prediction."""
    tagger = random_task(TokenClassifier, 3)
    target = (np.int64(2), np.int64(1))
    tags = insight.attributions(tagger, ["films", "in", "Paris"], target=target, steps=40)
    (logits,) = tagger.predict([["films", "in", "Paris"]], verbose=0)
    np.testing.assert_allclose(tags.output, logits[2, 1], atol=1e-4)
    assert [word["word"] for word in tags.words] == ["films", "in", "Paris"]

    answerer = random_task(QuestionAnswerer)
    question, passage = "Who slept?", "In Paris, Ann slept."
    answered = insight.attributions(answerer, (question, passage), target=(10, 13), steps=40)
    assert answered.target == "answer 'Ann'"
    features = answerer.preprocessor.pad(answerer.preprocessor([question], [passage]))
    ann = answered.tokens.index("ann")
    outputs = answerer.predict({name: np.asarray(x) for name, x in features.items()}, verbose=0)
    expected = outputs["start_logits"][0, ann] + outputs["end_logits"][0, ann]
    np.testing.assert_allclose(answered.output, expected, atol=1e-4)
    assert answered.texts == (question, passage)

    chooser = random_task(MultipleChoice)
    x = ("Ann ate", ["in paris", "a film , dull"])
    chosen = insight.attributions(chooser, x, target=1, steps=40)
    np.testing.assert_allclose(chosen.output, chooser.predict([x], verbose=0)[0, 1], atol=1e-4)

    masked_lm = random_task(MaskedLM)
    filled = insight.attributions(masked_lm, "the [MASK] was dull", target="film", steps=40)
    (answers,) = [masked_lm.fill("the [MASK] was dull", top_k=len(TOKENS))]
    scores = {answer["token"]: answer["score"] for answer in answers}
    second = insight.attributions(masked_lm, "the [MASK] was dull", target="bad", steps=40)
    np.testing.assert_allclose(
        filled.output - second.output, np.log(scores["film"] / scores["bad"]), atol=1e-3
    )
    for each in (tags, answered, chosen, filled):
        assert abs(each.convergence_delta) < 0.02 * max(1, abs(each.output)), each.target
        for span, token in zip(each.spans, each.tokens, strict=True):
            if span is None:
                assert token.startswith("[")
            else:
                text = each.texts[span[0]][span[1] : span[2]].lower()
                assert token.removeprefix("##") in text
    # Without a target, the task's prediction is explained.
    for task, row in (
        (answerer, (question, passage)),
        (chooser, x),
        (masked_lm, "the [MASK] was dull"),
    ):
        assert insight.attributions(task, row, "gradient_x_input").target


def test_attributions_do_not_change_the_task(directory):
    classifier = TextClassifier.from_preset(directory)
    before = classifier.predict(["the film"], verbose=0)
    with pytest.raises(ValueError, match="target must be 0 to 2"):
        insight.attributions(classifier, "the film", target=3)
    insight.attributions(classifier, "the film", target=1, steps=60)
    np.testing.assert_array_equal(classifier.predict(["the film"], verbose=0), before)

    # New weights of the same shapes: no compiled function may contain the old weights.
    classifier.set_weights([0.7 * weight for weight in classifier.get_weights()])
    for method in insight.attribution.METHODS:
        attributions = insight.attributions(classifier, "the film", method, target=1, steps=60)
        expected = classifier.predict(["the film"], verbose=0)[0, 1]
        np.testing.assert_allclose(attributions.output, expected, rtol=1e-5)
        if method == "integrated_gradients":
            assert abs(attributions.convergence_delta) < 1e-2 * abs(expected)

    alive = weakref.ref(classifier)
    del classifier
    gc.collect()
    assert alive() is None


@pytest.mark.on_torch
def test_invalid_arguments_raise(directory):
    classifier = TextClassifier.from_preset(directory)
    for arguments, message in (
        (
            ("the", "lime"),
            "method must be one of integrated_gradients, .*occlusion. Received: 'lime'",
        ),
        ((["a", "b", "c"],), "x must be a text or a pair"),
        ((None,), "x must be a text or a pair"),
        (
            ("film " * 31,),
            "The text must have at most 30 tokens. Received: 31 tokens in 'film film ",
        ),
        (
            (("the film", "dull " * 28),),
            r"The texts must have at most 29 tokens. Received: 2 \+ 28",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            insight.attributions(classifier, *arguments)
    whole = insight.attributions(classifier, ("the film", "dull " * 27), "occlusion")
    assert all(word["score"] for word in whole.words)
    with pytest.raises(ValueError, match=r"baseline must be one of pad, mask\. Received: 'zero'"):
        insight.attributions(classifier, "the", baseline="zero")
    embedder = TextEmbedder(Backbone(BertConfig(vocabulary_size=len(TOKENS), **SIZES)))
    with pytest.raises(
        ValueError,
        match=r"must be a task with a head .*, such as a TextClassifier\. Received: a TextEmbedder",
    ):
        insight.attributions(embedder, "the")


@pytest.fixture
def make_small_classifier():
    def make(**options):
        config = BertConfig(
            vocabulary_size=len(TOKENS), max_sequence_length=32, initializer_range=0.3, **SIZES
        )
        fields = {key: options.pop(key) for key in ("position_offset",) if key in options}
        preprocessor = data.TextClassifierPreprocessor(make_tokenizer(*TOKENS), 16)
        backbone = Backbone(config.replace(**fields), **options)
        return TextClassifier(backbone, num_classes=2, preprocessor=preprocessor)

    return make


@pytest.mark.on_torch
def test_static_int8_supports_only_occlusion(make_small_classifier):
    classifier = make_small_classifier()
    classifier.quantize("int8", calibration=["the film was good", "a dull film"])
    for explain in (
        lambda: insight.attributions(classifier, "the film", target=0),
        lambda: insight.head_importance(classifier, ["the film"], [0]),
    ):
        with pytest.raises(ValueError, match="rounding has no gradient"):
            explain()
    whole = insight.attributions(classifier, "the good film", "occlusion", target=0)
    assert all(word["score"] for word in whole.words)


@pytest.mark.on_torch
@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion"])
def test_unpadded_attributions_match_padded(make_small_classifier, method):
    padded, unpadded = make_small_classifier(), make_small_classifier(unpadded=True)
    unpadded.set_weights(padded.get_weights())
    one, other = (
        insight.attributions(classifier, "the good film", method, target=0, steps=4)
        for classifier in (padded, unpadded)
    )
    np.testing.assert_allclose(other.scores, one.scores, atol=1e-5)


@pytest.mark.on_torch
def test_occlusion_keeps_positions(make_small_classifier):
    """In some families, a token's position is the number of preceding non-padding tokens."""
    classifier = make_small_classifier(position_offset=2)
    words = ["the", "good", "film", "was", "dull"]
    explained = insight.attributions(classifier, " ".join(words), "occlusion", target=0)
    packed = Backbone(classifier.config, packed=True)
    packed.set_weights(classifier.backbone.get_weights())
    ids = np.array([[2, *(TOKENS.index(word) for word in words), 3]] * 6)
    for row in range(5):
        ids[1 + row, 1 + row] = 0
    positions = np.broadcast_to(np.arange(7), ids.shape)
    pooled = packed({"token_ids": ids, "position_ids": positions})["pooled_output"]
    logits = keras.ops.convert_to_numpy(classifier.head(pooled))[:, 0]
    np.testing.assert_allclose(explained.scores[1:-1], logits[0] - logits[1:], atol=1e-4)
