# SPDX-License-Identifier: Apache-2.0
"""Writes small files of every kind, and the answers of the code that wrote them.

`files_test.py` reads them with today's code. They were written by the release that they are to
stay readable from (commit fc7954b), in a checkout of it:

    PYTHONPATH=<checkout> python tests/compatibility/write_files.py tests/compatibility/fc7954b

That code is imported, so this script uses what it had, and does not change with today's.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

import keras_bert
from keras_bert.data import (
    Instance,
    InstanceEncoder,
    StaticMasker,
    pretraining_batches,
    ragged_pretraining_batches,
    write_records,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "a", "cat", "dog", "bird", "sat", "ran", "flew", "on", "under", "mat", "and", "."]
PIECES = ["##s", "##ed", "s", "e", "d", "?", "who", "where"]
VOCABULARY = [*SPECIAL, *WORDS, *PIECES]
TEXTS = ["the cat sat on a mat .", "a dog ran", "Birds flew under the mats and sat"]
PAIRS = (TEXTS, ["the dog ran .", "a bird", "who sat ?"])
LENGTH = 24
SMALL = {
    "vocabulary_size": len(VOCABULARY),
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": LENGTH,
    # Answers that differ
    "initializer_range": 0.4,
}
WORDPIECE = keras_bert.WordPieceTokenizer(VOCABULARY)


def backbone(size, **changes):
    """An encoder of a released family, small."""
    config = keras_bert.BertConfig.from_name(size)
    fields = {**config.to_dict(), **SMALL, **changes}
    if fields.get("embedding_dim"):
        fields["embedding_dim"] = 4
    return keras_bert.Backbone(keras_bert.BertConfig(**fields))


def options(tokenizer=WORDPIECE, **rest):
    return {"tokenizer": tokenizer.get_config(), "sequence_length": LENGTH, **rest}


def ids(**more):
    """Two rows, the second of them padded, of ids that all vocabularies have."""
    token_ids = np.array([[2, 5, 7, 10, 3, 6, 8, 3], [2, 9, 12, 3, 0, 0, 0, 0]])
    return {"token_ids": token_ids, "padding_mask": token_ids != 0, **more}


def with_segments():
    return ids(segment_ids=np.array([[0, 0, 0, 0, 0, 1, 1, 1], [0] * 8]))


def with_masks(features):
    return {**features, "mask_positions": np.array([[1, 3], [2, 0]])}


def text_classifier():
    task = keras_bert.TextClassifier(
        backbone("bert_tiny_uncased"), class_names=["bad", "good", "none"], preprocessor=options()
    )
    train(task, TEXTS, ["good", "bad", "none"])
    return task, with_segments(), ("classify", [list(zip(*PAIRS, strict=True))])


def regression_without_optimizer():
    task = keras_bert.TextClassifier(
        backbone("roberta_base", vocabulary_size=30), num_classes=1, dropout=0.3
    )
    return task, ids(), None


def token_classifier():
    task = keras_bert.TokenClassifier(
        backbone("distilbert_base_uncased"), class_names=["O", "B-X"], preprocessor=options()
    )
    words = [text.split() for text in TEXTS]
    train(task, words, [["O"] * (len(row) - 1) + ["B-X"] for row in words])
    return task, ids(), ("tag", [TEXTS])


def question_answerer():
    vocabulary, merges = keras_bert.text.train_byte_pair_vocabulary(TEXTS, 270, progress=False)
    tokenizer = keras_bert.text.BytePairTokenizer(vocabulary, merges)
    task = keras_bert.QuestionAnswerer(
        backbone("roberta_base", vocabulary_size=tokenizer.vocabulary_size),
        preprocessor=options(tokenizer, doc_stride=4, max_query_length=8),
    )
    rows = [
        {
            "question": "who?",
            "context": text,
            "answers": [{"text": text[:5], "answer_start": 0}],
        }
        for text in TEXTS
    ]
    train(task, rows)
    return task, ids(), ("answer", [["who?"] * len(TEXTS), TEXTS])


def multiple_choice():
    model = keras_bert.text.train_sentence_piece_model(
        TEXTS * 4, 36, character_coverage=1.0, progress=False
    )
    tokenizer = keras_bert.text.SentencePieceTokenizer(model)
    task = keras_bert.MultipleChoice(
        backbone("albert_base_v2", vocabulary_size=tokenizer.vocabulary_size),
        preprocessor=options(tokenizer),
    )
    rows = [(text, ["it sat", "it ran"]) for text in TEXTS]
    train(task, rows, np.array([0, 1, 0]))
    features = {name: np.stack([value, value[::-1]], axis=1) for name, value in ids().items()}
    return task, features, ("choose", [rows])


def masked_lm():
    task = keras_bert.MaskedLM(backbone("electra_small_discriminator"), preprocessor=options())
    train(task, TEXTS)
    return task, with_masks(with_segments()), ("fill", ["the [MASK] sat on [MASK] mat"])


def pretrainer():
    task = keras_bert.Pretrainer(backbone("bert_tiny_uncased"))
    features = with_masks(with_segments())
    labels = {
        "masked_lm_logits": np.array([[5, 10], [12, 0]]),
        "next_sentence_logits": np.array([0, 1]),
    }
    weights = {
        "masked_lm_logits": np.array([[1.0, 1.0], [1.0, 0.0]]),
        "next_sentence_logits": np.ones(2),
    }
    train(task, features, labels, sample_weight=weights)
    return task, features, None


def replaced_token_detector():
    task = keras_bert.ReplacedTokenDetector(
        backbone("electra_small_discriminator"), preprocessor=options(), generator_size=0.5
    )
    train(task, TEXTS)
    # The generator always predicts one word, so that sampling has no effect.
    bias = np.full(len(VOCABULARY), -100.0, "float32")
    bias[VOCABULARY.index("dog")] = 100
    task.generator_heads["masked_lm"][1].set_weights([bias])
    return task, with_masks(with_segments()), ("detect", [TEXTS, 0.0])


def distiller():
    teacher = keras_bert.MaskedLM(backbone("bert_tiny_uncased"), preprocessor=options())
    student = keras_bert.MaskedLM(
        backbone("distilbert_base_uncased", hidden_dim=4), preprocessor=options()
    )
    task = keras_bert.Distiller(student, teacher)
    train(task, TEXTS)
    return task, with_masks(ids()), None


def text_embedder():
    task = keras_bert.TextEmbedder(backbone("bert_tiny_uncased"), preprocessor=options())
    train(task, list(zip(*PAIRS, strict=True)))
    return task, ids(), ("embed", [TEXTS])


TASKS = [
    text_classifier,
    regression_without_optimizer,
    token_classifier,
    question_answerer,
    multiple_choice,
    masked_lm,
    pretrainer,
    replaced_token_detector,
    distiller,
    text_embedder,
]


def train(task, x, y=None, **more):
    task.compile(keras_bert.optimizers.AdamW(1e-2, num_train_steps=4, num_warmup_steps=1))
    labels = {} if y is None else {"y": y}
    task.fit(x, **labels, **more, batch_size=2, epochs=1, verbose=0)


def updates_of(task):
    """How many updates the optimizer has made, or `None` where there is none."""
    optimizer = getattr(task, "optimizer", None)
    return None if optimizer is None else int(optimizer.iterations)


def listed(value):
    return keras.tree.map_structure(lambda part: np.asarray(part).tolist(), value)


def write_tasks(folder):
    answers = {}
    for make in TASKS:
        keras.utils.set_random_seed(1)
        task, features, asked = make()
        task.save(folder / f"{make.__name__}.keras")
        if make is text_classifier:
            task.save_to_preset(folder / "preset")
        answers[make.__name__] = {
            "inputs": listed(features),
            "outputs": listed(task.predict(features, verbose=0)),
            "updates": updates_of(task),
        }
        if asked is not None:
            verb, arguments = asked
            answers[make.__name__] |= {
                "verb": verb,
                "arguments": arguments,
                "answers": listed(getattr(task, verb)(*arguments)),
            }
    return answers


def write_records_of(folder):
    """Records with masks and without, and the batches that come of them."""
    rows = [
        Instance(np.array(row), np.array(segments), label)
        for row, segments, label in [
            ([2, 5, 7, 10, 3, 6, 8, 19, 3], [0] * 5 + [1] * 4, 0),
            ([2, 9, 18, 3, 12, 3], [0] * 4 + [1] * 2, 1),
        ]
    ]
    masker = StaticMasker(
        vocabulary_size=len(VOCABULARY), mask_token_id=VOCABULARY.index("[MASK]"), max_predictions=3
    )
    answers = {}
    for name, own in (("masked", masker), ("unmasked", None)):
        encoder = InstanceEncoder(VOCABULARY, [2, 3], 12, own)
        path = folder / f"{name}.tfrecord"
        rng = np.random.default_rng(0)
        write_records(path, [encoder(row, rng) for row in rows])
        read = pretraining_batches if own else ragged_pretraining_batches
        (batch,) = read(str(path), batch_size=2, sequence_length=12)
        answers[name] = {
            key: value.to_list() if hasattr(value, "to_list") else value.tolist()
            for key, value in batch.items()
        }
    return answers


RUN = {
    "vocabulary": "vocab.txt",
    "input_files": ["corpus.txt"],
    "data_dir": ".",
    "output_dir": "out",
    "model": "bert_tiny_uncased",
    "num_layers": 1,
    "hidden_dim": 8,
    "num_heads": 2,
    "phases": ["12:0.5", "16:0.5"],
    "batch_size": 2,
    "num_steps": 8,
    "warmup_steps": 2,
    "interval": 2,
    "keep_checkpoints": 4,
    "duplicate_factor": 1,
    "precision": "float32",
    "num_workers": 1,
}


def write_run(folder):
    """A pre-training run without its last steps, and the losses that it had in them."""
    run = folder / "run"
    run.mkdir()
    (run / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    documents = ["\n".join([*TEXTS, *TEXTS[::-1]]) for _ in range(4)]
    (run / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    flags = [
        f"--{name}={','.join(value) if isinstance(value, list) else value}"
        for name, value in RUN.items()
    ]
    command = [sys.executable, "-m", "training.pretrain", *flags]
    subprocess.run(command, cwd=run, check=True, stdout=subprocess.DEVNULL)
    results = json.loads((run / "out" / "results.json").read_text())
    for name in ("results.json", "log.jsonl"):
        (run / "out" / name).unlink()
    shutil.rmtree(run / "out" / "preset")
    for path in sorted((run / "out" / "checkpoints").iterdir()):
        if path.name != "step_000000006":
            shutil.rmtree(path)
    for picture in run.rglob("*.png"):
        picture.unlink()
    return {
        "config": RUN,
        "losses": {str(record["step"]): record["loss"] for record in results["log"]},
    }


def main(archive):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers = {
            "tasks": write_tasks(folder),
            "records": write_records_of(folder),
            "run": write_run(folder),
        }
        (folder / "answers.json").write_text(json.dumps(answers) + "\n")
        shutil.make_archive(archive, "xztar", folder)


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()))
