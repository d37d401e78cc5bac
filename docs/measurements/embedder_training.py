# SPDX-License-Identifier: Apache-2.0
"""Trains MiniLM on SQuAD's questions and paragraphs, with keras_bert or sentence-transformers.

    python docs/measurements/embedder_training.py dev-v1.1.json keras_bert bfloat16 1024 1

prints the processor time of the training and nDCG@10 on other paragraphs as JSON. The second
argument is `keras_bert` or `sentence_transformers`, the third `float32` or `bfloat16` (mixed
precision), the fourth the number of pairs, and the fifth the seed of their order and of dropout.
"""

import json
import random
import resource
import sys
import tempfile

import numpy as np

from keras_bert import minilm

BATCH_SIZE, RATE, LENGTH = 32, 2e-5, 256
NUM_TEST = 100


def read_pairs(path):
    """Returns the first question of each paragraph, and the paragraph, in random order."""
    with open(path, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    pairs = [(each["qas"][0]["question"], each["context"]) for each in paragraphs]
    random.Random(0).shuffle(pairs)
    return pairs


def ndcg(queries, documents):
    """nDCG@10 of unit vectors, if document i is the relevant one of query i."""
    scores = queries @ documents.T
    ranks = (scores > np.diag(scores)[:, None]).sum(axis=1)
    return float(np.mean(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0)))


def train_keras_bert(train, precision, seed):
    import keras

    import keras_bert

    keras.utils.set_random_seed(seed)
    dtype = "mixed_bfloat16" if precision == "bfloat16" else None
    embedder = keras_bert.TextEmbedder.from_preset("minilm", sequence_length=LENGTH, dtype=dtype)
    steps = embedder.num_steps(train, BATCH_SIZE)
    embedder.compile(keras_bert.optimizers.AdamW(RATE, steps, steps // 10))
    return embedder.embed, lambda: embedder.fit(train, None, BATCH_SIZE, verbose=0)


def train_sentence_transformers(train, precision, seed):
    import datasets
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    model = SentenceTransformer(str(minilm.directory()), device="cpu")
    model.max_seq_length = LENGTH
    questions, paragraphs = (list(column) for column in zip(*train, strict=True))
    arguments = SentenceTransformerTrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=RATE,
        weight_decay=0.01,
        warmup_steps=len(train) // BATCH_SIZE // 10,
        seed=seed,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=precision == "bfloat16",
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"anchor": questions, "positive": paragraphs}),
        loss=losses.MultipleNegativesRankingLoss(model),
    )
    return model.encode, trainer.train


def processor_time():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main(path, subject, precision, num_train, seed):
    pairs = read_pairs(path)
    test, train = pairs[:NUM_TEST], pairs[NUM_TEST : NUM_TEST + int(num_train)]
    subjects = {
        "keras_bert": train_keras_bert,
        "sentence_transformers": train_sentence_transformers,
    }
    embed, fit = subjects[subject](train, precision, int(seed))

    def score():
        return ndcg(*(embed(list(column)) for column in zip(*test, strict=True)))

    before, start = score(), processor_time()
    fit()
    seconds = processor_time() - start
    scores = {"ndcg_before": round(before, 4), "ndcg": round(score(), 4)}
    times = {"precision": precision, "seed": int(seed), "processor_seconds": round(seconds, 1)}
    print(json.dumps({"subject": subject, **times, **scores}))


if __name__ == "__main__":
    main(*sys.argv[1:])
