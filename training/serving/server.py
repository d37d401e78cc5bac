# SPDX-License-Identifier: Apache-2.0
"""Serves models over HTTP, with the code that all protocols share."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from keras_bert.data.choices import choice_outputs, own_choices

from .batching import Batcher, QueueFullError
from .json_fields import MAX_BYTES_OF_ANSWER, MAX_BYTES_OF_NUMBER, RequestError
from .metrics import Metrics
from .models import PAIR_SIGNATURE, LoadedModel
from .signatures import CHOICES, DEFAULT_SIGNATURE, TEXT_PAIR, Row, as_text
from .versions import VersionWatcher

_SECONDS_FOR_BODY = 60.0
# Maximum total size of all incoming and waiting requests, in bytes
_MAX_BYTES_IN_MEMORY = 256 * 2**20
# An oversized request is read up to this multiple of the limit before it is rejected.
_READ_BEFORE_REFUSAL = 8
_CLIENT_CLOSED_REQUEST = 499
# Number of seconds between checks whether a replaced model is still in use
_SECONDS_BETWEEN_CHECKS = 0.5
JSON = "application/json"
# Headers with the indices of the truncated texts, and with their number
TRUNCATED_HEADERS = ("X-Truncated-Inputs", "X-Truncated-Count")
# Maximum number of indices in the header. Clients and proxies reject headers of about 4,000 bytes.
_MAX_TRUNCATED_INDICES = 100


class RejectedRequestError(HTTPException):
    """Raised to respond to a request with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        field: str = "",
        *,
        is_empty: bool = False,
    ) -> None:
        super().__init__(status, message, headers)
        self.field = field
        self.is_empty = is_empty


class NotFiniteError(RejectedRequestError):
    """Raised if a model's outputs contain infinities or NaN."""

    def __init__(self) -> None:
        super().__init__(
            500, "the model's outputs must be finite, because JSON does not support infinity or NaN"
        )


@dataclasses.dataclass(frozen=True)
class Protocol:
    """An HTTP protocol.

    Args:
        routes: Returns the protocol's routes for a server.
        addresses: Pattern that matches the start of the protocol's paths. Errors for unknown paths
            that match are also written by this protocol.
        write_error: Formats an error as the protocol does.
        example: The most common request, for the error message about unknown paths.
    """

    routes: Callable[[ModelServer], list[Route]]
    addresses: re.Pattern[str]
    write_error: Callable[[RejectedRequestError], Response]
    example: str


class _ModelName(Convertor[str]):
    """A model name in a path. It ends at a colon and may contain slashes."""

    regex = "[^:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("model", _ModelName())


class BodyReader:
    """Reads request bodies and limits the memory that they use together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._resident_memory = 0

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> Any:
        """Yields a request's body. It counts toward the memory limit until the block ends.

        Raises:
            RejectedRequestError: If the body is too large, compressed or too slow, if all bodies
                together are too large, or if the client disconnects.
        """
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise RejectedRequestError(
                415, f"the body must not be compressed. Received: {encoding}"
            )
        chunks: list[bytes] = []
        size = in_memory = 0
        try:
            try:
                async with asyncio.timeout(_SECONDS_FOR_BODY):
                    async for chunk in request.stream():
                        size += len(chunk)
                        if size <= self._max_bytes:
                            chunks.append(chunk)
                            in_memory += len(chunk)
                            self._resident_memory += len(chunk)
                        # Clients do not read the response until they have sent the body, so read
                        # on.
                        if size > _READ_BEFORE_REFUSAL * self._max_bytes:
                            break
                        if self._resident_memory > _MAX_BYTES_IN_MEMORY:
                            raise RejectedRequestError(
                                503,
                                f"waiting requests may have at most {_MAX_BYTES_IN_MEMORY} bytes "
                                "in total. Try again later.",
                                {"Retry-After": "1"},
                            )
            except TimeoutError as error:
                raise RejectedRequestError(
                    408, f"the body must arrive within {_SECONDS_FOR_BODY:.0f} s"
                ) from error
            except ClientDisconnect as error:
                raise RejectedRequestError(
                    _CLIENT_CLOSED_REQUEST, "the client closed the connection"
                ) from error
            if size > self._max_bytes:
                raise RejectedRequestError(
                    413, f"a request may have at most {self._max_bytes} bytes"
                )
            yield b"".join(chunks)
        finally:
            self._resident_memory -= in_memory


class ModelServer:
    """Serves models over HTTP.

    Args:
        models: The models by name.
        metrics: The metrics.
        max_rows: Maximum number of examples in a request.
        max_bytes: Maximum request size in bytes.
        auto_truncate: Whether overlong texts are truncated, if the request does not say.
        request_timeout: Maximum number of seconds for a request. `None` for no limit.
    """

    def __init__(
        self,
        models: Mapping[str, LoadedModel],
        metrics: Metrics,
        max_rows: int,
        max_bytes: int,
        *,
        auto_truncate: bool = False,
        request_timeout: float | None = None,
    ) -> None:
        self.models = models
        self.auto_truncate = auto_truncate
        self.metrics = metrics
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.watchers: list[VersionWatcher] = []
        self._reader = BodyReader(max_bytes)
        self._request_timeout = request_timeout

    def replace(self, models: Mapping[str, LoadedModel]) -> None:
        """Replaces models, and waits until requests to the old models have been answered."""
        batchers = {self.models[name].batcher for name in models}
        old = [weakref.ref(self.models[name]) for name in models]
        self.models = {**self.models, **models}
        while any(model() is not None for model in old):  # A request still refers to it.
            time.sleep(_SECONDS_BETWEEN_CHECKS)
            gc.collect()
        for batcher in batchers:
            batcher.close()

    def close(self) -> None:
        """Computes the waiting requests, then stops the threads."""
        for watcher in self.watchers:
            watcher.close()
        for model in self.models.values():
            model.batcher.close()

    def post(
        self,
        path: str,
        answer: Callable[[Request, bytes], Awaitable[Response]],
        write_error: Callable[[RejectedRequestError], Response],
    ) -> Route:
        """Returns a POST route that sends requests to models.

        Args:
            path: The path of the endpoint.
            answer: Returns the response to a request and its body. It may raise a `RequestError`
                for a response with status 400, or a `RejectedRequestError`.
            write_error: Formats an error as the protocol does.
        """

        async def handle(request: Request) -> Response:
            start = time.perf_counter()
            request.state.model = ""
            try:
                async with (
                    asyncio.timeout(self._request_timeout),
                    self._reader.body(request) as body,
                ):
                    response = await answer(request, body)
            except TimeoutError:
                # Examples that still wait are not computed.
                message = f"the request must be computed within {self._request_timeout:g} s"
                response = write_error(RejectedRequestError(504, message))
            except RequestError as error:
                response = write_error(RejectedRequestError(400, str(error), **vars(error)))
            except RejectedRequestError as error:
                response = write_error(error)
            name = request.state.model
            self.metrics.requests.labels(name, str(response.status_code)).inc()
            self.metrics.request_seconds.labels(name).observe(time.perf_counter() - start)
            return response

        return Route(path, handle, methods=["POST"])

    def model(self, request: Request, name: str) -> LoadedModel:
        """Returns the model called `name`, and labels the request with it for the metrics.

        Raises:
            RejectedRequestError: If no model has this name.
        """
        if name not in self.models:
            raise RejectedRequestError(
                404,
                f"model must be one of {', '.join(self.models)}. Received: {name[:200]!r}",
                field="model",
            )
        request.state.model = name
        return self.models[name]

    def model_for(
        self,
        request: Request,
        purpose: str,
        reason_against: Callable[[LoadedModel], str] = lambda model: "",
    ) -> LoadedModel:
        """Returns the model in the path, or the only suitable model if the path has no name.

        Args:
            request: A request to a path with or without `name`.
            purpose: What the model must provide, for error messages.
            reason_against: Returns why a model is not suitable, or `""` for suitable models.

        Raises:
            RejectedRequestError: If no model is suitable, or if multiple models are suitable and
                the path does not include a name.
        """
        name, path = request.path_params.get("name"), request.url.path
        models = list(self.models.values()) if name is None else [self.model(request, name)]
        reasons = {model.name: reason_against(model) for model in models}
        # Multiple names of one model are not ambiguous.
        fitting = list({m.batcher: m for m in reversed(models) if not reasons[m.name]}.values())
        if not fitting:
            why = ", ".join(f"{name} {reason}" for name, reason in reasons.items())
            raise RejectedRequestError(424, f"{path} requires a model with {purpose}: {why}")
        if len(fitting) > 1:
            names = [model.name for model in models if not reasons[model.name]]
            others = ", ".join(f"/models/{name}{path.rstrip('/')}" for name in names)
            raise RejectedRequestError(
                404, f"{path} is ambiguous with multiple models. Use {others}"
            )
        return self.model(request, fitting[0].name)

    async def compute(
        self, request: Request, model: LoadedModel, signature: str, rows: Sequence[Row]
    ) -> list[Row]:
        """Computes the predictions for examples.

        A sparse embedding may have a weight for each token of the vocabulary, but few texts do.
        Sparse embeddings are therefore computed in parts until the response would be too large.

        Raises:
            RejectedRequestError: Same as in the function `compute`, and if the response would be
                too large.
        """
        if model.embedding_kind != "sparse":
            return await compute(request, model.batcher, signature, rows)
        answers: list[Row] = []
        size, step = 0, model.batcher.num_threads * model.batcher.batch_size
        for start in range(0, len(rows), step):
            part = await compute(request, model.batcher, signature, rows[start : start + step])
            answers += part
            size += MAX_BYTES_OF_NUMBER * sum(len(answer.get("weights", ())) for answer in part)
            if size > MAX_BYTES_OF_ANSWER:
                raise RejectedRequestError(
                    413,
                    f"the response must have at most {MAX_BYTES_OF_ANSWER} bytes. Received: "
                    f"{len(rows)} examples, whose first {len(answers)} have at least {size} bytes. "
                    "Send fewer examples",
                )
        return answers

    async def answer_choices(
        self, request: Request, model: LoadedModel, rows: Sequence[Row]
    ) -> list[Row]:
        """Computes the predictions for texts with choices. The choices may be in different batches.

        Raises:
            RejectedRequestError: Same as in `compute`, or if an example has no choices.
        """
        self.check_copies(sum(len(row["text"]) * len(row[CHOICES]) for row in rows), "text")
        if model.pair_signature is None:
            return await self.compute(request, model, DEFAULT_SIGNATURE, rows)
        columns = [list(map(as_text, row[CHOICES])) for row in rows]
        if not all(columns):
            raise RejectedRequestError(400, "choices must have at least one element per example")
        own = list(map(own_choices, columns))
        pairs = [
            {"text": row["text"], TEXT_PAIR: choice}
            for row, choices in zip(rows, own, strict=True)
            for choice in choices
        ]
        answers = await self.compute(request, model, PAIR_SIGNATURE, pairs)
        logits = np.split(
            np.concatenate([answer["logits"] for answer in answers]),
            np.cumsum(list(map(len, own)))[:-1],
        )
        return list(map(choice_outputs, columns, logits))

    async def count(
        self, model: LoadedModel, rows: Sequence[Row], field: str, truncate: bool
    ) -> tuple[list[Row], list[int]]:
        """Counts the tokens in texts before the computation, and finds the truncated texts.

        Returns:
            The results of `TextLimits.count`, and the indices of the truncated examples.

        Raises:
            RejectedRequestError: If the queue is full.
            RequestError: If an example is too long and `truncate` is false.
        """
        try:
            model.batcher.check_room(len(rows))
        except QueueFullError as error:
            raise _busy(error) from error
        counts = await asyncio.to_thread(model.limits.count, rows)
        truncated = [index for index, count in enumerate(counts) if count["is_truncated"]]
        if truncated and not truncate:
            raise RequestError(
                f"{field}: {model.limits.description}. Received: "
                f"{counts[truncated[0]]['num_tokens']} tokens, including special tokens (text "
                f"{truncated[0]}; {len(truncated)} of {len(counts)} texts are too long)",
                field,
            )
        return counts, truncated

    def check_copies(self, characters: int, field: str) -> None:
        """Checks the length of texts that a client sends once, but a model reads multiple times.

        Args:
            characters: Number of characters in all copies.
            field: Name of the request field.

        Raises:
            RequestError: If there are more characters than a request may have bytes.
        """
        if characters > self.max_bytes:
            raise RequestError(
                f"{field} must have at most {self.max_bytes} characters in total, counted for "
                f"each text or label that the model reads with it. Received: {characters}",
                field,
            )

    def check_size(self, rows: int, bytes_per_row: int) -> None:
        """Checks before the computation that the response cannot be too large.

        Raises:
            RejectedRequestError: If the response may be too large.
        """
        size = rows * bytes_per_row
        if size > MAX_BYTES_OF_ANSWER:
            raise RejectedRequestError(
                413,
                f"the response must have at most {MAX_BYTES_OF_ANSWER} bytes. Received: {rows} "
                f"examples, whose response may have {size} bytes. Send at most "
                f"{MAX_BYTES_OF_ANSWER // bytes_per_row} examples",
            )


async def respond(make: Callable[[], bytes], truncated: Sequence[int] = ()) -> Response:
    """Returns a JSON response. Its headers list the truncated texts.

    The JSON is written in a separate thread, so a long response does not block other requests.

    Args:
        make: Returns the JSON.
        truncated: The indices of the truncated texts.

    Raises:
        RejectedRequestError: If the response is too large, or contains infinities or NaN.
    """
    indices = ",".join(map(str, truncated[:_MAX_TRUNCATED_INDICES]))
    values = (indices, str(len(truncated))) if truncated else ()
    headers = dict(zip(TRUNCATED_HEADERS, values, strict=False))
    try:
        return Response(await asyncio.to_thread(make), headers=headers, media_type=JSON)
    except RequestError as error:
        raise RejectedRequestError(413, str(error)) from error
    except ValueError as error:
        raise NotFiniteError from error


def respond_with_error(
    content: Mapping[str, Any], error: HTTPException, status: int | None = None
) -> Response:
    """Returns a JSON response for an error.

    Args:
        content: The JSON. It may quote characters that UTF-8 cannot represent.
        error: The error.
        status: The status code. Defaults to the error's.
    """
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status or error.status_code, headers=error.headers, media_type=JSON)


async def compute(
    request: Request, batcher: Batcher, signature: str, rows: Sequence[Row]
) -> list[Row]:
    """Computes the predictions for examples.

    Raises:
        RejectedRequestError: If the queue is full, the client has disconnected, the examples are
            invalid, or the computation fails.
    """
    try:
        future = batcher.submit(signature, rows)
        answers = await _unless_disconnected(request, asyncio.wrap_future(future))
    except QueueFullError as error:
        raise _busy(error) from error
    except Exception as error:
        if _is_of_request(error):
            raise RejectedRequestError(400, _reason(error)) from error
        logging.exception("a batch failed")
        raise RejectedRequestError(500, f"{type(error).__name__}: {error}"[:1000]) from error
    if answers is None:
        raise RejectedRequestError(_CLIENT_CLOSED_REQUEST, "the client closed the connection")
    return answers


def _busy(error: QueueFullError) -> RejectedRequestError:
    return RejectedRequestError(503, str(error), {"Retry-After": "1"})


async def _unless_disconnected(request: Request, future: asyncio.Future[Any]) -> Any:
    """Waits for a future. If the client disconnects, cancels the future and returns `None`."""

    async def disconnection() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.ensure_future(disconnection())
    try:
        await asyncio.wait((future, gone), return_when=asyncio.FIRST_COMPLETED)
        return await future if future.done() else None
    finally:
        gone.cancel()
        future.cancel()


def _is_of_request(error: Exception) -> bool:
    """Returns whether the request, rather than the server, caused a model's error."""
    return isinstance(error, ValueError) or type(error).__name__ == "InvalidArgumentError"


def _reason(error: Exception) -> str:
    """Returns an error's message, or only the assertion's message if TensorFlow's check failed."""
    match = re.search(r"assertion failed: \[(.*?)\]", str(error))
    return match[1] if match else str(error).strip()[:1000]
