# SPDX-License-Identifier: Apache-2.0
"""The export runs without Python: a C program computes the same outputs."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
tf_text = pytest.importorskip("tensorflow_text")

pytestmark = [
    pytest.mark.release,
    pytest.mark.needs_tensorflow,
    pytest.mark.backend_independent,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]

TEXTS = ["the cat sat on the mat", "", "naïve café, ÉTÉ?", "many words " * 60]


@pytest.fixture(scope="module")
def serve_program(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "serve"
    libraries = tf.sysconfig.get_lib()
    names = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
    subprocess.run(
        [
            "gcc", "-O1", "-Wall", "-Werror", "-o", path, Path(__file__).with_name("serve.c"),
            f"-I{tf.sysconfig.get_include()}", f"-L{libraries}", f"-Wl,-rpath,{libraries}",
            *(f"-l:{name}" for name in names),
        ],
        check=True,
    )  # fmt: skip
    return path


def read_graph_names(directory):
    """Returns the names of the signature's input and outputs in the graph."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(directory))
    signature = meta_graph.signature_def["serving_default"]
    operation, label = signature.outputs["label"].name.split(":")
    score = signature.outputs["score"].name.split(":")[1]
    return [signature.inputs["text"].name.split(":")[0], operation, label, score]


def test_c_program_matches_classify(exported_classifier, serve_program):
    libraries = sorted(Path(tf_text.__file__).parent.glob("python/ops/*.so"))
    finished = subprocess.run(
        [
            serve_program,
            exported_classifier.directory,
            *read_graph_names(exported_classifier.directory),
            *libraries,
            "--",
            *TEXTS,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    *lines, scalar = finished.stdout.splitlines()
    labels, scores = zip(*(line.split("\t") for line in lines), strict=True)

    expected = exported_classifier.classifier.classify(TEXTS)
    assert list(labels) == [prediction["label"] for prediction in expected]
    expected_scores = [prediction["score"] for prediction in expected]
    np.testing.assert_allclose(np.array(scores, float), expected_scores, atol=1e-5)
    assert scalar == "scalar: invalid argument"
