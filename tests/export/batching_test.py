# SPDX-License-Identifier: Apache-2.0
"""Every signature of every task answers a request the same, whatever batch it is put in."""

import itertools
import json

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from tests.export import served_tasks  # noqa: E402
from tests.export.batching_session import (  # noqa: E402
    check_same,
    run_alone,
    run_in_parts,
    run_together,
    tags_of,
)
from tests.export.served_tasks import strings  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_every_signature_in_batches_of_unequal_lengths(served):
    assert served.requests.keys() == served.signatures.keys()
    for name, requests in served.requests.items():
        alone = [run_alone(served.signatures[name], request) for request in requests]
        assert (len(alone[0]) == 1) == (name in served.bare)
        for order in itertools.permutations(range(len(requests))):
            received = run_together(
                served.signatures[name], [requests[i] for i in order], (1, 2, 4, 8, 16)
            )
            for index, answer in zip(order, received, strict=True):
                check_same(answer, alone[index], whole_rows=name != "serve_ids")


def test_large_requests_in_parts(served):
    """Where the batching file lets the server split requests, the parts fit together."""
    if not served.splits:
        pytest.skip("the width of the outputs depends on the part")
    for name, requests in served.requests.items():
        request, *neighbours = (requests[index] for index in (0, 2, 1))
        repeated = {key: np.concatenate([value] * 3) for key, value in request.items()}
        alone = run_alone(served.signatures[name], repeated)
        check_same(run_in_parts(served.signatures[name], repeated, 4, neighbours), alone)


def test_words_that_may_be_filler_are_refused(served_tagger):
    function = served_tagger.signatures["serve_words"]
    first, second = ({"words": strings([row])} for row in (["the", "cat"], ["a", "b", "c", "d"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="serve_counted_words with num_words"):
        run_together(function, [first, second])
    several = {"words": strings([["the", "cat"], ["sat", "on"]])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row ends in what it"):
        run_together(function, [several, second])
    # One row by itself is nobody's filler.
    assert run_alone(function, {"words": strings([["a", "b", "a"]])})["labels"].all()


def test_word_counts_are_checked(served_tagger):
    function = served_tagger.signatures["serve_counted_words"]
    for counts, message in (([3], "more than the row"), ([-1], "at least 0"), ([1, 1], "each row")):
        request = {"words": strings([["a", "b"]]), "num_words": np.array(counts, "int32")}
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run_alone(function, request)


def test_counted_words_get_the_tags_of_the_task(served_tagger):
    for request in served_tagger.requests["serve_counted_words"]:
        received = run_alone(served_tagger.signatures["serve_counted_words"], request)
        rows = [
            [word.decode() for word in row[:count]]
            for row, count in zip(request["words"], request["num_words"], strict=True)
        ]
        for labels, tags in zip(received["labels"], served_tagger.task.tag(rows), strict=True):
            assert [x.decode() for x in labels if x] == [tag["label"] for tag in tags]


def test_tags_as_json_are_those_of_the_task(served_tagger):
    texts = served_tasks.TEXTS[0]
    received = run_alone(served_tagger.signatures["serve_tags"], {"text": strings(texts)})["tags"]
    expected = [json.dumps(tags) for tags in served_tagger.task.tag(texts)]
    for tags, of_task in zip(tags_of(received), tags_of(expected, approximate=True), strict=True):
        assert tags == [
            {name: value for name, value in tag.items() if name != "word"} for tag in of_task
        ]


def test_choices_that_may_be_filler_are_refused(served_chooser):
    function = served_chooser.signatures["serving_default"]
    several = {"text": strings(["a", "b"]), "choices": strings([["cat", "mat"], ["b", "the"]])}
    longer = {"text": strings(["a"]), "choices": strings([["cat", "mat", "the"]])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="serve_counted_choices with num_cho"):
        run_together(function, [several, longer])
    # Of one width they are answered.
    check_same(run_together(function, [several, several])[1], run_alone(function, several))


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
    with pytest.raises(tf.errors.InvalidArgumentError, match="choices: a row is empty"):
        run_alone(
            served_chooser.signatures["serving_default"],
            {"text": strings(["a"]), "choices": np.zeros([1, 0], "S1")},
        )
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids: a row is empty"):
        run_alone(served_tagger.signatures["serve_ids"], {"token_ids": np.zeros([1, 0], "int32")})


def test_ids_without_a_first_token_are_refused_where_they_may_be_filler(served_tagger):
    function = served_tagger.signatures["serve_ids"]
    first, second = ({"token_ids": np.array([row], "int32")} for row in ([7, 8], [2, 9, 9, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must begin with .* \[CLS\], 2"):
        run_together(function, [first, second])
