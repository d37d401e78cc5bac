# SPDX-License-Identifier: Apache-2.0
"""Every task with rows of text that a small model of any family learns in seconds.

`tests/tasks/contract_test.py` runs all cases. Other tests use single cases.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

import keras_bert
from keras_bert.data import max_similarities
from keras_bert.families import SIZES
from keras_bert.tasks.next_sentence_predictor import NEXT_SENTENCE
from keras_bert.text import tokenizer_from_config
from tests.text import families, small_tokenizers

# A standard configuration of each family, reduced in the fields that do not differ by family
FAMILIES = {
    "bert": "bert_base_uncased",
    "roberta": "roberta_base",
    "albert": "albert_base_v2",
    "distilbert": "distilbert_base_uncased",
    "electra": "electra_small_discriminator",
    "xlm_roberta": "xlm_roberta_base",
    "modernbert": "modernbert_base",
    "nomic_bert": "nomic_bert",
    "eurobert": "eurobert_610m",
    "mpnet": "mpnet_base",
    "deberta": "deberta_v3_base",
}
LENGTH = 32
DROPOUTS = "dropout", "attention_dropout", "classifier_dropout", "answer_dropout", "pooler_dropout"
SMALL = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "max_sequence_length": LENGTH + 8,
    # Dozens of steps must be enough, not thousands.
    "initializer_range": 0.1,
    **dict.fromkeys(DROPOUTS, 0.0),
}
# Three batches of seven rows and one batch of one row: few shapes if each is compiled
NUM_ROWS, BATCH = 22, 7
# How often `fit` sees the rows. Words from their context need more rounds than labels, and so do
# soft targets: after 40 rounds, ALBERT has not learned them.
ROUNDS, MORE_ROUNDS, MANY_ROUNDS = 40, 80, 120


@dataclasses.dataclass(frozen=True)
class TaskCase:
    """A task, rows that it learns, and rows that it predicts.

    Args:
        make: Creates the task from a backbone and a preprocessor's config.
        x: `NUM_ROWS` rows in a form that `fit` and `evaluate` accept.
        accuracy: Computes the fraction of correct predictions.
        y: Labels in a form that `fit` and `evaluate` accept.
        sample_weight: Weights in a form that `fit` and `evaluate` accept.
        rows: Rows with the task's fields. Without rows, `predict` gives the predictions.
        ask: Calls the task's prediction method with the fields of all rows, as a user does.
        rate: The peak learning rate.
        rounds: How often `fit` sees each row.
        preprocessor: Options of the preprocessor.
        dataset: Columns of a `tf.data.Dataset` of the rows, or `None` if the task accepts none.
        without_gradient: Names of weights that training does not change.
        from_preset: Class that loads the task's preset, or `None` for the task's class.
    """

    make: Callable[..., Any]
    x: Any
    accuracy: Callable[[Any], float]
    y: Any = None
    sample_weight: Any = None
    rows: Sequence[dict[str, Any]] = ()
    ask: Callable[[Any], Any] | None = None
    rate: float = 1e-2
    rounds: int = ROUNDS
    preprocessor: dict[str, Any] = dataclasses.field(default_factory=dict)
    dataset: Any = None
    without_gradient: tuple[str, ...] = ()
    from_preset: Any = None

    @property
    def data(self) -> dict[str, Any]:
        """Arguments of `fit` and `evaluate`."""
        data = {"x": self.x, "y": self.y, "sample_weight": self.sample_weight}
        return {name: part for name, part in data.items() if part is not None}

    def answers(self, task: Any) -> Any:
        """Returns the predictions of the task, or of the student in it."""
        task = getattr(task, "student_task", task)
        return task.predict_rows(self.rows) if self.rows else task.predict(self.x, verbose=0)


def accuracy(expected: Sequence[Any], read: Callable[[Any], Any]) -> Callable[[Any], float]:
    """Returns a function that computes the fraction of correct predictions, read with `read`."""
    return lambda answers: np.mean(
        [read(answer) == value for answer, value in zip(answers, expected, strict=True)]
    )


def select_texts(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in rows]


def pick(values: Sequence[Any], seed: int) -> list[Any]:
    return [values[i] for i in np.random.default_rng(seed).integers(0, len(values), NUM_ROWS)]


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
VERDICTS = ["fails", "passes", "is skipped"]


# === Classes ===


def verdicts() -> tuple[list[str], np.ndarray]:
    """Returns texts of two lengths, and the index of each text's verdict."""
    ids = np.array(pick(range(len(VERDICTS)), 0))
    words = pick(list(PARTNERS), 1)
    return [f"the {word} {VERDICTS[index]}" for word, index in zip(words, ids, strict=True)], ids


def classes(_family: str) -> TaskCase:
    texts, ids = verdicts()
    names = ["bad", "good", "none"]
    labels = [names[index] for index in ids]
    return TaskCase(
        make=functools.partial(keras_bert.TextClassifier, class_names=names),
        x=texts,
        y=labels,
        rows=[{"text": text} for text in texts],
        ask=lambda task: task.classify(texts),
        accuracy=accuracy(labels, lambda answer: answer["label"]),
        dataset=(texts, labels),
        rate=3e-3,
    )


def pairs(_family: str) -> TaskCase:
    """The second text determines the label, so the model must distinguish texts or positions."""
    labels = np.array(pick([0, 1], 1))
    x = (
        [f"the test {VERDICTS[index]}" for index in pick([0, 1], 0)],
        [f"the case {VERDICTS[label]}" for label in labels],
    )
    return TaskCase(
        make=functools.partial(keras_bert.TextClassifier, num_classes=2),
        x=x,
        y=labels,
        rows=[{"text": text, "text_pair": pair} for text, pair in zip(*x, strict=True)],
        ask=lambda task: task.classify(x),
        accuracy=accuracy(labels, lambda answer: answer["label"]),
        dataset=(x, labels),
    )


def next_sentences(family: str) -> TaskCase:
    case = pairs(family)
    names = [NEXT_SENTENCE[label] for label in case.y]
    return dataclasses.replace(
        case,
        make=keras_bert.NextSentencePredictor,
        accuracy=accuracy(names, lambda answer: answer["label"]),
    )


def regression(_family: str) -> TaskCase:
    texts, ids = verdicts()
    y = np.array([0.0, 1.0, 0.5], "float32")[ids]
    return TaskCase(
        make=functools.partial(keras_bert.TextClassifier, num_classes=1),
        x=texts,
        y=y,
        rows=[{"text": text} for text in texts],
        ask=lambda task: task.classify(texts),
        accuracy=accuracy(y, lambda answer: round(2 * answer["score"]) / 2),
        dataset=(texts, y),
    )


def labels(_family: str) -> TaskCase:
    """The labels of a text are its verdict, unless it is skipped, and whether it is new."""
    texts, ids = verdicts()
    are_new = pick([False, True], 2)
    texts = [text + " in message" * is_new for text, is_new in zip(texts, are_new, strict=True)]
    verdict_labels = [["bad"], ["good"], []]
    y = [verdict_labels[i] + ["new"] * is_new for i, is_new in zip(ids, are_new, strict=True)]
    names = ["bad", "good", "new"]
    return TaskCase(
        make=functools.partial(keras_bert.TextClassifier, class_names=names, multi_label=True),
        x=texts,
        y=y,
        rows=[{"text": text} for text in texts],
        ask=lambda task: task.classify(texts),
        accuracy=accuracy(y, lambda answer: sorted(label["label"] for label in answer)),
        dataset=(texts, [[int(name in row) for name in names] for row in y]),
        rounds=MANY_ROUNDS,
    )


# === Words, questions, choices, embeddings ===


def tagging(_family: str) -> TaskCase:
    tags = ["O", "B-A", "B-B"]
    kinds = {word: tags[1 + index % 2] for index, word in enumerate(PARTNERS)}
    words = zip(pick(list(PARTNERS), 0), pick(list(PARTNERS), 1), strict=True)
    # Sentences of different lengths
    sentences = [
        [first, "has", "no", *["in", second] * (row % 3)]
        for row, (first, second) in enumerate(words)
    ]
    labels = [[kinds.get(word, "O") for word in sentence] for sentence in sentences]
    texts = [" ".join(sentence) for sentence in sentences]
    return TaskCase(
        make=functools.partial(keras_bert.TokenClassifier, class_names=tags),
        x=sentences,
        y=labels,
        rows=[{"text": text} for text in texts],
        ask=lambda task: task.tag(texts),
        accuracy=accuracy(labels, lambda answer: [word["label"] for word in answer]),
    )


def questions(_family: str) -> TaskCase:
    rows = []
    words = list(PARTNERS)
    for first, second, which in zip(
        pick(words[:4], 0), pick(words[4:], 1), pick([0, 1], 2), strict=True
    ):
        context, answer = f"the {first} is in the {second}.", (first, second)[which]
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        question = ("what?", "in?")[which]
        rows.append({"question": question, "context": context, "answers": answers})
    columns = [[row[name] for row in rows] for name in ("question", "context")]
    expected = [row["answers"][0]["text"] for row in rows]
    return TaskCase(
        make=keras_bert.QuestionAnswerer,
        x=rows,
        rows=rows,
        ask=lambda task: task.answer(*columns),
        accuracy=accuracy(expected, lambda answer: answer["answer"]),
        preprocessor={"doc_stride": 8, "max_query_length": 6},
    )


def choices(_family: str) -> TaskCase:
    labels = np.array(pick([0, 1, 2], 0))
    counts = [3 if label == 2 or row % 2 else 2 for row, label in enumerate(labels)]
    # The choices of a row differ, because a server pads rows with their first choice.
    words = ["class", "method", "result"]
    x = [
        (
            "the test",
            [f"{VERDICTS[int(choice == label)]} {words[choice]}" for choice in range(count)],
        )
        for label, count in zip(labels, counts, strict=True)
    ]
    return TaskCase(
        make=keras_bert.MultipleChoice,
        x=x,
        y=labels,
        rows=[{"text": text, "choices": own} for text, own in x],
        ask=lambda task: task.choose(x),
        accuracy=accuracy(labels, lambda answer: answer[0]["choice"]),
        # Adding a constant to all choices changes no probability.
        without_gradient=("classifier/dense/bias",),
    )


def _embedding(make: Callable[..., Any], score: Callable[[Any, Any], float]) -> TaskCase:
    """Returns the case of an embedder.

    Args:
        make: Creates the embedder.
        score: Computes the similarity of two predictions.
    """
    words = list(PARTNERS)[:4]
    firsts = [f"the {word}" for word in words]
    seconds = [f"a {PARTNERS[word]} in" for word in words]
    x = [(firsts[index], seconds[index]) for index in pick(range(len(words)), 0)]
    rows = [{"text": text} for text in firsts + seconds]

    def nearest_is_partner(answers: Any) -> float:
        queries, documents = answers[: len(words)], answers[len(words) :]
        scores = np.array([[score(one, other) for other in documents] for one in queries])
        return np.mean(scores.argmax(axis=1) == np.arange(len(words)))

    return TaskCase(make=make, x=x, rows=rows, accuracy=nearest_is_partner)


def embedding(_family: str) -> TaskCase:
    case = _embedding(
        keras_bert.TextEmbedder, lambda one, other: np.dot(one["embedding"], other["embedding"])
    )
    texts = select_texts(case.rows)
    return dataclasses.replace(
        case, ask=lambda task: [{"embedding": row.tolist()} for row in task.embed(texts)]
    )


def sparse_embedding(_family: str) -> TaskCase:
    def score(one: Any, other: Any) -> float:
        weights = other["embedding"]
        return sum(weight * weights.get(token, 0) for token, weight in one["embedding"].items())

    case = _embedding(keras_bert.SparseEmbedder, score)
    texts = select_texts(case.rows)
    return dataclasses.replace(
        case,
        ask=lambda task: [{"embedding": row} for row in task.decode(task.embed(texts))],
        rounds=ROUNDS // 2,
    )


def late_interaction(_family: str) -> TaskCase:
    def score(one: Any, other: Any) -> float:
        return max_similarities(np.array(one["vectors"]), [np.array(other["vectors"])])[0]

    case = _embedding(keras_bert.LateInteractionEmbedder, score)
    return dataclasses.replace(
        case,
        ask=lambda task: [
            {"vectors": rows.tolist()} for rows in task.embed_documents(select_texts(case.rows))
        ],
        rounds=MORE_ROUNDS,
    )


# === Masked words ===

# Two lengths. Each word identifies its sentence.
SENTENCES = ["the class method result", "a test failure message with exception"]
# One word of a sentence, which is one token in all vocabularies
MASKED = [(0, "method"), (0, "class"), (1, "failure"), (1, "test"), (1, "message")]
MASKING = {"mask_selection_rate": 0.2, "mask_token_rate": 1.0, "random_token_rate": 0.0}


def masked_lm(family: str) -> TaskCase:
    mask = get_tokenizer(family).mask_token
    sentences = pick(SENTENCES, 0)
    rows = [{"text": SENTENCES[index].replace(word, mask)} for index, word in MASKED]
    return TaskCase(
        make=functools.partial(keras_bert.MaskedLM, masking=MASKING),
        x=sentences,
        rows=rows,
        ask=lambda task: task.fill(select_texts(rows)),
        accuracy=accuracy(
            [SENTENCES[index] for index, _ in MASKED], lambda answer: answer[0]["text"]
        ),
        dataset=sentences,
        rounds=MORE_ROUNDS,
    )


def pretraining(family: str) -> TaskCase:
    """Text pairs as ids. The words of the second text determine whether it comes next."""
    from keras_bert.data import MaskedLMMaskGenerator, TextClassifierPreprocessor

    tokenizer = get_tokenizer(family)
    is_next = np.array(pick([0, 1], 1))
    # Each of the two words is sufficient, because some are masked.
    seconds = [("it fails", "he passes")[label] for label in is_next]
    features = TextClassifierPreprocessor(tokenizer, LENGTH)(pick(SENTENCES, 0), seconds)
    features = dict(MaskedLMMaskGenerator.from_tokenizer(tokenizer, **MASKING)(features))
    ids, weights = features.pop("mask_ids"), features.pop("mask_weights")

    def both_right(logits: dict[str, np.ndarray]) -> float:
        masked, following = logits["masked_lm_logits"], logits["next_sentence_logits"]
        return min(
            np.average(masked.argmax(axis=-1) == ids, weights=weights),
            np.mean(following.argmax(axis=-1) == is_next),
        )

    return TaskCase(
        make=keras_bert.Pretrainer,
        x=features,
        y={"masked_lm_logits": ids, "next_sentence_logits": is_next},
        sample_weight={"masked_lm_logits": weights, "next_sentence_logits": np.ones(NUM_ROWS)},
        accuracy=both_right,
        rounds=MANY_ROUNDS,
    )


def detection(family: str) -> TaskCase:
    """Detects strange words, which come from a generator that does not learn."""
    tokenizer = get_tokenizer(family)
    sentences = pick(SENTENCES, 0)
    strange = ["self", "is", "and"]
    rows = [
        {"text": " ".join([*sentence.split()[:2], word])}
        for sentence, word in zip(sentences, pick(strange, 1), strict=True)
    ]
    # Each word is one token after a space in every vocabulary. A single space is never replaced.
    tokens = [row[-1] for row in tokenizer([f"the {word}" for word in strange])]

    def make(backbone: Any, preprocessor: Any) -> Any:
        task = keras_bert.ReplacedTokenDetector(
            backbone, preprocessor, generator_size=0.5, masking=MASKING
        )
        transform, bias = task.generator_heads["masked_lm"]
        logits = np.full(tokenizer.vocabulary_size, -20.0, "float32")
        logits[tokens] = 0
        bias.set_weights([logits])
        # A generator that learns would soon sample words of the sentences. Embeddings are shared.
        for layer in (task.generator, transform, bias):
            layer.trainable = False
        return task

    return TaskCase(
        make=make,
        x=sentences,
        rows=rows,
        ask=lambda task: task.detect(select_texts(rows)),
        accuracy=accuracy(
            [{len(row["text"])} for row in rows],
            lambda answer: {token["end"] for token in answer},
        ),
        dataset=sentences,
        rounds=MORE_ROUNDS,
    )


# === Students ===


def make_distilled_case(name: str) -> Callable[[str], TaskCase]:
    """Creates the case of a student without labels, whose teacher has learned another case."""

    def case(family: str) -> TaskCase:
        teacher = task_case(name, family)

        def make(backbone: Any, preprocessor: Any) -> Any:
            student = teacher.make(backbone, preprocessor=preprocessor)
            return keras_bert.Distiller(student, get_trained(name, family)[0])

        return TaskCase(
            make=make,
            x=teacher.x,
            rows=teacher.rows,
            accuracy=teacher.accuracy,
            dataset=teacher.x,
            # The preset contains the student.
            from_preset=teacher.make.func,
            rate=teacher.rate,
            rounds=MORE_ROUNDS,
        )

    return case


CASES: dict[str, Callable[[str], TaskCase]] = {
    "classes": classes,
    "pairs": pairs,
    "next_sentences": next_sentences,
    "regression": regression,
    "labels": labels,
    "tagging": tagging,
    "questions": questions,
    "choices": choices,
    "embedding": embedding,
    "sparse_embedding": sparse_embedding,
    "late_interaction": late_interaction,
    "masked_lm": masked_lm,
    "pretraining": pretraining,
    # Their teachers have learned the other case.
    "distilled_classes": make_distilled_case("classes"),
    "distilled_masked_lm": make_distilled_case("masked_lm"),
    "detection": detection,
}


@functools.cache
def task_case(name: str, family: str = "bert") -> TaskCase:
    return CASES[name](family)


@functools.cache
def get_tokenizer(family: str) -> Any:
    if family == "eurobert":
        config = families.make(family).get_config()
        del config["mask_takes_space"]  # Rows for masked LMs have a space before the mask.
        return tokenizer_from_config(config)
    if family in families.CONFIGS:
        return families.make(family)
    return small_tokenizers.make(SIZES[FAMILIES[family]].get("tokenizer", "wordpiece"))


def make_task(case: TaskCase, family: str = "bert", dtype: str | None = None) -> Any:
    """Returns a task with new weights."""
    fields = {**SIZES[FAMILIES[family]], **SMALL}
    if "embedding_dim" in fields:
        fields["embedding_dim"] = 8
    if "attention_window" in fields:
        # A global layer, and a local layer whose window is shorter than the rows
        fields |= {"num_layers": 2, "attention_window": 6, "embedding_dropout": 0.0}
    if fields.get("num_key_value_heads"):
        fields["num_key_value_heads"] = 1
    fields["masked_lm_bias"] = True  # The detection case uses this bias to set the sampled tokens.
    fields["pad_token_id"] = get_tokenizer(family).pad_token_id
    fields["vocabulary_size"] = get_tokenizer(family).vocabulary_size
    preprocessor = {
        "tokenizer": get_tokenizer(family).get_config(),
        "sequence_length": LENGTH,
        **case.preprocessor,
    }
    backbone = keras_bert.Backbone(keras_bert.BertConfig(**fields), dtype=dtype)
    return case.make(backbone, preprocessor=preprocessor)


def train(task: Any, case: TaskCase) -> dict[str, list[float]]:
    """Trains for two epochs, with a copy of the rows held out, and returns the history.

    Checks that every weight changes, and that `num_steps` is the number of steps. Repeated rows
    take less time than the same number of epochs.
    """
    rounds = case.rounds // 2
    held_out = (NUM_ROWS - 0.5) / (NUM_ROWS * (rounds + 1))
    options = {"batch_size": BATCH, "epochs": 2, "validation_split": held_out}
    data = repeat_rows(case.data, rounds + 1)
    steps = task.num_steps(data["x"], **options)
    # Weights without gradients must not decay.
    task.compile(keras_bert.optimizers.AdamW(case.rate, steps, steps // 10, weight_decay=0.0))
    before = copy_weights(task)
    history = task.fit(**data, **options, bucketing_window=1, verbose=0).history
    after = copy_weights(task)
    unchanged = {name for name, value in after.items() if np.array_equal(value, before[name])}
    assert unchanged <= set(case.without_gradient)
    # Steps that overflow are not counted.
    if not isinstance(task.optimizer, keras.optimizers.LossScaleOptimizer):
        assert int(task.optimizer.iterations) == steps
    return history


def copy_weights(task: Any) -> dict[str, np.ndarray]:
    return {
        variable.path: keras.ops.convert_to_numpy(variable.value)
        for variable in task.trainable_variables
    }


def repeat_rows(rows: Any, times: int) -> Any:
    """Repeats rows in any form."""
    if isinstance(rows, tuple):
        return tuple(repeat_rows(part, times) for part in rows)
    if isinstance(rows, dict):
        return {name: repeat_rows(part, times) for name, part in rows.items()}
    return rows * times if isinstance(rows, list) else np.concatenate([rows] * times)


# A student's teacher is among the last models. Keeping all models would keep the graphs of their
# steps in memory, and slow down garbage collection.
@functools.lru_cache(maxsize=4)
def get_trained(name: str, family: str = "bert") -> tuple[Any, dict[str, list[float]]]:
    """Returns a task that has learned its case, and its history. Do not change its weights."""
    # A student starts with different weights from its teacher.
    keras.utils.set_random_seed(int(name.startswith("distilled")))
    case = task_case(name, family)
    task = make_task(case, family)
    return task, train(task, case)
