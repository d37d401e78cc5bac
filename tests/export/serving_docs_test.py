# SPDX-License-Identifier: Apache-2.0
"""Runs the gRPC client and checks the config file in docs/serving."""

import concurrent.futures
import re
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("tensorflow_serving.apis.prediction_service_pb2_grpc")

from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc  # noqa: E402
from tensorflow_serving.config import model_server_config_pb2  # noqa: E402

grpc = prediction_service_pb2_grpc.grpc  # The stubs import grpc.

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

PAGES = Path(__file__).parents[2] / "docs" / "serving"


def read_example(page, name, language):
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.search(rf"<!-- {name} -->\n```{language}\n(.*?)```", text, re.DOTALL)[1]


class Predictor(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Serves a SavedModel's predictions like TensorFlow Serving."""

    def __init__(self, directory):
        self.loaded = tf.saved_model.load(str(directory))
        self.models = []

    def Predict(self, request, context):
        self.models.append(request.model_spec.name)
        signature = self.loaded.signatures[request.model_spec.signature_name]
        inputs = {n: tf.constant(tf.make_ndarray(proto)) for n, proto in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for name, value in signature(**inputs).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response


def test_grpc_example_matches_classify(exported_classifier):
    example = read_example("api.md", "gRPC example", "python")
    predictor = Predictor(exported_classifier.directory)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(predictor, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    variables = {}
    try:
        exec(example.replace("localhost:8500", f"127.0.0.1:{port}"), variables)
        variables["channel"].close()
    finally:
        server.stop(None).wait()
    assert predictor.models == ["sst2"]
    expected = exported_classifier.classifier.classify(variables["texts"])
    assert variables["labels"] == [prediction["label"] for prediction in expected]
    scores = variables["probabilities"].max(axis=-1)
    np.testing.assert_allclose(scores, [prediction["score"] for prediction in expected], atol=1e-5)


def test_model_config_file_example():
    config = model_server_config_pb2.ModelServerConfig()
    models = config.model_config_list.config
    sst2 = models.add(name="sst2", base_path="/models/sst2", model_platform="tensorflow")
    sst2.model_version_policy.specific.versions.extend([3, 4])
    sst2.version_labels.update(stable=3, canary=4)
    models.add(name="squad", base_path="/models/squad", model_platform="tensorflow")
    # Compare sorted words because the order of labels is arbitrary.
    example = read_example("tensorflow_serving.md", "model_config_file", "text")
    assert sorted(example.split()) == sorted(str(config).split())
