# SPDX-License-Identifier: Apache-2.0
"""Exports the classifier of `tiny.py` to other formats.

`mediapipe_client.py` reads the `mediapipe_*.tflite` files and compares the predictions with
`mediapipe.json`.
"""

import json

import keras_bert

task = keras_bert.load_model("tiny.keras")
for name in ("tiny.onnx", "tiny.xml", "tiny.tflite"):
    format = {".onnx": "onnx", ".xml": "openvino", ".tflite": "litert"}[name[4:]]
    for dtype in ("float32", "int8"):
        is_calibrated = (format, dtype) == ("openvino", "int8")
        calibration = ["good film", "bad plot"] * 8 if is_calibrated else None
        task.export(f"{dtype}_{name}", format=format, dtype=dtype, calibration=calibration)
task.export("text.xml", format="openvino", text=True)

texts = ["good film", "a bad PLOT, bad!", "good " * 40, "", "[SEP] film-plot\tgood\n"]
embedder = keras_bert.load_model("embedder.keras")
regression = keras_bert.TextClassifier(task.backbone, num_classes=1, preprocessor=task.preprocessor)
task.export("mediapipe_classifier.tflite", "mediapipe")
embedder.export("mediapipe_embedder.tflite", "mediapipe")
regression.export("mediapipe_regression.tflite", "mediapipe")
with open("mediapipe.json", "w") as file:
    classes = task.classify(texts, top_k=2)
    scores = [prediction["score"] for prediction in regression.classify(texts)]
    embeddings = embedder.embed(texts).tolist()
    json.dump(
        {"texts": texts, "classes": classes, "scores": scores, "embeddings": embeddings}, file
    )
