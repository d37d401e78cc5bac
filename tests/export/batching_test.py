# SPDX-License-Identifier: Apache-2.0
"""Every signature of every task answers a request the same, whatever batch it is put in."""

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert import QuestionAnswerer, TokenClassifier  # noqa: E402
from tests.export.batching_session import (  # noqa: E402
    check_same,
    run_alone,
    run_in_parts,
    run_scheduled,
    run_together,
)
from tests.export.served_tasks import FORMS_OF_ROWS, make, strings  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_every_signature_in_batches_of_unequal_lengths(served):
    assert served.requests.keys() == served.signatures.keys()
    for name, requests in served.requests.items():
        alone = [run_alone(served.signatures[name], request) for request in requests]
        assert (len(alone[0]) == 1) == (name in served.bare)
        for order in (range(len(requests)), range(len(requests))[::-1]):
            received = run_together(
                served.signatures[name], [requests[i] for i in order], (1, 2, 4, 8, 16)
            )
            for index, answer in zip(order, received, strict=True):
                check_same(answer, alone[index], whole_rows=name != "serve_ids")


# For the last element of an input's first row, numbers that are an error, and the error
WRONG = {
    "token_ids": ((-1, 10**6), "token_ids must be at least 0 and below"),
    "segment_ids": ((-1, 2), "segment_ids must be at least 0 and below 2"),
    "num_words": ((-1, 99), "num_words"),
    "num_choices": ((0, 99), "num_choices"),
}

# What such a row has for answers, by the kind of their dtype
NOTHING = {"f": -1e6, "i": -1, "O": b""}


@pytest.mark.parametrize("served", FORMS_OF_ROWS, indirect=True)
@pytest.mark.parametrize("pads", [False, True])
def test_a_bad_row_fails_no_other(served, pads):
    """Neither those of its own request, nor those that the server's scheduler puts beside it."""
    for name, (first, second, *_) in served.requests.items():
        signature = served.signatures[name]
        # As many rows as without padding, for which the scheduler is traced
        rows = len(next(iter(first.values())))
        repeated = {key: np.repeat(value, rows, axis=0) for key, value in second.items()}
        neighbor = repeated if pads else first
        for key in first.keys() & WRONG.keys():
            numbers, message = WRONG[key]
            bad = [{**first, key: first[key].copy()} for _ in numbers]
            for request, number in zip(bad, numbers, strict=True):
                request[key][(0,) + (-1,) * (request[key].ndim - 1)] = number
            *marked, answered = run_scheduled(signature, [*bad, neighbor], pads=pads)
            check_same(answered, run_alone(signature, neighbor), whole_rows=False)
            expected = run_alone(signature, first)
            for answer in marked:
                assert answer["error"][0].decode().startswith(message)
                for output in answer.keys() - {"error"}:
                    assert np.all(answer[output][0] == NOTHING[answer[output].dtype.kind])
                check_same(
                    {output: values[1:] for output, values in answer.items()},
                    {output: values[1:] for output, values in expected.items()},
                    whole_rows=False,
                )


def test_ids_longer_than_the_model_are_an_error_of_their_row(served):
    request = served.requests["serve_ids"][0]
    length = served.task.config.max_sequence_length
    missing = length + 3 - request["token_ids"].shape[-1]
    widths = [*[(0, 0)] * (request["token_ids"].ndim - 1), (0, missing)]
    wide = {key: np.pad(value, widths) for key, value in request.items()}
    alone = run_alone(served.signatures["serve_ids"], request)
    # Padding is not too long.
    check_same(run_alone(served.signatures["serve_ids"], wide), alone, whole_rows=False)
    wide["token_ids"][(0,) * (wide["token_ids"].ndim - 1) + (-1,)] = 7
    received = run_alone(served.signatures["serve_ids"], wide)
    error = received["error"][0].decode()
    assert error == f"token_ids must not be longer than the model's {length} positions"
    received, alone = (
        {key: value[1:] for key, value in both.items()} for both in (received, alone)
    )
    check_same(received, alone, whole_rows=False)


def test_an_example_without_its_text_is_an_error_of_its_row(served):
    if "serve_examples" not in served.requests:
        pytest.skip("no examples")
    request = served.requests["serve_examples"][0]
    alone = run_alone(served.signatures["serve_examples"], request)
    wrong = {"inputs": request["inputs"].copy()}
    wrong["inputs"][1] = b""
    received = run_alone(served.signatures["serve_examples"], wrong)
    scores = received.pop("scores" if "scores" in received else "outputs")
    expected = alone.pop("scores" if "scores" in alone else "outputs")
    assert (scores[1] == -1e6).all()
    np.testing.assert_allclose(scores[[0, 2]], expected[[0, 2]], atol=2e-5)
    check_same(received, alone)


def test_large_requests_in_parts(served):
    """Where the batching file lets the server split requests, the parts fit together."""
    if not served.splits:
        pytest.skip("the width of the outputs depends on the part")
    for name, requests in served.requests.items():
        request, *neighbors = (requests[index] for index in (0, 2, 1))
        repeated = {key: np.concatenate([value] * 3) for key, value in request.items()}
        alone = run_alone(served.signatures[name], repeated)
        check_same(run_in_parts(served.signatures[name], repeated, 4, neighbors), alone)


def test_unpadded_batch_fails_unequal_requests(served_tagger):
    """By name, as with `pad_variable_length_inputs: false`; requests of one width are answered."""
    signature = served_tagger.signatures["serve_words"]
    short, long = ({"words": strings([row])} for row in (["a", "b"], ["a", "b", "c"]))
    nested = {"words": short["words"][np.newaxis]}
    for other in (long, nested):
        for answer in run_scheduled(signature, [short, other], pads=False):
            assert isinstance(answer, tf.errors.InvalidArgumentError)
    for answer in run_scheduled(signature, [short, short], pads=False):
        check_same(answer, run_alone(signature, short))


def for_padded_batches(served):
    """The signatures of the same task in an export with `padded_batches`."""
    options = dataclasses.replace(served.options, padded_batches=True)
    functions = served.task.serving_signatures(options)
    return dataclasses.replace(served, options=options, functions=functions)


def test_for_padded_batches_words_and_choices_need_their_number(served_tagger, served_chooser):
    tagger, chooser = map(for_padded_batches, (served_tagger, served_chooser))
    assert served_tagger.functions.keys() - tagger.functions.keys() == {"serve_words"}
    default, counted = (
        chooser.functions[name] for name in ("serving_default", "serve_counted_choices")
    )
    assert [spec.name for spec in default.input_signature] == ["text", "choices", "num_choices"]
    assert default is counted


@pytest.mark.parametrize("pads", [False, True])
def test_equal_choices_are_choices(served_chooser, pads):
    def scores(name, requests):
        answers = run_scheduled(served_chooser.signatures[name], requests, pads=pads)
        return [answer["probabilities"] for answer in answers]

    equal, other = (
        {"text": strings(["a"]), "choices": strings([choices])}
        for choices in (["b", "b"], ["cat", "b"])
    )
    for requests in ([equal], [equal, other], [equal, equal, other]):
        for row in scores("serving_default", requests)[: len(requests[:-1]) or 1]:
            np.testing.assert_allclose(row, [[0.5, 0.5]], atol=1e-5)
    counts = {"num_choices": np.array([2], "int32")}
    longer = {"text": strings(["a"]), "choices": strings([["cat", "b", "mat"]])}
    counted = [equal | counts, (longer if pads else other) | counts]
    row = scores("serve_counted_choices", counted)[0]
    np.testing.assert_allclose(row, [[0.5, 0.5, 0.0] if pads else [0.5, 0.5]], atol=1e-5)
    # [CLS] b [SEP], twice, and beside a request of longer rows
    ids = {"token_ids": np.array([[[2, 9, 3]] * 2], "int32")}
    ids["segment_ids"] = np.zeros_like(ids["token_ids"])
    wide = {name: np.repeat(value, 2, axis=2)[:, [0, 1, 1]] for name, value in ids.items()}
    row = scores("serve_ids", [ids, wide] if pads else [ids, ids])[0]
    np.testing.assert_allclose(row, [[0.5, 0.5, 0.0] if pads else [0.5, 0.5]], atol=1e-5)


def test_ids_get_the_outputs_of_predict(served):
    task, signature = served.task, served.signatures["serve_ids"]
    has_tokens = isinstance(task, TokenClassifier | QuestionAnswerer)
    for request in served.requests["serve_ids"]:
        mask = request["token_ids"] != task.preprocessor.tokenizer.pad_token_id
        expected = task.predict({**request, "padding_mask": mask}, verbose=0)
        real = mask if has_tokens else mask[..., 0]  # of choices, those that there are
        received = run_alone(signature, request)
        for name, values in (
            expected if isinstance(expected, dict) else {task.output_name: expected}
        ).items():
            own = received[name][tuple(map(slice, real.shape))]
            np.testing.assert_allclose(own[real], values[real], atol=1e-4)
            if isinstance(task, QuestionAnswerer):  # as wide as the model has positions
                assert received[name].shape[1] == task.config.max_sequence_length
                assert (own[~real] == -1e6).all()
            if isinstance(task, TokenClassifier):
                labels = [x.decode() for x in received["labels"][real]]
                assert labels == [task.class_names[best] for best in values[real].argmax(-1)]


@pytest.mark.parametrize("counts", [{}, {"num_words": np.array([3, 5, 0], "int32")}])
def test_words_get_the_tags_of_the_task(served_tagger, counts):
    words = [["the cat", "", "?", "", ""], ["a", "b", "a", "a", "mat"], [""] * 5]
    name = "serve_counted_words" if counts else "serve_words"
    outputs = run_alone(served_tagger.signatures[name], {"words": strings(words), **counts})
    tags = served_tagger.task.tag([words[0][:3], words[1], []])
    for row, labels, scores in zip(tags, outputs["labels"], outputs["scores"], strict=True):
        padding = [0.0] * (5 - len(row))
        assert [x.decode() for x in labels] == [*(t["label"] for t in row), *("" for _ in padding)]
        np.testing.assert_allclose(scores, [*(t["score"] for t in row), *padding], atol=1e-4)
    if not counts:
        nothing = {"words": np.zeros([2, 0], "S1")}
        assert run_alone(served_tagger.signatures[name], nothing)["labels"].shape == (2, 0)


def test_counted_choices_get_the_scores_of_the_task(served_chooser):
    for request in served_chooser.requests["serve_counted_choices"]:
        received = run_alone(served_chooser.signatures["serve_counted_choices"], request)
        for index, count in enumerate(request["num_choices"]):
            choices = [choice.decode() for choice in request["choices"][index][:count]]
            ranked = served_chooser.task.choose([(request["text"][index].decode(), choices)])[0]
            assert received["choice"][index] == ranked[0]["choice"]
            scores = [answer["score"] for answer in ranked]
            np.testing.assert_allclose(received["ranked_scores"][index, :count], scores, atol=1e-5)


def test_empty_rows_are_refused_by_name(served_chooser, served_tagger):
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
        run_alone(make("pairs").signatures["serving_default"], pairs)


def test_ids_without_first_token_are_errors(served_tagger):
    first, second, third = (
        {"token_ids": np.array(rows, "int32")}
        for rows in ([[7, 8], [2, 3]], [[2, 9, 9, 3]], [[7, 8, 9, 3]])
    )
    signature = for_padded_batches(served_tagger).signatures["serve_ids"]
    received = run_scheduled(signature, [first, second, third], pads=True)
    for row in range(2):
        assert b"must start with the [CLS] id, 2" in received[0]["error"][row]
    for answer, request in zip(received[1:], (second, third), strict=True):
        check_same(answer, run_alone(signature, request))
    # Nothing is padded without padding.
    signature = served_tagger.signatures["serve_ids"]
    row = {"token_ids": np.array([[7, 8, 9, 7]], "int32")}
    for answer in run_scheduled(signature, [row, second], pads=False):
        assert not answer["error"].any()
