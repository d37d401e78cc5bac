# SPDX-License-Identifier: Apache-2.0
"""Pre-trains an encoder on raw text, and resumes interrupted runs.

To create a vocabulary and records from your own text and train on them:

    python -m training.pretrain --input_files=corpus --format=paragraphs --output_dir=runs/mine \\
        --model=bert_small_uncased --num_steps=100000

To use a recipe, whose values you can override with flags:

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=wikitext-2

Ctrl-C and SIGTERM stop the run after a checkpoint. The same command resumes from the last
checkpoint and ends with the same weights, bit for bit, as an uninterrupted run (on a GPU, with
--deterministic).

On multiple hosts (JAX), start the same command on each host with its process ID. output_dir must be
a shared directory. The run is equivalent to a run on one host, and you can resume it with a
different number of hosts:

    python -m training.pretrain … --coordinator=host0:1234 --num_processes=2 --process_id=0
    python -m training.pretrain … --coordinator=host0:1234 --num_processes=2 --process_id=1

Files written to `output_dir`: the vocabulary and the records, unless they are given; the latest
checkpoints, with a part from each process in a multi-host run; `log.jsonl`, with a line per
interval; `curves.png`; and at the end `results.json` and `preset`, for the `from_preset` method of
every task.
"""

from pathlib import Path

from .engine import program
from .pretraining.config import PretrainConfig


def main(config: PretrainConfig) -> None:
    program.import_quietly("keras")
    from .engine import hosts
    from .engine.output_directory import NotFiniteError
    from .pretraining.report import report
    from .pretraining.run import pretrain

    program.require(("matplotlib",), "pretraining")
    with (
        program.joined_hosts(config.hosts, config.compute),
        program.locked_by_main_process(config, "pretrain"),
    ):
        try:
            results = pretrain(config)
        except NotFiniteError as error:
            raise ValueError(
                f"{error}. The last checkpoint is kept. Try a lower --learning_rate or more "
                "--warmup_steps, with another --output_dir"
            ) from error
    if hosts.is_main_process():
        print(report(results, Path(config.output_dir)))


if __name__ == "__main__":
    program.run(main, PretrainConfig, with_recipes=True)
