# SPDX-License-Identifier: Apache-2.0
"""Every task on every family, from text: it learns, and every way to ask it gives one answer.

A cell trains one small model by the public API, with the family's own kind of tokenizer, and asks
for its answers and scores in all ways there are: `predict`, `evaluate` at two batch sizes, a saved
file, a preset, and an export.

Each cell runs on one of the three backends, another one from cell to cell, so that a backend sees
every case and every family; `KERAS_BERT_WHOLE_GRID=1` runs them all on each.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("sentencepiece")

import keras_bert
from keras_bert.data.arrays import NUMPY
from keras_bert.named_sizes import SIZES
from tests.text import small_tokenizers

pytestmark = pytest.mark.needs_tensorflow

# A released size of each family, reduced in the fields in which families do not differ
RELEASED = {
    "bert": "bert_base_uncased",
    "roberta": "roberta_base",
    "albert": "albert_base_v2",
    "distilbert": "distilbert_base_uncased",
    "electra": "electra_small_discriminator",
}
LENGTH = 32
SMALL = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "max_sequence_length": LENGTH,
    # Dozens of steps must be enough, not thousands.
    "initializer_range": 0.1,
    **dict.fromkeys(
        (
            "dropout",
            "attention_dropout",
            "classifier_dropout",
            "answer_dropout",
            "pooler_dropout",
        ),
        0.0,
    ),
}
# Three batches of seven and one of one: few shapes where each is compiled
NUM_ROWS, BATCH = 22, 7
# How often `fit` sees the rows, in one epoch: as many epochs take longer. Words from their context
# take more than labels do, and soft targets more than labels: at 40, ALBERT is not there yet.
ROUNDS, MORE_ROUNDS, MANY_ROUNDS = 40, 80, 120

# Words that are one token in all three vocabularies, and their counterparts
PARTNERS = {
    "test": "failure",
    "class": "method",
    "result": "message",
    "skip": "exception",
    "failure": "test",
    "method": "class",
    "message": "result",
    "exception": "skip",
}


# === What is learned ===


@dataclasses.dataclass(frozen=True)
class TaskCase:
    """What a task learns and is asked, of one tokenizer.

    Args:
        make: Makes the task of a backbone and a preprocessor's config.
        x, y: `NUM_ROWS` rows as `evaluate` takes them.
        answers: What a user's verb answers, as arrays.
        right: The share of right answers.
        outputs: What `predict` gives, as arrays.
        scores: What `evaluate` reports at a batch size, computed of the outputs.
        rate: The highest learning rate.
        rounds: How often `fit` sees each row.
        train: Rows as `fit` takes them, without labels, where they are others.
        preprocessor: Options of the preprocessor.
        served: Of an exported text signature, `serve_ids`, the answers and the outputs: pairs of
            what an export answers and what it should.
        export: Options of `export`.
        idle: Names of weights that learn nothing.
        from_preset: What reads the task's preset; `None` takes its class.
    """

    make: Callable[..., Any]
    x: Any
    y: Any
    answers: Callable[[Any], Any]
    right: Callable[[Any], float]
    outputs: Callable[[Any], Any]
    scores: Callable[[Any, int], dict[str, float]]
    rate: float = 1e-2
    rounds: int = ROUNDS
    train: Any = None
    preprocessor: dict[str, Any] = dataclasses.field(default_factory=dict)
    served: Callable[..., Any] | None = None
    export: dict[str, Any] = dataclasses.field(default_factory=dict)
    idle: tuple[str, ...] = ()
    from_preset: Any = None


def picked(values, seed):
    return [values[i] for i in np.random.default_rng(seed).integers(0, len(values), NUM_ROWS)]


def times(rows, rounds):
    """Rows of any form, again and again: cheaper than as many epochs."""
    if isinstance(rows, tuple):
        return tuple(times(part, rounds) for part in rows)
    if isinstance(rows, dict):
        return {name: times(part, rounds) for name, part in rows.items()}
    return rows * rounds if isinstance(rows, list) else np.concatenate([rows] * rounds)


def column(answers, name):
    return np.array([answer[name] for answer in answers])


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def softmax(logits):
    return np.exp(log_softmax(logits))


def cross_entropy(logits, labels):
    return -np.take_along_axis(log_softmax(logits), labels[..., None], axis=-1)[..., 0]


def class_scores(logits, labels, weights=None):
    return {
        "loss": np.average(cross_entropy(logits, labels), weights=weights),
        "accuracy": np.average(logits.argmax(axis=-1) == labels, weights=weights),
    }


VERDICTS = ["fails", "passes", "is skipped"]


def verdicts():
    """Texts of two lengths, and which verdict each has."""
    ids = np.array(picked(range(len(VERDICTS)), 0))
    words = picked(list(PARTNERS), 1)
    return [f"the {word} {VERDICTS[index]}" for word, index in zip(words, ids, strict=True)], ids


def classes(_family):
    texts, ids = verdicts()
    names = ["bad", "good", "none"]
    labels = [names[index] for index in ids]

    def served(text, of_ids, answers, logits, features):
        yield text(text=texts)["probabilities"], softmax(logits)
        assert text(text=texts)["label"].astype(str).tolist() == answers["label"].tolist()
        yield of_ids(token_ids=features(texts)["token_ids"])["logits"], logits

    def answers(task):
        found = task.classify(texts)
        return {name: column(found, name) for name in ("label", "score")}

    return TaskCase(
        make=functools.partial(keras_bert.TextClassifier, class_names=names),
        x=texts,
        y=labels,
        answers=answers,
        right=lambda answers: np.mean(answers["label"] == labels),
        outputs=lambda task: task.predict(texts, verbose=0),
        scores=lambda logits, _: class_scores(logits, ids),
        served=served,
        rate=3e-3,
    )


def pairs(_family):
    """The label is the second text's: texts, or places, have to be told apart."""
    labels = np.array(picked([0, 1], 1))
    x = (
        [f"the test {VERDICTS[index]}" for index in picked([0, 1], 0)],
        [f"the case {VERDICTS[label]}" for label in labels],
    )

    def served(text, of_ids, _, logits, features):
        yield text(text=x[0], text_pair=x[1])["probabilities"], softmax(logits)
        ids = features(*x)
        yield of_ids(**{name: ids[name] for name in ("token_ids", "segment_ids")})["logits"], logits

    def answers(task):
        found = task.classify(x)
        return {name: column(found, name) for name in ("label", "score")}

    return TaskCase(
        make=functools.partial(keras_bert.TextClassifier, num_classes=2),
        x=x,
        y=labels,
        answers=answers,
        right=lambda answers: np.mean(answers["label"] == labels),
        outputs=lambda task: task.predict(x, verbose=0),
        scores=lambda logits, _: class_scores(logits, labels),
        served=served,
        export={"pair": True},
    )


def regression(_family):
    texts, ids = verdicts()
    y = np.array([0.0, 1.0, 0.5], "float32")[ids]

    def served(text, of_ids, answers, scores, features):
        yield text(text=texts)["score"], answers
        yield of_ids(token_ids=features(texts)["token_ids"])["logits"], scores

    return TaskCase(
        make=functools.partial(keras_bert.TextClassifier, num_classes=1),
        x=texts,
        y=y,
        answers=lambda task: column(task.classify(texts), "score"),
        # The share of the variance that is explained
        right=lambda scores: 1 - np.square(scores - y).mean() / y.var(),
        outputs=lambda task: task.predict(texts, verbose=0),
        scores=lambda scores, _: {
            "loss": np.square(scores[:, 0] - y).mean(),
            "mean_absolute_error": np.abs(scores[:, 0] - y).mean(),
        },
        served=served,
    )


def tagging(_family):
    tags = ["O", "B-A", "B-B"]
    kinds = {word: tags[1 + index % 2] for index, word in enumerate(PARTNERS)}
    rows = zip(picked(list(PARTNERS), 0), picked(list(PARTNERS), 1), strict=True)
    # Sentences of several lengths
    sentences = [
        [first, "has", "no", *["in", second] * (row % 3)]
        for row, (first, second) in enumerate(rows)
    ]
    texts = [" ".join(sentence) for sentence in sentences]
    labels = [[kinds.get(word, "O") for word in sentence] for sentence in sentences]
    ids = np.array([tags.index(label) for sentence in labels for label in sentence])

    def served(text, of_ids, answers, logits, _):
        received = text(text=texts)
        is_word = np.arange(received["labels"].shape[1]) < received["num_words"][:, None]
        assert received["labels"][is_word].astype(str).tolist() == answers["label"].tolist()
        yield received["scores"][is_word], answers["score"]

    def answers(task):
        found = [word for sentence in task.tag(texts) for word in sentence]
        return {name: column(found, name) for name in ("label", "score")}

    return TaskCase(
        make=functools.partial(keras_bert.TokenClassifier, class_names=tags),
        x=sentences,
        y=labels,
        answers=answers,
        right=lambda answers: np.mean(answers["label"] == np.array(tags)[ids]),
        outputs=lambda task: np.concatenate(task.predict(sentences, verbose=0)),
        scores=lambda logits, _: class_scores(logits, ids),
        served=served,
    )


def questions(family):
    tokenizer = tokenizer_of(family)
    rows = []
    words = list(PARTNERS)
    for one, other, which in zip(
        picked(words[:4], 0), picked(words[4:], 1), picked([0, 1], 2), strict=True
    ):
        context, text = f"the {one} is in the {other}.", (one, other)[which]
        rows.append(
            {
                "question": ("what?", "in?")[which],
                "context": context,
                "answers": [{"text": text, "answer_start": context.index(text)}],
            }
        )
    texts = {name: [row[name] for row in rows] for name in ("question", "context")}
    wanted = [row["answers"][0]["text"] for row in rows]
    starts = column([row["answers"][0] for row in rows], "answer_start")

    def targets(features):
        """The first and last token of each answer, by the characters that tokens cover."""
        windows = features(texts["question"], texts["context"])
        begins, ends = (
            NUMPY.to_dense(offsets, offsets.lengths.max(), 0)
            for offsets in (windows.char_starts, windows.char_ends)
        )
        behind = starts + list(map(len, wanted))
        inside = (ends > starts[:, None]) & (begins < behind[:, None])
        return inside.argmax(axis=1), inside.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)

    def outputs(task):
        found = task.predict(rows, verbose=0)
        return {name: padded(value, -1e4) for name, value in found.items()}

    def scores(logits, _):
        names = ("start_logits", "end_logits")
        found = {
            name: class_scores(logits[name], labels)
            for name, labels in zip(names, targets(preprocessor), strict=True)
        }
        reported = {f"{name}_{key}": found[name][key] for name in names for key in found[name]}
        return {**reported, "loss": np.mean([found[name]["loss"] for name in names])}

    def served(text, of_ids, answers, logits, _):
        received = text(**texts)
        assert received["answer"].astype(str).tolist() == answers["answer"].tolist()
        for name in ("start", "end", "score"):
            yield received[name], answers[name]
        features = preprocessor.padded(preprocessor(texts["question"], texts["context"]))
        received = of_ids(**{name: features[name] for name in ("token_ids", "segment_ids")})
        mask = features["padding_mask"]
        for name, values in logits.items():
            yield received[name][:, : mask.shape[1]][mask], values[mask]

    def answers(task):
        found = task.answer(texts["question"], texts["context"])
        return {name: column(found, name) for name in ("answer", "start", "end", "score")}

    options = {"doc_stride": 8, "max_query_length": 6}
    from keras_bert.data import QuestionAnswererPreprocessor

    preprocessor = QuestionAnswererPreprocessor(tokenizer, LENGTH, **options)
    return TaskCase(
        make=keras_bert.QuestionAnswerer,
        x=rows,
        y=None,
        answers=answers,
        right=lambda answers: np.mean(answers["answer"] == wanted),
        outputs=outputs,
        scores=scores,
        served=served,
        preprocessor=options,
    )


def padded(rows, value):
    longest = max(map(len, rows))
    return np.array([np.pad(row, (0, longest - len(row)), constant_values=value) for row in rows])


def choices(_family):
    labels = np.array(picked([0, 1, 2], 0))
    counts = [3 if label == 2 or row % 2 else 2 for row, label in enumerate(labels)]
    # No two choices of a row are one text: a server fills rows up with their first one.
    words = ["class", "method", "result"]
    x = [
        (
            "the test",
            [f"{VERDICTS[int(choice == label)]} {words[choice]}" for choice in range(count)],
        )
        for label, count in zip(labels, counts, strict=True)
    ]

    def served(text, _of_ids, _answers, logits, _features):
        filled_up = [own + [""] * (3 - len(own)) for _, own in x]
        received = text(text=[text for text, _ in x], choices=filled_up)
        yield received["probabilities"], softmax(logits)

    def answers(task):
        found = [answer[0] for answer in task.choose(x)]
        return {name: column(found, name) for name in ("choice", "score")}

    return TaskCase(
        make=keras_bert.MultipleChoice,
        x=x,
        y=labels,
        answers=answers,
        right=lambda answers: np.mean(answers["choice"] == labels),
        outputs=lambda task: task.predict(x, verbose=0),
        scores=lambda logits, _: class_scores(logits, labels),
        served=served,
        # Adding a constant to all choices changes no probability.
        idle=("classifier/dense/bias",),
    )


def embedding(_family):
    words = list(PARTNERS)[:4]
    firsts = [f"the {word}" for word in words]
    seconds = [f"a {PARTNERS[word]} in" for word in words]
    rows = picked(range(len(words)), 0)
    x = [(firsts[row], seconds[row]) for row in rows]

    def scores(vectors, batch_size):
        """The mean over pairs; rows come in their order, for all are of one length."""
        losses = []
        for first in range(0, NUM_ROWS, batch_size):
            batch = slice(first, first + batch_size)
            products = 20 * vectors["first"][batch] @ vectors["second"][batch].T
            losses.extend(-np.diagonal(log_softmax(products)))
        return {"loss": np.mean(losses)}

    def outputs(task):
        found = task.predict([text for pair in x for text in pair], verbose=0)
        return {"first": found[::2], "second": found[1::2]}

    def answers(task):
        """Which of the second texts is nearest to each first one."""
        vectors = task.embed(firsts + seconds)
        return vectors[: len(words)] @ vectors[len(words) :].T

    def served(text, of_ids, _answers, vectors, features):
        texts = [first for first, _ in x]
        yield text(text=texts)["embedding"], vectors["first"]
        yield of_ids(token_ids=features(texts)["token_ids"])["embedding"], vectors["first"]

    return TaskCase(
        make=keras_bert.TextEmbedder,
        x=x,
        y=None,
        answers=answers,
        right=lambda cosines: np.mean(cosines.argmax(axis=1) == np.arange(len(words))),
        outputs=outputs,
        scores=scores,
        served=served,
    )


# Two lengths; every word identifies which of the two it is.
SENTENCES = ["the class method result", "a test failure message with exception"]
# One word of a sentence, which is one token in all vocabularies
MASKED = [(0, "method"), (0, "class"), (1, "failure"), (1, "test"), (1, "message")]


MASKING = {"mask_selection_rate": 0.2, "mask_token_rate": 1.0, "random_token_rate": 0.0}


def masked_rows(tokenizer, *texts):
    """Features with mask positions, the ids that were there, and the weights of the slots."""
    from keras_bert.data import MaskedLMMasker, TextClassifierPreprocessor

    masker = MaskedLMMasker.from_tokenizer(tokenizer, **MASKING)
    masked = masker(TextClassifierPreprocessor(tokenizer, LENGTH)(*texts))
    features = dict(masked)
    return features, features.pop("mask_ids"), features.pop("mask_weights")


def masked_scores(logits, ids, weights):
    found = class_scores(logits, ids, weights)
    return {**found, "perplexity": np.exp(found["loss"])}


def masked_lm(family):
    tokenizer = tokenizer_of(family)
    sentences = picked(SENTENCES, 0)
    features, ids, weights = masked_rows(tokenizer, sentences)
    whole = [SENTENCES[row] for row, _ in MASKED]
    asked = [SENTENCES[row].replace(word, tokenizer.mask_token) for row, word in MASKED]

    def answers(task):
        found = [best[0] for best in task.fill(asked)]
        return {name: column(found, name) for name in ("text", "score")}

    return TaskCase(
        make=functools.partial(keras_bert.MaskedLM, masking=MASKING),
        rounds=MORE_ROUNDS,
        train=sentences,
        x=features,
        y=(ids, weights),
        answers=answers,
        right=lambda answers: np.mean(answers["text"] == whole),
        outputs=lambda task: task.predict(features, verbose=0),
        scores=lambda logits, _: masked_scores(logits, ids, weights),
    )


def pretraining(family):
    """Pairs of texts as ids: the second one's words say whether it comes next."""
    tokenizer = tokenizer_of(family)
    is_next = np.array(picked([0, 1], 1))
    # Each of their words is sufficient, because some are masked.
    seconds = [("it fails", "he passes")[label] for label in is_next]
    features, ids, weights = masked_rows(tokenizer, picked(SENTENCES, 0), seconds)
    labels = {"masked_lm_logits": ids, "next_sentence_logits": is_next}

    def outputs(task):
        return task.predict(features, verbose=0)

    def scores(logits, _):
        masked = masked_scores(logits["masked_lm_logits"], ids, weights)
        following = class_scores(logits["next_sentence_logits"], is_next)
        reported = {f"masked_lm_logits_{name}": value for name, value in masked.items()}
        reported |= {f"next_sentence_logits_{name}": value for name, value in following.items()}
        return {**reported, "loss": masked["loss"] + following["loss"]}

    def right(logits):
        masked, following = logits["masked_lm_logits"], logits["next_sentence_logits"]
        return min(
            np.average(masked.argmax(axis=-1) == ids, weights=weights),
            np.mean(following.argmax(axis=-1) == is_next),
        )

    return TaskCase(
        make=keras_bert.Pretrainer,
        rounds=MANY_ROUNDS,
        x=features,
        y=(labels, {"masked_lm_logits": weights, "next_sentence_logits": np.ones(NUM_ROWS)}),
        answers=outputs,
        right=right,
        outputs=outputs,
        scores=scores,
    )


def detection(family):
    """Which words are strange: those that a generator puts there, which learns nothing."""
    tokenizer = tokenizer_of(family)
    sentences = picked(SENTENCES, 0)
    features, ids, weights = masked_rows(tokenizer, sentences)
    strange = ["self", "is", "and"]
    asked = [
        " ".join([*sentence.split()[:2], word])
        for sentence, word in zip(sentences, picked(strange, 1), strict=True)
    ]
    behind = [text.rindex(" ") for text in asked]
    # Each is one token after a space, in every vocabulary: a space alone is never replaced
    tokens = [row[-1] for row in tokenizer([f"the {word}" for word in strange])]

    def make(backbone, preprocessor):
        task = keras_bert.ReplacedTokenDetector(
            backbone, preprocessor, generator_size=0.5, masking=MASKING
        )
        transform, bias = task.generator_heads["masked_lm"]
        only = np.full(tokenizer.vocabulary_size, -20.0, "float32")
        only[tokens] = 0
        bias.set_weights([only])
        # One that learns would soon keep to the sentences. Its embeddings are the encoder's.
        for layer in (task.generator, transform, bias):
            layer.trainable = False
        return task

    def answers(task):
        found = task.detect(asked, threshold=0.0)
        tokens = [
            {**token, "is_strange": token["end"] > last + 1}
            for row, last in zip(found, behind, strict=True)
            for token in row
        ]
        return {name: column(tokens, name) for name in ("is_strange", "score")}

    def right(answers):
        return np.mean((answers["score"] > 0.5) == answers["is_strange"])

    def outputs(task):
        return task.predict(features, verbose=0)

    def scores(outputs, _):
        sampled = outputs["sampled_ids"]
        masked = class_scores(outputs["masked_lm_logits"], ids, weights)
        rows, slots = np.nonzero(weights)
        replaced = np.zeros(features["token_ids"].shape)
        replaced[rows, features["mask_positions"][rows, slots]] = (sampled != ids)[rows, slots]
        real = features["padding_mask"]
        logits, replaced = outputs["replaced_token_logits"][real], replaced[real]
        losses = np.logaddexp(0, logits) - replaced * logits
        predicted = logits > 0
        reported = {
            "masked_lm_loss": masked["loss"],
            "generator_accuracy": masked["accuracy"],
            "replaced_token_loss": losses.mean(),
            "discriminator_accuracy": np.mean(predicted == replaced),
            "discriminator_precision": replaced[predicted].mean() if predicted.any() else 0.0,
            "discriminator_recall": predicted[replaced > 0].mean(),
        }
        return {**reported, "loss": masked["loss"] + 50 * losses.mean()}

    return TaskCase(
        make=make,
        train=sentences,
        x=features,
        y=(ids, weights),
        answers=answers,
        right=right,
        outputs=outputs,
        scores=scores,
    )


def soft_divergence(teacher, student, temperature=2.0):
    """`(...)`: how far the student's softened distribution is from the teacher's."""
    teacher, student = (log_softmax(logits / temperature) for logits in (teacher, student))
    return temperature**2 * np.sum(np.exp(teacher) * (teacher - student), axis=-1)


def distilled(family, name):
    """A fresh student of a teacher that has learned a case."""
    case = case_of(family, name)

    def make(backbone, preprocessor):
        return keras_bert.Distiller(
            case.make(backbone, preprocessor=preprocessor), trained(family, name)
        )

    # A preset is the student's.
    return case, {
        "make": make,
        "x": case.x,
        "y": case.y,
        "answers": lambda task: case.answers(getattr(task, "student_task", task)),
        "right": case.right,
        "from_preset": case.make.func,
        "rate": case.rate,
        "rounds": MORE_ROUNDS,
    }


def distilled_classes(family):
    """Without labels: the teacher says it all."""
    case, parts = distilled(family, "classes")
    _, ids = verdicts()

    def outputs(task):
        return {"student": case.outputs(task), "teacher": case.outputs(task.teacher_task)}

    def scores(logits, _):
        labels = class_scores(logits["student"], ids)
        divergence = soft_divergence(logits["teacher"], logits["student"]).mean()
        return {
            "divergence": divergence,
            "label_loss": labels["loss"],
            "accuracy": labels["accuracy"],
            "loss": 0.5 * divergence + 0.5 * labels["loss"],
        }

    return TaskCase(**parts, train=case.x, outputs=outputs, scores=scores)


def distilled_masked_lm(family):
    """Logits and hidden states."""
    case, parts = distilled(family, "masked_lm")
    ids, weights = case.y

    def outputs(task):
        return {
            f"{name}_{part}": np.asarray(value)
            for name, of in (("student", task.student_task), ("teacher", task.teacher_task))
            for part, value in (
                ("logits", case.outputs(of)),
                ("hidden", of.backbone.predict(encoder_inputs, verbose=0)["sequence_output"]),
            )
        }

    encoder_inputs = {name: value for name, value in case.x.items() if name != "mask_positions"}
    mask = case.x["padding_mask"]

    def scores(found, _):
        labels = class_scores(found["student_logits"], ids, weights)
        divergence = soft_divergence(found["teacher_logits"], found["student_logits"])
        hidden = [found[f"{name}_hidden"][mask] for name in ("student", "teacher")]
        student, teacher = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in hidden)
        reported = {
            "divergence": np.average(divergence, weights=weights),
            "label_loss": labels["loss"],
            "accuracy": labels["accuracy"],
            "cosine_distance": np.mean(1 - np.sum(student * teacher, axis=-1)),
        }
        of_loss = zip((5.0, 2.0, 1.0), ("divergence", "label_loss", "cosine_distance"), strict=True)
        return {**reported, "loss": sum(weight * reported[name] for weight, name in of_loss)}

    return TaskCase(**parts, train=case.train, outputs=outputs, scores=scores)


LESSONS = {
    "classes": classes,
    "pairs": pairs,
    "regression": regression,
    "tagging": tagging,
    "questions": questions,
    "choices": choices,
    "embedding": embedding,
    "masked_lm": masked_lm,
    "pretraining": pretraining,
    # On the same backends as the cases of their teachers, which are trained once
    "distilled_classes": distilled_classes,
    "distilled_masked_lm": distilled_masked_lm,
    "detection": detection,
}


# === The grid ===


@functools.cache
def tokenizer_of(family):
    return small_tokenizers.make(SIZES[RELEASED[family]].get("tokenizer", "wordpiece"))


@functools.cache
def case_of(family, name):
    return LESSONS[name](family)


def backbone_for(family, dtype=None):
    fields = {**SIZES[RELEASED[family]], **SMALL}
    if "embedding_dim" in fields:
        fields["embedding_dim"] = 8
    fields["vocabulary_size"] = tokenizer_of(family).vocabulary_size
    return keras_bert.Backbone(keras_bert.BertConfig(**fields), dtype=dtype)


def made(family, case, dtype=None):
    config = {
        "tokenizer": tokenizer_of(family).get_config(),
        "sequence_length": LENGTH,
        **case.preprocessor,
    }
    return case.make(backbone_for(family, dtype), preprocessor=config)


def train_task(task, case):
    """All weights but the idle ones must take part."""
    steps = math.ceil(NUM_ROWS * case.rounds / BATCH)
    task.compile(keras_bert.optimizers.AdamW(case.rate, steps, steps // 10))
    before = values_of(task)
    labeled = {"x": case.x, **labels_of(case)}
    rows = labeled if case.train is None else {"x": case.train}
    rows = {name: times(part, case.rounds) for name, part in rows.items()}
    task.fit(**rows, batch_size=BATCH, length_window=1, verbose=0)
    after = values_of(task)
    unchanged = {name for name, value in after.items() if np.array_equal(value, before[name])}
    assert unchanged <= set(case.idle)


@functools.cache
def trained(family, name):
    """A task that has learned a case; nobody changes its weights."""
    case = case_of(family, name)
    # A student begins with other weights than its teacher did
    keras.utils.set_random_seed(int(name.startswith("distilled")))
    task = made(family, case)
    train_task(task, case)
    return task


def values_of(task):
    return {
        variable.path: keras.ops.convert_to_numpy(variable.value)
        for variable in task.trainable_variables
    }


def labels_of(case):
    if isinstance(case.y, tuple):
        return dict(zip(("y", "sample_weight"), case.y, strict=True))
    return {} if case.y is None else {"y": case.y}


def check_scores(task, case, outputs, batch_size, tolerance):
    reported = task.evaluate(
        case.x, **labels_of(case), batch_size=batch_size, return_dict=True, verbose=0
    )
    expected = case.scores(outputs, batch_size)
    assert reported == pytest.approx(expected, rel=tolerance, abs=tolerance)


def check_alike(received, expected, tolerance):
    def check(one, other):
        if np.asarray(other).dtype.kind in "US":
            assert one.tolist() == other.tolist()
        else:
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)

    keras.tree.map_structure(check, received, expected)


def check_answers(task, case, folder, tolerance=1e-5):
    """A task is right, and answers alike however it is asked; returns answers and outputs."""
    answers, outputs = case.answers(task), case.outputs(task)
    assert case.right(answers) >= 0.95
    check_scores(task, case, outputs, BATCH, tolerance)
    check_saved(task, case, outputs, folder, tolerance)

    task.save_to_preset(folder / "preset")
    loaded = (case.from_preset or type(task)).from_preset(folder / "preset")
    check_alike(case.answers(loaded), answers, tolerance)
    return answers, outputs


def check_saved(task, case, outputs, folder, tolerance=1e-5):
    task.save(folder / "task.keras")
    loaded = keras_bert.load_model(folder / "task.keras")
    check_scores(loaded, case, outputs, NUM_ROWS, tolerance)


def check_export(task, case, answers, outputs, folder):
    import tensorflow as tf

    task.export(folder / "1", warm_up=False, **case.export)
    signatures = tf.saved_model.load(str(folder / "1")).signatures

    def serve(name, **inputs):
        received = signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
        return {key: value.numpy() for key, value in received.items()}

    text, of_ids = (functools.partial(serve, name) for name in ("serving_default", "serve_ids"))
    for received, expected in case.served(text, of_ids, answers, outputs, task.preprocessor):
        np.testing.assert_allclose(received, expected, atol=1e-5)


BACKENDS = ["tensorflow", "jax", "torch"]


def cells():
    """The cases and families that this backend has to do with."""
    whole = os.environ.get("KERAS_BERT_WHOLE_GRID") == "1"
    own = BACKENDS.index(keras.backend.backend())
    return [
        (name, family)
        for row, name in enumerate(LESSONS)
        for column, family in enumerate(RELEASED)
        if whole or (row + column) % len(BACKENDS) == own
    ]


@pytest.mark.parametrize(("name", "family"), cells())
def test_a_task_learns_and_answers_alike_however_it_is_asked(name, family, tmp_path):
    case, task = case_of(family, name), trained(family, name)
    answers, outputs = check_answers(task, case, tmp_path)
    # The other backends export with this one.
    if case.served is not None and keras.backend.backend() == "tensorflow":
        check_export(task, case, answers, outputs, tmp_path)


@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.on_tensorflow)]
)
def test_a_task_learns_in_mixed_precision(dtype, tmp_path):
    case = case_of("bert", "tagging")
    task = made("bert", case, dtype)
    train_task(task, case)
    # The preset is read in float32.
    check_answers(task, case, tmp_path, tolerance=0.03)


def test_a_low_rank_update_learns_and_is_loaded(tmp_path):
    # It changes little: the embeddings stay as they were drawn.
    case = dataclasses.replace(case_of("bert", "tagging"), rounds=MANY_ROUNDS)
    task = made("bert", case)
    task.backbone.enable_lora(4)
    train_task(task, case)
    check_answers(task, case, tmp_path)


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_a_quantized_task_is_right_and_is_loaded(tmp_path):
    case = case_of("bert", "tagging")
    task = made("bert", case)
    train_task(task, case)
    task.quantize("int8")
    assert case.right(case.answers(task)) >= 0.95
    check_saved(task, case, case.outputs(task), tmp_path)
    # A preset holds floating-point weights.
    with pytest.raises(keras_bert.checkpoints.CheckpointError, match="Save before quantizing"):
        task.save_to_preset(tmp_path / "preset")
