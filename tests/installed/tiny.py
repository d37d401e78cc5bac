# SPDX-License-Identifier: Apache-2.0
"""Trains, saves, loads and exports a tiny text classifier on Keras's backend.

It writes `tiny.keras` with `answers.json`, `embedder.keras` with the same encoder, `preset`,
`export/1`, and the training data for commands, `rows.csv`.
"""

import csv
import importlib.util
import json

import keras

import keras_bert
from keras_bert.data import TextClassifierPreprocessor

keras.utils.set_random_seed(0)
words = ["good", "bad", "film", "plot"]
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
tokenizer = keras_bert.WordPieceTokenizer(tokens)
config = keras_bert.BertConfig(
    vocabulary_size=len(tokens),
    num_layers=1,
    hidden_dim=16,
    num_heads=2,
    intermediate_dim=32,
    max_sequence_length=256,
)
task = keras_bert.TextClassifier(
    keras_bert.Backbone(config),
    preprocessor=TextClassifierPreprocessor(tokenizer, 16),
    class_names=["negative", "positive"],
)
positive, negative = ("good film", "good", "a good plot"), ("bad plot", "bad film", "bad")
rows = [(text, "positive") for text in positive] + [(text, "negative") for text in negative]
rows *= 20
texts, labels = zip(*rows, strict=True)
task.compile(keras.optimizers.Adam(0.005))
task.fit(list(texts), list(labels), epochs=20, batch_size=8, verbose=0)
expected = task.classify(["good plot", "bad"])
assert [prediction["label"] for prediction in expected] == ["positive", "negative"], expected
with open("answers.json", "w") as file:
    json.dump(dict(zip(["good plot", "bad"], expected, strict=True)), file)
task.save("tiny.keras")
assert keras_bert.load_model("tiny.keras").classify(["good plot", "bad"]) == expected
keras_bert.TextEmbedder(task.backbone, task.preprocessor).save("embedder.keras")
task.save_to_preset("preset")
# TensorFlow Text has no Windows wheels, and SavedModels cannot be written there.
if importlib.util.find_spec("tensorflow_text"):
    task.export("export/1")
with open("rows.csv", "w", newline="") as file:
    csv.writer(file).writerows([("text", "label"), *rows])
