# SPDX-License-Identifier: Apache-2.0
"""Pre-trains an encoder on raw text, and continues where it was stopped.

On text of your own, in one command: a vocabulary, records, and the training itself:

    python -m training.pretrain --input_files=corpus --format=paragraphs --output_dir=runs/mine \
        --model=bert_small_uncased --num_steps=100000 --warmup_steps=1000

By a recipe, with any of its values changed by a flag:

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=wikitext-2

Killed at any moment and started again with the same command, it continues from its last
checkpoint, and ends with the same weights, bit for bit, as one never killed (on a GPU: with
--deterministic).

It writes into `output_dir`: the vocabulary and the records, if it made them; the last checkpoints;
`log.jsonl`, a line for each interval; `curves.png`; in the end `results.json`, and `preset`, the
model that `from_preset` of every task reads.
"""

import json
from pathlib import Path

from .engine import child_programs, config_flags, output_folder, program
from .pretraining.config import PretrainConfig


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    program.import_quietly()
    from .engine.run_checkpoints import NotFiniteError
    from .pretraining import pretraining_run
    from .pretraining.run import pretrain

    config = config_flags.configuration(PretrainConfig)
    program.require(("matplotlib",), "pretraining")
    with output_folder.claimed(config.output_dir):
        try:
            results = pretrain(config)
        except NotFiniteError as error:
            raise ValueError(
                f"{error}; the last checkpoint is kept. A lower --learning_rate or more "
                "--warmup_steps, in another --output_dir, may help"
            ) from error
    print(json.dumps({name: results[name] for name in ("parameters", "last", "total")}, indent=2))
    folder = Path(config.output_dir)
    print(f"\npreset   {folder / 'preset'}\ncurves   {folder / pretraining_run.CURVES_FILE}")
    print(
        f"\nNext: {child_programs.typed('finetune')} --preset={folder / 'preset'} --train_file=FILE"
    )
    if results["collapsed"]:
        print(f"\nWARNING: {pretraining_run.collapse_warning(results['last'])}")


if __name__ == "__main__":
    config_flags.define_program_flags(PretrainConfig)
    program.run(main)
