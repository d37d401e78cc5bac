# SPDX-License-Identifier: Apache-2.0
"""Creates records on an object store. A separate process serves the S3 protocol."""

import gzip
import importlib.util
import json
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.backend_independent

pytest.importorskip("apache_beam")
for name in ("boto3", "moto"):
    if not importlib.util.find_spec(name):
        pytest.skip(f"{name} is not installed", allow_module_level=True)

from apache_beam.io.aws.clients.s3.boto3_client import Client  # noqa: E402
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402

from keras_bert.data.file_systems import find_files  # noqa: E402
from training.create_pretraining_data import CreatePretrainingDataConfig  # noqa: E402
from training.pretraining import beam_files  # noqa: E402
from training.pretraining.records import create_records  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "rain", "sun", "snow"]


@pytest.fixture(scope="module")
def endpoint():
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    yield next(filter(None, (re.search(r"http://\S+:\d+", line) for line in server.stderr)))[0]
    server.terminate()
    server.communicate()


@pytest.fixture
def options(endpoint, monkeypatch):
    """The options of Beam's file systems. They are given only on the command line."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return (
        *(f"--s3_endpoint_url={endpoint}", "--s3_region_name=us-east-1"),
        *("--s3_access_key_id=test", "--s3_secret_access_key=test"),
    )


@pytest.fixture
def store(options):
    """A bucket with 24 documents in two files, one of them in a subdirectory, and an empty file."""
    store = Client(PipelineOptions(options)).client
    store.create_bucket(Bucket="bucket")
    weather = TOKENS[-3:]
    texts = [f"{weather[n % 3]} {weather[n // 3 % 3]} .\n{weather[n // 9]} ." for n in range(24)]
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    for name, content in {
        "corpus/a.jsonl.gz": gzip.compress("".join(lines[:9]).encode()),
        "corpus/more/b.txt": "\n\n".join(texts[9:]).encode(),
        "corpus/_SUCCESS": b"",
    }.items():
        store.put_object(Bucket="bucket", Key=name, Body=content)
    yield store
    for name in key_names(store):
        store.delete_object(Bucket="bucket", Key=name)
    store.delete_bucket(Bucket="bucket")


def key_names(store, prefix=""):
    items = store.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    return [item["Key"].removeprefix(prefix) for item in items]


def test_object_store_records_match_local_records(store, options, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    remote = CreatePretrainingDataConfig.from_flags(
        input_files=("s3://bucket/corpus",),
        vocabulary=str(tmp_path / "vocab.txt"),
        output_dir="s3://bucket/records",
        sequence_length=16,
        duplicate_factor=2,
        num_shards=1,
        independent_shards=True,
        num_workers=1,
        runner="FnApiRunner",
        runner_options=(*options, "--direct_running_mode=in_memory"),
    )
    summary = create_records(remote.records, remote.runner, remote.runner_options)
    assert summary["documents"] == 24
    shard = "pretraining-00000-of-00001.tfrecord"
    assert key_names(store, "records/") == ["lengths.png", shard, "summary.json"]

    corpus = tmp_path / "corpus"
    for name in ("a.jsonl.gz", "more/b.txt"):
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        store.download_file("bucket", f"corpus/{name}", corpus / name)
    local = remote.replace(
        input_files=(str(corpus),),
        output_dir=str(tmp_path / "records"),
    )
    create_records(local.records)
    remote_shard = store.get_object(Bucket="bucket", Key=f"records/{shard}")["Body"].read()
    assert remote_shard == (tmp_path / "records" / shard).read_bytes()
    assert len(remote_shard) > 1000


def test_find_files_on_object_store(store, options):
    beam_files.set_options(options)

    def names(pattern):
        urls = find_files(f"s3://bucket/{pattern}", beam_files.LISTING)
        return [file.path.removeprefix("s3://bucket/corpus/") for file in urls]

    for pattern in ("corpus", "corpus/**", "corpus/**/*.*"):
        assert names(pattern) == ["a.jsonl.gz", "more/b.txt"]
    assert names("corpus/**/b.txt") == names("corpus/more/*") == ["more/b.txt"]
    assert names("corpus/*") == names("corpus/a.jsonl.gz") == ["a.jsonl.gz"]
    assert names("corpus/n*") == []


def test_object_store_directory_writes_and_removes(store, options):
    beam_files.set_options(options)
    directory = beam_files.record_directory("s3://bucket/records")
    directory.write(".work/a.json", b"1")
    for content in (b"old", b"new"):
        directory.write(".work/b.json", content)
    directory.write("c.tfrecord", b"2")
    assert directory.read(".work/b.json") == b"new"
    assert directory.names(".work/*") == [".work/a.json", ".work/b.json"]
    directory.remove(".work")
    directory.remove("nothing")
    assert key_names(store, "records/") == ["c.tfrecord"]
    directory.remove("c.tfrecord")
    assert key_names(store, "records/") == []
