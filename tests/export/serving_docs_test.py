# SPDX-License-Identifier: Apache-2.0
"""Examples of docs/serving: the gRPC client against a gRPC server, a file for the server."""

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

grpc = prediction_service_pb2_grpc.grpc  # it comes with the stubs

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

PAGES = Path(__file__).parents[2] / "docs" / "serving"


def example_of_page(page, name, language):
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.search(rf"<!-- {name} -->\n```{language}\n(.*?)```", text, re.DOTALL)[1]


class Predictor(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers as TensorFlow Serving does, from a SavedModel."""

    def __init__(self, folder):
        self.loaded = tf.saved_model.load(str(folder))
        self.models = []

    def Predict(self, request, context):
        self.models.append(request.model_spec.name)
        signature = self.loaded.signatures[request.model_spec.signature_name]
        inputs = {n: tf.constant(tf.make_ndarray(proto)) for n, proto in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for name, value in signature(**inputs).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response


def test_the_example_gets_the_answers_of_the_model(exported):
    example = example_of_page("api.md", "gRPC example", "python")
    predictor = Predictor(exported.folder)
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
    expected = exported.classifier.classify(variables["texts"])
    assert variables["labels"] == [answer["label"] for answer in expected]
    best = variables["probabilities"].max(axis=-1)
    np.testing.assert_allclose(best, [answer["score"] for answer in expected], atol=1e-5)


def test_the_models_file_has_the_fields_of_the_server():
    config = model_server_config_pb2.ModelServerConfig()
    models = config.model_config_list.config
    sst2 = models.add(name="sst2", base_path="/models/sst2", model_platform="tensorflow")
    sst2.model_version_policy.specific.versions.extend([3, 4])
    sst2.version_labels.update(stable=3, canary=4)
    models.add(name="squad", base_path="/models/squad", model_platform="tensorflow")
    # In any order, which that of labels is
    example = example_of_page("tensorflow_serving.md", "model_config_file", "text")
    assert sorted(example.split()) == sorted(str(config).split())
