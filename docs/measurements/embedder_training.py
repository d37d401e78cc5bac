# SPDX-License-Identifier: Apache-2.0
"""Trains MiniLM on Cranfield's titles and abstracts, with keras_bert or sentence-transformers.

    python docs/measurements/embedder_training.py CRANFIELD_DIRECTORY keras_bert bfloat16 256

prints the processor time of the training and nDCG@10 on other documents as JSON. The second
argument is `keras_bert` or `sentence_transformers`, the third `float32` or `bfloat16` (mixed
precision), and the fourth the number of pairs.
"""

import json
import re
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

from keras_bert import minilm

BATCH_SIZE, RATE, LENGTH, EPOCHS = 32, 2e-5, 128, 1
NUM_TEST = 200


def read_pairs(directory):
    """The title and the abstract of each document. The abstracts start with the title."""
    text = (Path(directory) / "cran.all.1400").read_text()
    found = re.findall(r"\.T\n(.*?)\n\.A\n.*?\n\.W\n(.*?)(?=\n\.I |\Z)", text, re.DOTALL)
    pairs = [tuple(" ".join(part.split()) for part in pair) for pair in found]
    return [(title, text.removeprefix(title).strip()) for title, text in pairs]


def ndcg(queries, documents):
    """nDCG@10 of unit vectors, if document i is the relevant one of query i."""
    scores = queries @ documents.T
    ranks = (scores > np.diag(scores)[:, None]).sum(axis=1)
    return float(np.mean(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0)))


def train_keras_bert(train, precision):
    import keras_bert

    dtype = "mixed_bfloat16" if precision == "bfloat16" else None
    embedder = keras_bert.TextEmbedder.from_preset("minilm", sequence_length=LENGTH, dtype=dtype)
    steps = embedder.num_steps(train, BATCH_SIZE, EPOCHS)
    embedder.compile(keras_bert.optimizers.AdamW(RATE, steps, steps // 10))
    return embedder.embed, lambda: embedder.fit(train, None, BATCH_SIZE, EPOCHS, verbose=0)


def train_sentence_transformers(train, precision):
    import datasets
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    model = SentenceTransformer(str(minilm.directory()), device="cpu")
    model.max_seq_length = LENGTH
    titles, texts = (list(column) for column in zip(*train, strict=True))
    arguments = SentenceTransformerTrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=RATE,
        weight_decay=0.01,
        warmup_steps=(EPOCHS * len(train) // BATCH_SIZE) // 10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=precision == "bfloat16",
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"anchor": titles, "positive": texts}),
        loss=losses.MultipleNegativesRankingLoss(model),
    )
    return model.encode, trainer.train


def processor_time():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main(directory, subject, precision, num_train):
    pairs = read_pairs(directory)
    test, train = pairs[:NUM_TEST], pairs[NUM_TEST : NUM_TEST + int(num_train)]
    subjects = {
        "keras_bert": train_keras_bert,
        "sentence_transformers": train_sentence_transformers,
    }
    embed, fit = subjects[subject](train, precision)

    def score():
        return ndcg(*(embed(list(column)) for column in zip(*test, strict=True)))

    before, start = score(), processor_time()
    fit()
    seconds = processor_time() - start
    scores = {"ndcg_before": round(before, 4), "ndcg": round(score(), 4)}
    times = {"precision": precision, "processor_seconds": round(seconds, 1)}
    print(json.dumps({"subject": subject, **times, **scores}))


if __name__ == "__main__":
    main(*sys.argv[1:])
