# SPDX-License-Identifier: Apache-2.0
"""Predictions match the `transformers` pipelines."""

import numpy as np
import pytest

# Other tests compare logits with transformers on each backend.
pytestmark = pytest.mark.on_torch

pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

import keras_bert  # noqa: E402
from keras_bert import checkpoints  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from tests.checkpoints.small_models import randomize, small_config  # noqa: E402
from tests.text import small_tokenizers  # noqa: E402

FAMILIES = {
    "wordpiece": {},
    "byte_pair": {
        "num_segments": 1,
        "position_offset": 2,
        "pad_token_id": 1,
        "tokenizer": "byte_pair",
    },
}
NAMES = ["zero", "one", "two", "three"]


def save_random_task(task_class, kind, directory, **arguments):
    """Saves a small random task in the Hugging Face format, and returns it."""
    tokenizer = small_tokenizers.make(kind)
    config = small_config(
        vocabulary_size=tokenizer.vocabulary_size,
        max_sequence_length=40,
        initializer_range=0.5,
        **FAMILIES[kind],
    )
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=40)
    task = task_class(keras_bert.Backbone(config), preprocessor=preprocessor, **arguments)
    randomize(task)
    checkpoints.save_hugging_face(task, directory)
    return task


@pytest.mark.parametrize("kind", FAMILIES)
def test_top_k_matches_pipeline(kind, tmp_path):
    texts = ["the test fails", "a case of 1990 tests, skipped"]
    classifier = save_random_task(keras_bert.TextClassifier, kind, tmp_path, class_names=NAMES)
    pipeline = transformers.pipeline("text-classification", model=str(tmp_path))
    check_same([classifier.classify(texts)], [pipeline(texts)])
    for top_k in (1, 3, 10):
        answers, expected = classifier.classify(texts, top_k=top_k), pipeline(texts, top_k=top_k)
        assert [len(answer) for answer in answers] == [min(top_k, len(NAMES))] * 2
        check_same(answers, expected)
    check_same([classifier.classify(texts[0], top_k=4)], [pipeline(texts[0], top_k=None)])


@pytest.mark.parametrize(
    "names", [["contradiction", "neutral", "entailment"], ["Entailment", "not_entailment"]]
)
def test_zero_shot_classification_matches_pipeline(names, tmp_path):
    """The entailment class can have any index. The last text is truncated, but no label is."""
    texts = ["the test fails", "a case of 1990 tests, skipped", "the test is in the case " * 9]
    labels = {"tests": "a test", "methods": "a method of a class", "cases": "a case"}
    nli = save_random_task(keras_bert.TextClassifier, "wordpiece", tmp_path, class_names=names)
    pipeline = transformers.pipeline("zero-shot-classification", model=str(tmp_path))
    nli.preprocessor.truncated_rows.is_reported = True
    for multi_label, part, template in (
        (False, labels, "This example is {}."),
        (True, labels, "It is {}!"),
        (False, {"tests": "a test"}, "This example is {}."),
        (False, {"long": "a case in the test of a class in the case", "tests": "a test"}, "is {}."),
    ):
        answers = nli.classify_zero_shot(texts, part, hypothesis=template, multi_label=multi_label)
        rows = pipeline(
            texts, list(part.values()), hypothesis_template=template, multi_label=multi_label
        )
        keys = {text: name for name, text in part.items()}
        check_same(
            answers,
            [
                [
                    {"label": keys[label], "score": score}
                    for label, score in zip(row["labels"], row["scores"], strict=True)
                ]
                for row in rows
            ],
        )
    with pytest.raises(ValueError, match="must have fewer than 37 tokens"):
        nli.classify_zero_shot(texts, ["the test " * 20])
    by_id = nli.classify_zero_shot(texts[0], labels, entailment=1)
    assert by_id != nli.classify_zero_shot(texts[:1], labels)[0]
    with pytest.raises(ValueError, match="entailment=None and the classes zero, one"):
        save_random_task(
            keras_bert.TextClassifier, "wordpiece", tmp_path / "other", class_names=NAMES
        ).classify_zero_shot(texts, labels)


@pytest.mark.parametrize("options", [{}, {"multi_label": True}])
def test_rank_matches_sentence_transformers(options, tmp_path):
    """A model with one output is a regression, or has a label with a probability."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    documents = ["the test fails", "a case", "the test is in the case " * 9, "a case of 1990 tests"]
    ranker = save_random_task(
        keras_bert.TextClassifier, "wordpiece", tmp_path, num_classes=1, **options
    )
    ranker.preprocessor.truncated_rows.is_reported = True
    cross_encoder = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    for query, top_k in (("the test", None), ("a class of tests", 2)):
        expected = cross_encoder.rank(query, documents, top_k=top_k)
        assert ranker.rank(query, documents, top_k=top_k) == [
            {"index": row["corpus_id"], "score": pytest.approx(row["score"], abs=1e-6)}
            for row in expected
        ]
    assert ranker.rank("the test", []) == []
    with pytest.raises(ValueError, match=r"query must be a string.*query=\['the test'\]"):
        ranker.rank(["the test"], documents)


def test_embedder_zero_shot_uses_cosine_similarity(tmp_path):
    embedder = save_random_task(keras_bert.TextEmbedder, "wordpiece", tmp_path, normalize=False)
    labels = {"tests": "a test fails", "cases": "the case is skipped"}
    texts = ["the test fails", "a case of 1990 tests, skipped"]
    vectors, targets = embedder.embed(texts), embedder.embed(list(labels.values()))
    for text, vector in zip(texts, vectors, strict=True):
        answer = embedder.classify_zero_shot(text, labels)
        scores = [
            vector @ target / np.linalg.norm(vector) / np.linalg.norm(target) for target in targets
        ]
        expected = sorted(zip(scores, labels, strict=True), reverse=True)
        assert [label["label"] for label in answer] == [name for _, name in expected]
        assert [label["score"] for label in answer] == pytest.approx([s for s, _ in expected])


def check_same(answers, expected):
    for ranked, expected_ranked in zip(answers, expected, strict=True):
        assert [answer["label"] for answer in ranked] == [
            answer["label"] for answer in expected_ranked
        ]
        scores = [answer["score"] for answer in expected_ranked]
        assert [answer["score"] for answer in ranked] == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_fill_targets_match_pipeline(kind, tmp_path):
    masked_lm = save_random_task(keras_bert.MaskedLM, kind, tmp_path)
    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path))
    tokenizer = masked_lm.preprocessor.tokenizer
    space = "Ġ" if kind == "byte_pair" else ""
    targets = [f"{space}test", f"{space}the", "s", f"{space}is", f"{space}the"]
    text = f"the {tokenizer.mask_token} fails in {tokenizer.mask_token}"
    for words, top_k in ((targets, 5), (targets, 2), (targets[0], 5)):
        answers = masked_lm.fill(text, top_k=top_k, targets=words)
        expected = pipeline(text, top_k=top_k, targets=words)
        for ranked, expected_ranked in zip(answers, expected, strict=True):
            ids = [tokenizer.token_to_id(answer["token"]) for answer in ranked]
            assert ids == [answer["token"] for answer in expected_ranked]
            scores = [answer["score"] for answer in expected_ranked]
            assert [answer["score"] for answer in ranked] == pytest.approx(scores, rel=1e-4)
    # Scores are relative to all tokens.
    everything = masked_lm.fill(text, top_k=tokenizer.vocabulary_size)[0]
    (one,) = masked_lm.fill(text, targets="s")[0]
    assert one == pytest.approx(next(answer for answer in everything if answer["token"] == "s"))
