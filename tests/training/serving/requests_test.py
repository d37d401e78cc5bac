# SPDX-License-Identifier: Apache-2.0
"""Converts JSON requests to rows, and predictions to JSON responses."""

import json

import numpy as np
import pytest

from training.serving.json_fields import MAX_BYTES_OF_NUMBER, RequestError, encode_json
from training.serving.requests import read_request, write_answer
from training.serving.signatures import INT32, STRING, Signature, Tensor

pytestmark = pytest.mark.backend_independent

TEXT = Tensor(STRING, (-1,))
SIGNATURES = {
    "serving_default": Signature({"text": TEXT}, {}, list),
    "pairs": Signature({"text": TEXT, "text_pair": TEXT}, {}, list),
    "words": Signature({"words": Tensor(STRING, (-1, -1))}, {}, list),
    "ids": Signature({"token_ids": Tensor(INT32, (-1, -1))}, {}, list),
    "choices": Signature({"token_ids": Tensor(INT32, (-1, -1, -1))}, {}, list),
    "choice_texts": Signature({"text": TEXT, "choices": Tensor(STRING, (-1, -1))}, {}, list),
}


def read_body(body, signature="serving_default"):
    if isinstance(body, dict):
        body = json.dumps({"signature_name": signature, **body}).encode()
    return read_request(body, SIGNATURES, max_rows=3)


@pytest.mark.parametrize(
    ("signature", "request_", "rows"),
    [
        ("serving_default", {"instances": ["a", {"text": "b"}]}, [{"text": "a"}, {"text": "b"}]),
        ("", {"instances": [{"b64": "/w=="}]}, [{"text": b"\xff"}]),
        (
            "pairs",
            {"inputs": {"text": ["a", "b"], "text_pair": ["c", ""]}},
            [{"text": "a", "text_pair": "c"}, {"text": "b", "text_pair": ""}],
        ),
        (
            "words",
            {"instances": [["a", "b"], ["c", ""]]},
            [{"words": ["a", "b"]}, {"words": ["c", ""]}],
        ),
        ("ids", {"instances": [[101, 102]]}, [{"token_ids": [101, 102]}]),
        ("choices", {"inputs": [[[1], [2]]]}, [{"token_ids": [[1], [2]]}]),
    ],
)
def test_read_request_returns_rows(signature, request_, rows):
    request = read_body(request_, signature)
    assert request.rows == rows
    assert request.is_columns == ("inputs" in request_)
    assert request.signature == (signature or "serving_default")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"text", "the body must be JSON. Received: 'text' (Expecting value"),
        (b'{"instances": ["\xff"]}', "the body must be UTF-8. Received: 0xff (byte 16)"),
        (b"[" * 10_000, "nested too deeply"),
        (
            b'{"instances": [[NaN]], "signature_name": "ids"}',
            "numbers must be finite. Received: NaN",
        ),
        ({"instances": ["a"], "inputs": ["a"]}, "must have either instances, a list of examples"),
        ({"instances": []}, "instances must be a non-empty list of examples"),
        ({"instances": ["a"] * 4}, "at most 3 examples. Received: 4"),
        ({"instances": ["a", 5]}, r"instances[1] must be a string"),
        (
            {"instances": ["\ud800"]},
            r"instances[0] must only contain characters that UTF-8 can represent",
        ),
        ({"instances": [{"b64": "é"}]}, r"instances[0].b64 must be base64"),
        (
            {"inputs": {}},
            "inputs must be an object with text, each a list with one element per example.",
        ),
        ({"signature_name": "other"}, "Received: a string, 'other'"),
        (
            {"signature_name": "pairs", "instances": [{"text": "a"}]},
            "instances[0] must be an object with text, text_pair. Received: an object with text",
        ),
        (
            {"signature_name": "pairs", "inputs": {"text": ["a"], "text_pair": ["b", "c"]}},
            "number of examples. Received: {'text': 1, 'text_pair': 2}",
        ),
        (
            {"signature_name": "words", "instances": [["a"], ["a", "b"]]},
            "instances[1] must have the same length as instances[0], 1. Received: 2",
        ),
        (
            {"signature_name": "ids", "instances": [[1.5]]},
            r"instances[0][0] must be an int",
        ),
        ({"signature_name": "ids", "instances": [[2**40]]}, "must be an integer of 32 bits"),
        (
            {"signature_name": "choices", "inputs": {"token_ids": [[[]] * 100_000]}},
            "at most 3 texts in token_ids. Received: 100000",
        ),
    ],
)
def test_invalid_request_error_has_the_value(body, message):
    with pytest.raises(RequestError) as error:
        read_body(body)
    assert any(part in str(error.value) for part in message.split("|"))
    assert len(str(error.value)) < 400


def test_response_omits_name_of_single_output():
    rows, columns = read_body({"instances": ["a", "b"]}), read_body({"inputs": ["a", "b"]})
    single_output = [{"score": 0.5}, {"score": 1.0}]
    assert json.loads(write_answer(rows, single_output)) == {"predictions": [0.5, 1.0]}
    assert json.loads(write_answer(columns, single_output)) == {"outputs": [0.5, 1.0]}
    two_outputs = [{"label": "é", "score": 0.5}, {"label": "b", "score": 1.0}]
    assert json.loads(write_answer(rows, two_outputs)) == {"predictions": two_outputs}
    assert json.loads(write_answer(columns, two_outputs)) == {
        "outputs": {"label": ["é", "b"], "score": [0.5, 1.0]}
    }
    with pytest.raises(ValueError, match="a number is not finite"):
        write_answer(rows, [{"score": float("nan")}])
    with pytest.raises(RequestError, match=r"must have at most 67108864 bytes. Received: \d+"):
        write_answer(rows, [{"word": "a" * 2**25}] * 2)
    # One long text among short texts. The padding would need more memory than the response may.
    long, short = ({"words": ["a"] * n, "starts": [0] * n} for n in (100_000, 1))
    with pytest.raises(RequestError, match=r"1000 examples, .* padded to 200000 elements each"):
        write_answer(rows, [long, *[short] * 999])


def test_lists_are_padded_to_the_longest():
    answers = [
        {"count": 1, "words": ["a"], "scores": [0.5], "probabilities": [0.1, 0.2, 0.3]},
        {"count": 2, "words": ["b", "c"], "scores": [0.25, 1.0], "probabilities": [0.4, 0.5, 0.6]},
        {"count": 0, "words": [], "scores": [], "probabilities": [0.7, 0.8, 0.9]},
    ]
    request = read_body({"instances": ["a", "b c", ""]})
    assert json.loads(write_answer(request, answers))["predictions"] == [
        {**answers[0], "words": ["a", ""], "scores": [0.5, 0.0]},
        answers[1],
        {**answers[2], "words": ["", ""], "scores": [0.0, 0.0]},
    ]


def test_encode_json_writes_shortest_float32():
    numbers = np.random.default_rng(0).normal(size=1200) * 10.0 ** np.repeat(np.arange(-30, 30), 20)
    numbers = np.append(numbers, [-0.0, 1e-45, -9.9e15, 3.4028235e38]).astype("float32")
    text = encode_json({"array": numbers, "list": numbers.tolist()})
    for values in json.loads(text).values():
        assert np.array_equal(np.array(values, "float32"), numbers)
    assert max(map(len, encode_json(numbers)[1:-1].split(b","))) < MAX_BYTES_OF_NUMBER
    assert encode_json({"é": [np.float32(0.1), 0.25], "b": [None, [1, "é"]]}) == (
        '{"é":[0.1,0.25],"b":[null,[1,"é"]]}'.encode()
    )
