# SPDX-License-Identifier: Apache-2.0
"""Checks which rows share a batch, and how failed batches and a full queue affect requests."""

import contextlib
import threading

import pytest

from training.serving.batching import Batcher, QueueFullError

pytestmark = pytest.mark.backend_independent

LONG = "long " * 2000


class Model:
    """Predicts a row's text. Batches wait until `may_continue` is set."""

    def __init__(self):
        self.batches = []
        self.may_continue = threading.Event()
        self.has_started = threading.Semaphore(0)

    def predict(self, signature, rows):
        texts = [row["text"] for row in rows]
        self.batches.append((signature, texts))
        self.has_started.release()
        assert self.may_continue.wait(60)
        if "bad" in texts:
            raise ValueError(f"bad is one of {len(texts)}")
        return [{"answer": f"{signature} {text}"} for text in texts]


@contextlib.contextmanager
def make_batcher(model, *, threads=1, max_waiting=100):
    batcher = Batcher(model.predict, threads=threads, batch_size=4, max_waiting=max_waiting)
    try:
        yield batcher
    finally:
        model.may_continue.set()
        batcher.close()


def submit(batcher, *texts, signature="serve"):
    return batcher.submit(signature, [{"text": text} for text in texts])


def test_batches_share_signature_and_length():
    model = Model()
    with make_batcher(model) as batcher:
        first = submit(batcher, "first")
        assert model.has_started.acquire(timeout=60)  # no other row shares the batch
        many = submit(batcher, "a", LONG, "b", "c")
        other = submit(batcher, "d", signature="other")
        late = submit(batcher, "e", "f")
        assert batcher.waiting == 7
        model.may_continue.set()
        answers = [
            [row["answer"] for row in future.result(60)] for future in (first, many, other, late)
        ]
    assert answers == [
        ["serve first"],
        ["serve a", f"serve {LONG}", "serve b", "serve c"],
        ["other d"],
        ["serve e", "serve f"],
    ]
    assert model.batches == [
        ("serve", ["first"]),
        # Rows of small and large requests alternate.
        ("serve", ["a", "e", "f", "b"]),
        ("other", ["d"]),
        ("serve", [LONG]),
        ("serve", ["c"]),
    ]
    assert batcher.waiting == 0


def test_large_request_does_not_block_others():
    model = Model()
    with make_batcher(model) as batcher:
        submit(batcher, "first")
        assert model.has_started.acquire(timeout=60)
        submit(batcher, *"abcdefghijklmnop")
        submit(batcher, "late")
    assert ["late" in texts for _, texts in model.batches] == [False, True, *[False] * 4]


def test_batch_lists_have_equal_lengths():
    model = Model()
    with make_batcher(model) as batcher:
        submit(batcher, "first")
        assert model.has_started.acquire(timeout=60)
        for words in (["a", "b"], ["a"], ["c", "d"]):
            batcher.submit("words", [{"text": words}])
    assert model.batches[1:] == [("words", [["a", "b"], ["c", "d"]]), ("words", [["a"]])]


def test_error_affects_only_its_request():
    model = Model()
    with make_batcher(model) as batcher:
        first = submit(batcher, "first")
        assert model.has_started.acquire(timeout=60)
        good, bad, other = submit(batcher, "a"), submit(batcher, "bad", "b"), submit(batcher, "c")
        model.may_continue.set()
        assert first.result(60)
        assert [row["answer"] for row in (*good.result(60), *other.result(60))] == [
            "serve a",
            "serve c",
        ]
        with pytest.raises(ValueError, match="bad is one of 2"):
            bad.result(60)
        assert submit(batcher, "d").result(60)


def test_full_queue_raises_until_rows_are_cancelled():
    model = Model()
    with make_batcher(model, max_waiting=3) as batcher:
        submit(batcher, "first")
        assert model.has_started.acquire(timeout=60)
        waiting = submit(batcher, "a", "b", "c")
        with pytest.raises(QueueFullError, match=r"at most 3 examples may wait. Received: 1"):
            submit(batcher, "d")
        assert waiting.cancel()
        assert batcher.waiting == 0
        assert submit(batcher, "e") is not None
    assert [texts for _, texts in model.batches] == [["first"], ["e"]]
    with pytest.raises(QueueFullError, match="shutting down"):
        submit(batcher, "f")


def test_long_texts_leave_a_thread_for_short_texts():
    model = Model()
    with make_batcher(model, threads=2) as batcher:
        for _ in range(3):
            submit(batcher, LONG)
        short = submit(batcher, "short")
        for _ in range(2):
            assert model.has_started.acquire(timeout=60)
        assert sorted(texts for _, texts in model.batches) == [[LONG], ["short"]]
        model.may_continue.set()
        assert short.result(60)
    assert len(model.batches) == 4


@pytest.mark.parametrize("name", ["choices", "token_ids"])
def test_batch_size_counts_choices(name):
    model = Model()
    with make_batcher(model) as batcher:
        submit(batcher, "first")
        assert model.has_started.acquire(timeout=60)
        choice = "a" if name == "choices" else [1]
        for count in (2, 2, 2, 7):
            batcher.submit("serve", [{"text": str(count), name: [choice] * count}])
        model.may_continue.set()
    assert [texts for _, texts in model.batches[1:]] == [["2", "2"], ["2"], ["7"]]
