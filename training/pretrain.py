# SPDX-License-Identifier: Apache-2.0
"""Pre-trains an encoder on raw text, and resumes where it was interrupted.

On your own text, in one command that makes a vocabulary and records, and trains on them:

    python -m training.pretrain --input_files=corpus --format=paragraphs --output_dir=runs/mine \\
        --model=bert_small_uncased --num_steps=100000

With a recipe, any value of which a flag can change:

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=wikitext-2

Ctrl-C and SIGTERM end it after a checkpoint. The same command resumes from the last one and ends
with the same weights, bit for bit, as an uninterrupted run (on a GPU: with --deterministic).

On several hosts (JAX), start the same command on each, with the place of its process; output_dir is
a folder that they share. The run is that of one host, and may go on with another number of them:

    python -m training.pretrain … --coordinator=host0:1234 --num_processes=2 --process_id=0
    python -m training.pretrain … --coordinator=host0:1234 --num_processes=2 --process_id=1

Files written to `output_dir`: the vocabulary and the records, unless they were given; the latest
checkpoints, of which each process on several hosts writes its part; `log.jsonl`, with a line for
each interval; `curves.png`; and at the end `results.json` and `preset`, a preset that `from_preset`
of every task loads.
"""

from pathlib import Path

from .engine import program
from .pretraining.config import PretrainConfig


def main(config: PretrainConfig) -> None:
    program.import_quietly("keras")
    from .engine import hosts
    from .engine.output_folder import NotFiniteError
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
                f"{error}; the last checkpoint is kept. Try a lower --learning_rate or more "
                "--warmup_steps, with another --output_dir"
            ) from error
    if hosts.is_main_process():
        print(report(results, Path(config.output_dir)))


if __name__ == "__main__":
    program.run(main, PretrainConfig, with_recipes=True)
