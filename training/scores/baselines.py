# SPDX-License-Identifier: Apache-2.0
"""Simple baselines for each task, such as the majority class and a bag of words.

They use the model's metrics, and `results.json` contains them as `baselines`. They take seconds,
because the bag of words is trained on a sample if a file is large, and on the start of long texts.

Requires scikit-learn from the extra `training`.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from keras_bert.data.conll import TaggedText
from keras_bert.data.labels import f1_thresholds
from keras_bert.data.squad import QuestionExample
from keras_bert.tables import replace_underscores, table_from_records, text_table
from keras_bert.text.characters import UNSPACED

from ..readers.choice_files import ChoiceRows
from ..readers.data_splits import stratified_sample
from ..readers.labeled_text import LabeledText
from ..readers.row_values import required_labels
from . import classifier_scores, entity_scores, question_scores

# Maps the baseline's name to the metric's name to the score
Baselines = dict[str, dict[str, float]]

MAX_TRAINING_ROWS = 50_000
MAX_CHARACTERS = 2_000
_MAX_FEATURES = 100_000
# The sliding window counts the question's words within this number of words around an answer.
_WINDOW_WORDS = 10
# The sliding window's longest answer, in words
_ANSWER_WORDS = 4
_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+")


def show(baselines: Mapping[str, Baselines]) -> None:
    """Prints a table of baselines for each validation set."""
    for dev_name, rows in baselines.items():
        table = text_table(*table_from_records(f"{dev_name}, baselines", replace_underscores(rows)))
        print(table, flush=True)


def text_baselines(
    train: LabeledText, sets: Mapping[str, LabeledText], metric_names: Sequence[str]
) -> dict[str, Baselines]:
    """Scores the baselines for text classification: a constant prediction and a bag of words.

    The bag of words is TF-IDF over unigrams and bigrams with logistic regression, or with ridge
    regression for scores. It counts characters instead of words if most letters belong to scripts
    without spaces. For text pairs, the features are the TF-IDF vectors of both texts, their
    products, absolute differences and cosine. The bag is trained on at most 50,000 examples,
    sampled with a fixed seed. Each text is truncated to 2,000 characters, and has at most 100,000
    features.

    Args:
        train: The training examples.
        sets: The sets to score on by name, such as dev and test.
        metric_names: The metrics for `classifier_scores.score`. Ignored for multi-label data.

    Returns:
        For each set, `{"majority": scores, "bag_of_words": scores}`. The first key is `"mean"` for
        regression and `"frequency"` for multi-label data. The second key is `"bag_of_characters"`
        for scripts without spaces. For multi-label data, the thresholds of the bag are tuned on the
        first set, in the same way as for the model. The bag is omitted if scikit-learn finds no
        words.

    Raises:
        ValueError: If one of the data sets has no labels.
    """
    golds = {name: required_labels(data.labels, data.path) for name, data in sets.items()}
    baseline, constant = _constant(train)
    answers = {
        baseline: {name: np.repeat(constant[None], len(data), 0) for name, data in sets.items()}
    }
    train = train.rows(stratified_sample(train.strata, MAX_TRAINING_ROWS))
    unit = "character" if _is_unspaced(train.texts) else "word"
    predict = _bag(train, unit)
    if predict is not None:
        answers[f"bag_of_{unit}s"] = {name: predict(data) for name, data in sets.items()}
    scores: dict[str, Baselines] = {name: {} for name in sets}
    for baseline, predictions_by_set in answers.items():
        if train.multi_label:
            first = next(iter(sets))
            is_bag = baseline != "frequency"
            thresholds = f1_thresholds(golds[first], predictions_by_set[first]) if is_bag else [0.5]
        for name, predictions in predictions_by_set.items():
            scores[name][baseline] = (
                classifier_scores.label_scores(golds[name], predictions, thresholds)
                if train.multi_label
                else classifier_scores.score(metric_names, predictions, golds[name])
            )
    return scores


def _constant(train: LabeledText) -> tuple[str, np.ndarray]:
    """Returns the constant baseline's name, and its prediction for each example."""
    labels = required_labels(train.labels, train.path)
    if train.multi_label:
        return "frequency", labels.mean(axis=0)
    if train.class_names is None:
        return "mean", labels.mean(dtype="float64")
    return "majority", np.bincount(labels).argmax()


def _is_unspaced(texts: Sequence[str]) -> bool:
    """Returns whether most letters belong to scripts without spaces."""
    text = " ".join(_truncate(texts[:MAX_CHARACTERS]))
    return 2 * len(re.findall(f"[{UNSPACED}]", text)) > len(re.findall(r"\w", text))


def _bag(train: LabeledText, unit: str) -> Callable[[LabeledText], np.ndarray] | None:
    """Trains a bag of words, and returns a function that predicts with it.

    Returns `None` if the texts have no words, or the labels only one class. For multi-label data,
    the function returns the probability of each label. It is constant for labels that all or no
    training examples have.
    """
    labels = required_labels(train.labels, train.path)
    words = TfidfVectorizer(
        analyzer="char" if unit == "character" else "word",
        ngram_range=(1, 2),
        sublinear_tf=True,
        max_features=_MAX_FEATURES,
    )
    try:
        words.fit([*_truncate(train.texts), *_truncate(train.text_pairs or [])])
    except ValueError:  # The vocabulary is empty: all words have a single letter.
        return None
    features = _features(words, train)
    if train.class_names is None:
        ridge = Ridge().fit(features, labels)
        return lambda data: ridge.predict(_features(words, data))
    columns = labels.T if train.multi_label else [labels]
    bags = [
        LogisticRegression(C=3.0, tol=1e-3, max_iter=1000).fit(features, column)
        if len(np.unique(column)) > 1
        else DummyClassifier().fit(features, column)
        for column in columns
    ]
    if all(isinstance(bag, DummyClassifier) for bag in bags):
        return None
    if not train.multi_label:
        return lambda data: bags[0].predict(_features(words, data))

    def probabilities(data: LabeledText) -> np.ndarray:
        data_features = _features(words, data)
        each = [bag.predict_proba(data_features)[:, bag.classes_ == 1].sum(axis=1) for bag in bags]
        return np.stack(each, axis=1)

    return probabilities


def _features(words: TfidfVectorizer, data: LabeledText) -> Any:
    first = words.transform(_truncate(data.texts))
    if data.text_pairs is None:
        return first
    second = words.transform(_truncate(data.text_pairs))
    products = first.multiply(second)
    cosine = scipy.sparse.csr_matrix(products.sum(axis=1))
    return scipy.sparse.hstack([first, second, products, abs(first - second), cosine], "csr")


def _truncate(texts: Sequence[str]) -> list[str]:
    return [text[:MAX_CHARACTERS] for text in texts]


def tag_baselines(train: TaggedText, dev: TaggedText) -> Baselines:
    """Scores the baselines for token classification, the most frequent tag overall and by word.

    Words that do not occur in `train` get its most frequent tag.

    Returns:
        `{"majority": scores, "word_majority": scores}`, with the metrics of
        `entity_scores.tagging_scores`.
    """
    tag_counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    counts: collections.Counter[str] = collections.Counter()
    for words, tags in zip(train.words, train.labels or (), strict=True):
        counts.update(tags)
        for word, tag in zip(words, tags, strict=True):
            tag_counts[word][tag] += 1
    commonest = counts.most_common(1)[0][0]
    most_frequent = {word: tags.most_common(1)[0][0] for word, tags in tag_counts.items()}
    answers = {
        "majority": [[commonest] * len(words) for words in dev.words],
        "word_majority": [
            [most_frequent.get(word, commonest) for word in words] for words in dev.words
        ],
    }
    gold = dev.labels or []
    return {name: entity_scores.tagging_scores(tags, gold) for name, tags in answers.items()}


def choice_baselines(dev: ChoiceRows) -> Baselines:
    """Scores the baselines for multiple choice, the expected random choice and the longest choice.

    Returns:
        `{"random": {"accuracy": ...}, "longest": {"accuracy": ...}}`.

    Raises:
        ValueError: If `dev` has no labels.
    """
    labels = required_labels(dev.labels, dev.path)
    longest = [int(np.argmax([len(choice) for choice in choices])) for choices in dev.choices]
    chance = 100 * math.fsum(1 / len(choices) for choices in dev.choices) / len(dev)
    return {
        "random": {"accuracy": chance},
        "longest": classifier_scores.score(("accuracy",), longest, labels),
    }


def question_baselines(examples: Sequence[QuestionExample], has_unanswerable: bool) -> Baselines:
    """Scores the baselines for question answering: a sliding window, and for SQuAD 2.0 no answer.

    Candidate answers are runs of at most 4 words in the passage, without punctuation and without
    the question's words. Each is scored by the question's words within 10 words of it, weighted by
    their inverse passage frequency. In scripts without spaces, each character counts as a word.
    [Richardson et al. (2013)](https://aclanthology.org/D13-1020/) score given answers in this way.

    Returns:
        The scores by baseline name, with the data set's metrics.
    """
    golds = question_scores.gold_answers(examples, has_unanswerable)
    contexts = {one.context for one in examples}
    frequencies = collections.Counter(
        word for context in contexts for word in {word for _, _, word in _words(context)}
    )
    weights = {word: math.log(1 + len(contexts) / count) for word, count in frequencies.items()}
    texts, scores = zip(*(_window_answer(one, weights) for one in examples), strict=True)
    answers = {"sliding_window": question_scores.best_by_key(examples, texts, scores)}
    if golds.data_set == "squad_v2":
        answers = {"no_answer": {one.id: "" for one in examples}, **answers}
    return {name: golds.scores(predicted) for name, predicted in answers.items()}


def _window_answer(example: QuestionExample, weights: Mapping[str, float]) -> tuple[str, float]:
    """Returns the candidate answer with the highest score, and its score."""
    words = list(_words(example.context))
    question_words = {word for _, _, word in _words(example.question)}
    values = [weights[word] if word in question_words else 0.0 for _, _, word in words]
    sums = np.concatenate([[0.0], np.cumsum(values)])
    best, answer = -1.0, ""
    for first, last in _runs(example.context, words, question_words):
        score = sums[min(last + _WINDOW_WORDS, len(words))] - sums[max(first - _WINDOW_WORDS, 0)]
        if score > best:
            best, answer = score, example.context[words[first][0] : words[last - 1][1]]
    return answer, best


def _words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields `(start, end, word)` for each word, in lower case."""
    for match in _WORD.finditer(text):
        yield match.start(), match.end(), match[0].lower()


def _runs(
    context: str, words: Sequence[tuple[int, int, str]], question_words: set[str]
) -> Iterator[tuple[int, int]]:
    """Yields the indices `(first, end)` of the words in each candidate answer, without `end`."""
    first = 0
    for index, (start, _, word) in enumerate(words):
        is_after_gap = index > 0 and context[words[index - 1][1] : start] not in ("", " ")
        if is_after_gap or word in question_words or index - first == _ANSWER_WORDS:
            if index > first:
                yield first, index
            first = index + (word in question_words)
    if first < len(words):
        yield first, len(words)
