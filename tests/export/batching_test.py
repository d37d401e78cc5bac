# SPDX-License-Identifier: Apache-2.0
"""Each signature returns the same outputs for a request in any batch."""

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert import QuestionAnswerer, TokenClassifier  # noqa: E402
from tests.export.batching_session import (  # noqa: E402
    assert_same_outputs,
    run_alone,
    run_scheduled,
    run_split,
    run_together,
)
from tests.export.served_tasks import KINDS_BY_INPUT_FORM, make_served_task, strings  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_batched_requests_match_single_requests(served_task):
    assert served_task.requests.keys() == served_task.signatures.keys()
    for name, requests in served_task.requests.items():
        expected = [run_alone(served_task.signatures[name], request) for request in requests]
        assert (len(expected[0]) == 1) == (name in served_task.bare)
        for order in (range(len(requests)), range(len(requests))[::-1]):
            actual = run_together(
                served_task.signatures[name], [requests[i] for i in order], (1, 2, 4, 8, 16)
            )
            for index, outputs in zip(order, actual, strict=True):
                assert_same_outputs(outputs, expected[index], whole_rows=name != "serve_ids")


# Invalid values for the last element of an input's first row, and the error
INVALID_VALUES = {
    "token_ids": ((-1, 10**6), "token_ids must be at least 0 and below"),
    "segment_ids": ((-1, 2), "segment_ids must be at least 0 and below 2"),
    "num_words": ((-1, 99), "num_words"),
    "num_choices": ((0, 99), "num_choices"),
}

# The outputs of an invalid row, by dtype kind
EMPTY_OUTPUTS = {"f": -1e6, "i": -1, "O": b""}


@pytest.mark.parametrize("served_task", KINDS_BY_INPUT_FORM, indirect=True)
@pytest.mark.parametrize("pads", [False, True])
def test_invalid_row_does_not_affect_other_rows(served_task, pads):
    """Other rows of the request and requests in the same batch are not affected."""
    for name, (first, second, *_) in served_task.requests.items():
        signature = served_task.signatures[name]
        # The scheduler is traced for the number of rows without padding.
        rows = len(next(iter(first.values())))
        repeated = {key: np.repeat(value, rows, axis=0) for key, value in second.items()}
        neighbor = repeated if pads else first
        for key in first.keys() & INVALID_VALUES.keys():
            numbers, message = INVALID_VALUES[key]
            invalid_requests = [{**first, key: first[key].copy()} for _ in numbers]
            for request, number in zip(invalid_requests, numbers, strict=True):
                request[key][(0,) + (-1,) * (request[key].ndim - 1)] = number
            *invalid_outputs, neighbor_outputs = run_scheduled(
                signature, [*invalid_requests, neighbor], pads=pads
            )
            assert_same_outputs(neighbor_outputs, run_alone(signature, neighbor), whole_rows=False)
            expected = run_alone(signature, first)
            for outputs in invalid_outputs:
                assert outputs["error"][0].decode().startswith(message)
                for output in outputs.keys() - {"error"}:
                    assert np.all(outputs[output][0] == EMPTY_OUTPUTS[outputs[output].dtype.kind])
                assert_same_outputs(
                    {output: values[1:] for output, values in outputs.items()},
                    {output: values[1:] for output, values in expected.items()},
                    whole_rows=False,
                )


def test_overlong_ids_only_fail_their_row(served_task):
    request = served_task.requests["serve_ids"][0]
    length = served_task.task.config.max_sequence_length
    missing = length + 3 - request["token_ids"].shape[-1]
    widths = [*[(0, 0)] * (request["token_ids"].ndim - 1), (0, missing)]
    wide = {key: np.pad(value, widths) for key, value in request.items()}
    expected = run_alone(served_task.signatures["serve_ids"], request)
    # Padding does not count as length.
    assert_same_outputs(
        run_alone(served_task.signatures["serve_ids"], wide), expected, whole_rows=False
    )
    wide["token_ids"][(0,) * (wide["token_ids"].ndim - 1) + (-1,)] = 7
    actual = run_alone(served_task.signatures["serve_ids"], wide)
    error = actual["error"][0].decode()
    assert error == f"token_ids must not be longer than the model's {length} positions"
    actual, expected = (
        {key: value[1:] for key, value in outputs.items()} for outputs in (actual, expected)
    )
    assert_same_outputs(actual, expected, whole_rows=False)


def test_example_without_text_only_fails_its_row(served_task):
    if "serve_examples" not in served_task.requests:
        pytest.skip("no examples")
    request = served_task.requests["serve_examples"][0]
    expected = run_alone(served_task.signatures["serve_examples"], request)
    invalid = {"inputs": request["inputs"].copy()}
    invalid["inputs"][1] = b""
    actual = run_alone(served_task.signatures["serve_examples"], invalid)
    scores = actual.pop("scores" if "scores" in actual else "outputs")
    expected_scores = expected.pop("scores" if "scores" in expected else "outputs")
    assert (scores[1] == -1e6).all()
    np.testing.assert_allclose(scores[[0, 2]], expected_scores[[0, 2]], atol=2e-5)
    assert_same_outputs(actual, expected)


def test_split_requests_match_whole_requests(served_task):
    """If the server may split requests, the outputs of the parts must fit together."""
    if not served_task.splits:
        pytest.skip("the width of the outputs depends on the part")
    for name, requests in served_task.requests.items():
        request, *neighbors = (requests[index] for index in (0, 2, 1))
        repeated = {key: np.concatenate([value] * 3) for key, value in request.items()}
        expected = run_alone(served_task.signatures[name], repeated)
        assert_same_outputs(
            run_split(served_task.signatures[name], repeated, 4, neighbors), expected
        )


def test_unpadded_batch_fails_unequal_requests(served_tagger):
    """As with `pad_variable_length_inputs: false`. Requests of equal width succeed."""
    signature = served_tagger.signatures["serve_words"]
    short, long = ({"words": strings([row])} for row in (["a", "b"], ["a", "b", "c"]))
    nested = {"words": short["words"][np.newaxis]}
    for other in (long, nested):
        for outputs in run_scheduled(signature, [short, other], pads=False):
            assert isinstance(outputs, tf.errors.InvalidArgumentError)
    for outputs in run_scheduled(signature, [short, short], pads=False):
        assert_same_outputs(outputs, run_alone(signature, short))


def set_padded_batches(served_task):
    """Returns the served task with its signatures for `padded_batches`."""
    options = dataclasses.replace(served_task.options, padded_batches=True)
    functions = served_task.task.serving_signatures(options)
    return dataclasses.replace(served_task, options=options, functions=functions)


def test_padded_batches_require_counts(served_tagger, served_chooser):
    tagger, chooser = map(set_padded_batches, (served_tagger, served_chooser))
    assert served_tagger.functions.keys() - tagger.functions.keys() == {"serve_words"}
    default, counted = (
        chooser.functions[name] for name in ("serving_default", "serve_counted_choices")
    )
    assert [spec.name for spec in default.input_signature] == ["text", "choices", "num_choices"]
    assert default is counted


@pytest.mark.parametrize("pads", [False, True])
def test_equal_choices_are_scored_separately(served_chooser, pads):
    def scores(name, requests):
        outputs = run_scheduled(served_chooser.signatures[name], requests, pads=pads)
        return [output["probabilities"] for output in outputs]

    equal_choices, other = (
        {"text": strings(["a"]), "choices": strings([choices])}
        for choices in (["b", "b"], ["cat", "b"])
    )
    # Tracing the scheduler takes seconds for each number of rows.
    alone = run_alone(served_chooser.signatures["serving_default"], equal_choices)
    joined = scores("serving_default", [equal_choices, equal_choices, other])[:2]
    for row in (alone["probabilities"], *joined):
        np.testing.assert_allclose(row, [[0.5, 0.5]], atol=1e-5)
    counts = {"num_choices": np.array([2], "int32")}
    longer = {"text": strings(["a"]), "choices": strings([["cat", "b", "mat"]])}
    counted = [equal_choices | counts, (longer if pads else other) | counts]
    row = scores("serve_counted_choices", counted)[0]
    np.testing.assert_allclose(row, [[0.5, 0.5, 0.0] if pads else [0.5, 0.5]], atol=1e-5)
    # [CLS] b [SEP] twice, alone or in a batch with a longer request
    ids = {"token_ids": np.array([[[2, 9, 3]] * 2], "int32")}
    ids["segment_ids"] = np.zeros_like(ids["token_ids"])
    wide = {name: np.repeat(value, 2, axis=2)[:, [0, 1, 1]] for name, value in ids.items()}
    row = scores("serve_ids", [ids, wide] if pads else [ids, ids])[0]
    np.testing.assert_allclose(row, [[0.5, 0.5, 0.0] if pads else [0.5, 0.5]], atol=1e-5)


def test_serve_ids_matches_predict(served_task):
    task, signature = served_task.task, served_task.signatures["serve_ids"]
    has_tokens = isinstance(task, TokenClassifier | QuestionAnswerer)
    for request in served_task.requests["serve_ids"]:
        mask = request["token_ids"] != task.preprocessor.tokenizer.pad_token_id
        expected = task.predict({**request, "padding_mask": mask}, verbose=0)
        valid = mask if has_tokens else mask[..., 0]  # For choices, select the existing choices.
        actual = run_alone(signature, request)
        for name, values in (
            expected if isinstance(expected, dict) else {task.output_name: expected}
        ).items():
            outputs = actual[name][tuple(map(slice, valid.shape))]
            np.testing.assert_allclose(outputs[valid], values[valid], atol=1e-4)
            if isinstance(task, QuestionAnswerer):  # The outputs cover all positions of the model.
                assert actual[name].shape[1] == task.config.max_sequence_length
                assert (outputs[~valid] == -1e6).all()
            if isinstance(task, TokenClassifier):
                labels = [x.decode() for x in actual["labels"][valid]]
                assert labels == [task.class_names[best] for best in values[valid].argmax(-1)]


@pytest.mark.parametrize("counts", [{}, {"num_words": np.array([3, 5, 0], "int32")}])
def test_word_signatures_match_tag(served_tagger, counts):
    words = [["the cat", "", "?", "", ""], ["a", "b", "a", "a", "mat"], [""] * 5]
    name = "serve_counted_words" if counts else "serve_words"
    outputs = run_alone(served_tagger.signatures[name], {"words": strings(words), **counts})
    tags = served_tagger.task.tag([words[0][:3], words[1], []])
    for row, labels, scores in zip(tags, outputs["labels"], outputs["scores"], strict=True):
        padding = [0.0] * (5 - len(row))
        assert [x.decode() for x in labels] == [*(t["label"] for t in row), *("" for _ in padding)]
        np.testing.assert_allclose(scores, [*(t["score"] for t in row), *padding], atol=1e-4)
    if not counts:
        no_words = {"words": np.zeros([2, 0], "S1")}
        assert run_alone(served_tagger.signatures[name], no_words)["labels"].shape == (2, 0)


def test_counted_choices_match_choose(served_chooser):
    for request in served_chooser.requests["serve_counted_choices"]:
        actual = run_alone(served_chooser.signatures["serve_counted_choices"], request)
        for index, count in enumerate(request["num_choices"]):
            choices = [choice.decode() for choice in request["choices"][index][:count]]
            ranked = served_chooser.task.choose([(request["text"][index].decode(), choices)])[0]
            assert actual["choice"][index] == ranked[0]["choice"]
            scores = [prediction["score"] for prediction in ranked]
            np.testing.assert_allclose(actual["ranked_scores"][index, :count], scores, atol=1e-5)


def test_empty_rows_raise(served_chooser, served_tagger):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="choices must have at least one element"
    ):
        run_alone(
            served_chooser.signatures["serving_default"],
            {"text": strings(["a"]), "choices": np.zeros([1, 0], "S1")},
        )
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="token_ids must have at least one element"
    ):
        run_alone(served_tagger.signatures["serve_ids"], {"token_ids": np.zeros([1, 0], "int32")})
    pairs = {"text": strings(["a", "b"]), "text_pair": strings(["one"])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have equal batch sizes"):
        run_alone(make_served_task("pairs").signatures["serving_default"], pairs)


def test_ids_without_cls_token_are_errors(served_tagger):
    first, second, third = (
        {"token_ids": np.array(rows, "int32")}
        for rows in ([[7, 8], [2, 3]], [[2, 9, 9, 3]], [[7, 8, 9, 3]])
    )
    signature = set_padded_batches(served_tagger).signatures["serve_ids"]
    outputs = run_scheduled(signature, [first, second, third], pads=True)
    for row in range(2):
        assert b"must start with the [CLS] id, 2" in outputs[0]["error"][row]
    for actual, request in zip(outputs[1:], (second, third), strict=True):
        assert_same_outputs(actual, run_alone(signature, request))
    # Without padding by the server, ids may start with any token.
    signature = served_tagger.signatures["serve_ids"]
    row = {"token_ids": np.array([[7, 8, 9, 7]], "int32")}
    for actual in run_scheduled(signature, [row, second], pads=False):
        assert not actual["error"].any()
