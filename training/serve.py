# SPDX-License-Identifier: Apache-2.0
"""Serves trained models over HTTP, with multiple protocols.

    python -m training.serve --model=runs/reviews/export/1
    python -m training.serve --model=runs/reviews/seed_1/model.keras --port=0
    python -m training.serve --model=minilm,sst2=export/sst2
    curl http://127.0.0.1:8501/v1/models/model:predict -d '{"instances": ["a gripping film"]}'

A model is a directory written by `export`, a task's `.keras` file, or a checkpoint. In a directory
of versions, the newest version is served, also if it is added later. On the JAX and PyTorch
backends, only exports require TensorFlow. A SavedModel offers all its signatures, a task only
`serving_default`. Requests that arrive together are batched by similar text length.
Ctrl-C or SIGTERM stops the server after it has responded to all received requests.

    POST /v1/embeddings, GET /v1/models             OpenAI's API
    POST /v1/rerank, /v2/rerank                     Cohere's and Jina's API
    POST /embed, /similarity, /predict, /rerank     Text Embeddings Inference's API, also with
    POST /tokenize, /decode; GET /info, /health     the prefix /models/NAME
    POST /, /models/NAME                            Hugging Face's API, also for zero-shot labels
    POST /v1/models/NAME[/versions/N]:predict       TensorFlow Serving's REST API
    GET  /v1/models/NAME[/versions/N][/metadata]    a model's status and signatures
    GET  /v2/health/ready, /v2/health/live          health
    GET  /metrics                                   Prometheus metrics
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shlex
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keras_bert import minilm

from .engine import example_request, output_directory, program, saved_models
from .engine.options import (
    PositiveFloat,
    PositiveInt,
    num_cores,
)
from .serving.address import API_KEY, LIBRARIES, Listener, ServerConfig, listening
from .serving.signatures import DEFAULT_BATCH_SIZE, DEFAULT_SIGNATURE

if TYPE_CHECKING:
    from .serving.metrics import Metrics
    from .serving.models import LoadedModel
    from .serving.server import ModelServer

# A model's name and path. The name may have slashes, as in sentence-transformers/all-MiniLM-L6-v2.
_NAMED = re.compile(r"(?![A-Za-z]:[/\\])([^/.~\\=][^\\=]*)=(.*)", re.DOTALL)
# Default batch size for tasks on JAX. The server compiles every batch size before it is ready.
_JAX_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True)
class ServeConfig(ServerConfig):
    """The models and the limits.

    Args:
        model: A directory written by export, a directory of such versions (1, 2, …), a .keras file,
            or a checkpoint (minilm, hf://organization/model or its directory). Multiple .keras
            files, separated by commas or matched by a pattern such as seed_*/model.keras, form an
            ensemble. NAME=PATH sets the model's name in requests, and NAME=PATH,NAME=PATH serves
            multiple models, or one model by multiple names.
        threads: Number of threads. Each computes one batch at a time. Defaults to one per core for
            an export, and to one for a .keras file.
        batch_size: Maximum number of examples in a batch. Defaults to 32, or to 8 on JAX, because
            it compiles every batch size.
        max_rows: Maximum number of examples in a request.
        max_bytes: Maximum request size in bytes.
        max_waiting_rows: Maximum number of waiting examples. Further requests get status 503.
        request_timeout: Maximum number of seconds for a request, including its body. Slower
            requests get status 504, and their waiting examples are not computed. Defaults to no
            limit.
        auto_truncate: Whether to truncate overlong texts. By default, they are an error, unless the
            request has TEI's truncate. TensorFlow Serving's endpoints always truncate.
    """

    model: str = ""
    threads: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    max_rows: PositiveInt = 2048
    max_bytes: PositiveInt = 4_000_000
    max_waiting_rows: PositiveInt = 4096
    request_timeout: PositiveFloat | None = None
    auto_truncate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        named_models(self.model)
        if self.max_waiting_rows < self.max_rows:
            raise ValueError(
                f"--max_waiting_rows must be at least --max_rows, {self.max_rows}, because larger "
                f"requests could never wait. Received: {self.max_waiting_rows}"
            )


def main(config: ServeConfig) -> None:
    program.require(LIBRARIES, "serve")
    with listening(config) as listener:
        server = load(config)
        try:
            serve(config, server, listener)
        finally:
            server.close()
    print("stopped", flush=True)


def serve(config: ServeConfig, server: ModelServer, listener: Listener) -> None:
    """Serves models until a signal stops the process, then finishes the received requests."""
    from .serving.application import application

    own = application(
        server,
        is_local=listener.is_local,
        api_key=config.key,
        allowed_origins=config.allowed_origins,
        access_log=listener.access_log,
    )
    listener.run(own, ready_text(config, server, listener.address))


def named_models(model: str) -> dict[str, str]:
    """Parses `--model` into the path of each model, by name.

    Raises:
        ValueError: If a name is invalid, or if two models have the same name.

    Example:

    >>> named_models("sst2=runs/sst2/export/1,squad=a.keras,b.keras")
    {'sst2': 'runs/sst2/export/1', 'squad': 'a.keras,b.keras'}
    >>> named_models("minilm,hf://dslim/bert-base-NER")
    {'minilm': 'minilm', 'dslim/bert-base-NER': 'hf://dslim/bert-base-NER'}
    """
    paths: dict[str, str] = {}
    name = example_request.DEFAULT_NAME
    for part in [model] if Path(model).exists() else model.split(","):
        match = _NAMED.fullmatch(part)
        if preset := _preset_name(part):
            match = _NAMED.fullmatch(f"{preset}={part}")
        if match is None or _is_path(part, match[2]):  # `part` is an ensemble member.
            paths[name] = f"{paths[name]},{part}" if name in paths else part
            continue
        name, path = match.groups()
        is_name = all(name.split("/")) and set(":?#%").isdisjoint(name) and name.isprintable()
        if name in paths or not is_name:
            raise ValueError(
                f"--model must give each model a unique name without : ? # %. Received: {name!r}"
            )
        paths[name] = path
    return paths


def _preset_name(part: str) -> str:
    """Returns the name of `minilm` or a Hub ID in requests, or `""` for other models."""
    if part == minilm.NAME:
        return "" if Path(part).exists() else part
    is_hub = part.startswith(saved_models.HUB_SCHEME)
    return part.removeprefix(saved_models.HUB_SCHEME).partition("@")[0] if is_hub else ""


def _is_path(part: str, right: str) -> bool:
    """Returns whether all of `runs/lr=1/model.keras` is a path, even if it is misspelled."""
    if saved_models.exists(part):
        return True
    return Path(part.split("/")[0]).is_dir() and not saved_models.exists(right)


def load(config: ServeConfig) -> ModelServer:
    """Loads the models and warms them up, because the first request of each size is slow."""
    names: dict[str, list[str]] = {}
    for name, path in named_models(config.model).items():
        names.setdefault(path, []).append(name)
    versions = {path: saved_models.newest_version(Path(path)) for path in names}
    for path, version in versions.items():  # Fail before TensorFlow is loaded.
        if saved_models.is_preset(path):
            program.check_preset(path)
        else:
            saved_models.model_files(str(version or path), exported=True)
    from .serving.metrics import Metrics
    from .serving.server import ModelServer
    from .serving.versions import VersionWatcher

    if any(saved_models.is_export(version or Path(path)) for path, version in versions.items()):
        # Throughput is highest if each matmul uses one core, and multiple matmuls run in parallel.
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    program.import_quietly()
    metrics = Metrics()

    def load_names(path: str, names: Sequence[str]) -> dict[str, LoadedModel]:
        model = _load_model(config, names[0], path, metrics)
        return {name: dataclasses.replace(model, name=name) for name in names}

    models = {}
    for path, version in versions.items():
        models |= load_names(str(version or path), names[path])
    server = ModelServer(
        {name: models[name] for name in named_models(config.model)},
        metrics,
        config.max_rows,
        config.max_bytes,
        auto_truncate=config.auto_truncate,
        request_timeout=config.request_timeout,
    )
    for path, version in versions.items():
        if version is not None:
            server.watchers.append(
                VersionWatcher(
                    version,
                    functools.partial(saved_models.newest_version, Path(path)),
                    lambda new, own=names[path]: server.replace(load_names(str(new), own)),
                )
            )
    return server


def _load_model(config: ServeConfig, name: str, path: str, metrics: Metrics) -> LoadedModel:
    from . import predict
    from .serving.batching import Batcher
    from .serving.models import LoadedModel, answers_of_saved_model, answers_of_task
    from .serving.signatures import warm_up

    model, fields = predict.load_model(path)
    truncated_rows = predict.find_truncated_rows(model)
    batch_size, threads, longest, compiles = config.batch_size, config.threads, 500, False
    if hasattr(model, "signatures"):
        answers = answers_of_saved_model(model)
        threads = threads or num_cores()
    else:
        from keras_bert.ops.dispatch import compiles_each_shape

        answers = answers_of_task(model, fields.names, fields.optional)
        threads = threads or 1
        longest = model.preprocessor.sequence_length
        compiles = compiles_each_shape()
    batch_size = batch_size or (_JAX_BATCH_SIZE if compiles else DEFAULT_BATCH_SIZE)
    sizes = [1 << power for power in range(batch_size.bit_length())]
    if truncated_rows is not None:
        truncated_rows.is_reported = True
    warm_up(answers.texts, sizes, longest, compiles=compiles)
    if truncated_rows is not None:
        truncated_rows.reset()  # From now on, the first truncated example causes a warning.
    batcher = Batcher(
        answers.compute,
        threads=threads,
        batch_size=batch_size,
        max_waiting=config.max_waiting_rows,
        report=functools.partial(metrics.add_batch, name),
    )
    metrics.add_model(
        name,
        lambda: batcher.waiting,
        None if truncated_rows is None else lambda: int(truncated_rows.num_truncated),
    )
    directory = Path(path).absolute().name
    version = directory if directory.isdecimal() else "1"
    return LoadedModel(**vars(answers), name=name, version=version, batcher=batcher)


def ready_text(config: ServeConfig, server: ModelServer, address: str) -> str:
    """Returns the startup message: the models' URLs and an example request."""
    paths = named_models(config.model)
    urls = {name: f"{address}/v1/models/{urllib.parse.quote(name)}" for name in paths}
    lines = [
        f"serving {path} at {urls[name]}"
        + f" (version {server.models[name].version})"
        * bool(saved_models.newest_version(Path(path)))
        for name, path in paths.items()
    ]
    name, path = next(iter(paths.items()))
    curl = "curl"
    if config.unix_socket:
        curl += f" --unix-socket {shlex.quote(config.unix_socket)}"
    if config.key:
        curl += f' -H "Authorization: Bearer ${API_KEY}"'
    return "\n".join(
        [
            *lines[:-1],
            f"{lines[-1]}; ready, press Ctrl-C to stop",
            f"metrics {address}/metrics",
            example_request.curl_command(
                tuple(server.models[name].signatures[DEFAULT_SIGNATURE].inputs),
                urls[name],
                curl,
                **output_directory.load_results(path).get("example", {}),
            ),
        ]
    )


if __name__ == "__main__":
    program.run(main, ServeConfig)
