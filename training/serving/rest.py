# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's REST API for one model, as an ASGI application.

Its addresses, JSON, errors and status codes are those of the server's `http_rest_api_handler.cc`
and `json_tensor.cc`. Health is asked as in the protocol V2 of KServe and Triton.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import prometheus_client
from absl import logging
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from .batching import Batcher, QueueFullError
from .metrics import Metrics
from .requests import RequestError, read_request, write_answer
from .signatures import Signature, Tensor

_SECONDS_FOR_BODY = 60.0
# Bytes of all requests that are being read or wait
_MAX_BYTES_IN_MEMORY = 256 * 2**20
# How much of a request that is too large is read before it is refused, as a multiple of the bound
_READ_BEFORE_REFUSAL = 8
_CLIENT_CLOSED_REQUEST = 499
_JSON = "application/json"


@dataclasses.dataclass(frozen=True)
class ModelServer:
    """A model behind TensorFlow Serving's REST API.

    Args:
        name: The name in its address.
        version: The version, a number.
        signatures: What answers, by name.
        batcher: Computes rows.
        metrics: What is measured.
        max_rows: The largest number of rows in a request.
        max_bytes: The largest size of a request.
    """

    name: str
    version: str
    signatures: Mapping[str, Signature]
    batcher: Batcher
    metrics: Metrics
    max_rows: int
    max_bytes: int

    def application(self) -> Starlette:
        """Returns the ASGI application."""
        reader = _BodyReader(self.max_bytes)

        async def predict(request: Request) -> Response:
            start = time.perf_counter()
            try:
                response = await self._predict(request, reader)
            except HTTPException as error:
                response = _error(error.status_code, error.detail, error.headers)
            self.metrics.requests.labels(str(response.status_code)).inc()
            self.metrics.request_seconds.observe(time.perf_counter() - start)
            return response

        async def status(request: Request) -> Response:
            self._check_address(request)
            available = {"error_code": "OK", "error_message": ""}
            version = {"version": self.version, "state": "AVAILABLE", "status": available}
            return _json({"model_version_status": [version]})

        async def metadata(request: Request) -> Response:
            self._check_address(request)
            spec = {"name": self.name, "signature_name": "", "version": self.version}
            signatures = {name: _metadata(value) for name, value in self.signatures.items()}
            return _json(
                {
                    "model_spec": spec,
                    "metadata": {"signature_def": {"signature_def": signatures}},
                }
            )

        async def live(request: Request) -> Response:
            return _json({"live": True})

        async def ready(request: Request) -> Response:
            return _json({"ready": True})

        async def metrics(request: Request) -> Response:
            return Response(
                self.metrics.text(), headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
            )

        register_url_convertor("model", _ModelName())
        model = "/v1/models/{name:model}"
        return Starlette(
            routes=[
                *(
                    Route(f"{prefix}{suffix}", handler, methods=methods)
                    for prefix in (model, f"{model}/versions/{{version}}")
                    for suffix, handler, methods in (
                        (":predict", predict, ["POST"]),
                        ("/metadata", metadata, ["GET"]),
                        ("", status, ["GET"]),
                    )
                ),
                Route("/v2/health/live", live),
                Route("/v2/health/ready", ready),
                Route("/metrics", metrics),
            ],
            exception_handlers={HTTPException: _http_error, Exception: _internal_error},
        )

    def _check_address(self, request: Request) -> None:
        """Refuses other models and versions."""
        version = request.path_params.get("version", self.version)
        if (request.path_params["name"], version) != (self.name, self.version):
            received = request.url.path
            raise HTTPException(
                404, f"received {received}; the model is {self.name}, version {self.version}"
            )

    async def _predict(self, request: Request, reader: _BodyReader) -> Response:
        self._check_address(request)
        async with reader.body(request) as body:
            try:
                received = read_request(body, self.signatures, self.max_rows)
                future = self.batcher.submit(received.signature, received.rows)
                answers = await _unless_disconnected(request, asyncio.wrap_future(future))
            except RequestError as error:
                raise HTTPException(400, str(error)) from error
            except QueueFullError as error:
                raise HTTPException(503, str(error), {"Retry-After": "1"}) from error
            except Exception as error:
                if _is_of_request(error):
                    raise HTTPException(400, _reason(error)) from error
                logging.exception("a batch could not be computed")
                raise HTTPException(500, f"{type(error).__name__}: {error}"[:1000]) from error
        if answers is None:
            return _error(_CLIENT_CLOSED_REQUEST, "the client has closed the connection")
        try:
            content = write_answer(received, answers, self.signatures[received.signature].count)
        except RequestError as error:
            raise HTTPException(413, str(error)) from error
        except ValueError as error:
            raise HTTPException(
                500, "the model returned a number that is not finite, and JSON has none such"
            ) from error
        return Response(content, media_type=_JSON)


class _ModelName(StringConvertor):
    """A name in an address, up to the colon before a verb."""

    regex = "[^/:]+"


class _BodyReader:
    """Reads the bodies of requests, and bounds the memory of all of them together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._in_memory = 0

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> Any:
        """Reads a body, whose size counts until the block ends.

        Raises:
            HTTPException: If it is too large or compressed, or does not arrive in time.
        """
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise HTTPException(415, f"the body is encoded with {encoding}; expected plain JSON")
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
                            self._in_memory += len(chunk)
                        # While it sends, a client does not read the answer.
                        if size > _READ_BEFORE_REFUSAL * self._max_bytes:
                            break
                        if self._in_memory > _MAX_BYTES_IN_MEMORY:
                            raise HTTPException(
                                503,
                                f"the requests that wait have over {_MAX_BYTES_IN_MEMORY} bytes",
                                {"Retry-After": "1"},
                            )
            except TimeoutError as error:
                raise HTTPException(
                    408, f"the body did not arrive in {_SECONDS_FOR_BODY:.0f} s"
                ) from error
            except ClientDisconnect as error:
                raise HTTPException(
                    _CLIENT_CLOSED_REQUEST, "the client has closed the connection"
                ) from error
            if size > self._max_bytes:
                raise HTTPException(413, f"the request has more than {self._max_bytes} bytes")
            yield b"".join(chunks)
        finally:
            self._in_memory -= in_memory


async def _unless_disconnected(request: Request, future: asyncio.Future[Any]) -> Any:
    """Waits for a future; cancels it, and returns `None`, if the client has gone."""

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
    """Returns whether an error of the model is about what it was asked."""
    return isinstance(error, ValueError) or type(error).__name__ == "InvalidArgumentError"


def _reason(error: Exception) -> str:
    """Returns the message of an error; of one of a TensorFlow graph, that of its check."""
    found = re.search(r"assertion failed: \[(.*?)\]", str(error))
    return found[1] if found else str(error).strip()[:1000]


def _metadata(signature: Signature) -> dict[str, Any]:
    def tensors(named: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            name: {
                "dtype": tensor.dtype,
                "tensor_shape": {
                    "dim": [{"size": str(size), "name": ""} for size in tensor.shape],
                    "unknown_rank": False,
                },
                "name": name,
            }
            for name, tensor in named.items()
        }

    return {
        "inputs": tensors(signature.inputs),
        "outputs": tensors(signature.outputs),
        "method_name": "tensorflow/serving/predict",
    }


def _json(content: Any) -> Response:
    return Response(json.dumps(content, indent=1), media_type=_JSON)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    content = json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status, headers=headers, media_type=_JSON)


async def _http_error(request: Request, error: Any) -> Response:
    message = error.detail
    if error.status_code == 404 and message == "Not Found":
        message = (
            f"received {request.method} {request.url.path}; expected POST "
            "/v1/models/NAME:predict, GET /v1/models/NAME or /v1/models/NAME/metadata, "
            "/v2/health/ready, /v2/health/live or /metrics"
        )
    if error.status_code == 405:
        allowed = error.headers["Allow"]
        message = f"received {request.method} for {request.url.path}; expected {allowed}"
    return _error(error.status_code, message, error.headers)


async def _internal_error(request: Request, error: Exception) -> Response:
    logging.error("%s: %r", request.url.path, error)
    return _error(500, f"{type(error).__name__}: {error}")
