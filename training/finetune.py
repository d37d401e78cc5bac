# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on labeled data, reports its scores, and exports it.

On your own file:

    python -m training.finetune --train_file=reviews.tsv --text=review --label=stars
    python -m training.finetune --train_file=train.conll --dev_file=dev.conll
    python -m training.finetune --train_file=train-v2.0.json --dev_file=dev-v2.0.json

The task is inferred from the file, or set by --task:

    classification      texts and labels in TSV, CSV, JSON Lines, a JSON array, Parquet or .xlsx
    pairs               the same with two texts, in --text and --text_pair
    regression          the same with one or two texts, and numbers as labels
    multi_label         the same with any number of labels per text, in a list or in columns of 0
                        and 1, such as --label=toxic,insult
    few_shot            texts with labels, about eight per class. The encoder is trained on all
                        pairs of texts, followed by a logistic regression, as in SetFit
    tagging             words and labels in columns, as in the CoNLL shared tasks, or in JSON lists
    question_answering  SQuAD 1.1 or 2.0 JSON, TriviaQA's JSON with its documents, or a table with
                        question, context and answers, as in Hugging Face's squad
    multiple_choice     SWAG's CSV, CODAH's TSV, or JSON with text, choices and label, or with the
                        fields of CommonsenseQA, ARC, OpenBookQA, COPA, RACE, DREAM, Cosmos QA or
                        QuAIL
    ranking             a directory, --data_dir, with the documents, queries and qrels of Cranfield,
                        a BEIR collection or MS MARCO. An encoder re-ranks the BM25 results. If each
                        split has qrels, such as qrels/train.tsv and qrels/test.tsv, the first split
                        is used for training and the last for scoring

GLUE tasks, such as --task=sst2, are read from their download in --data_dir. A recipe sets multiple
flags, and you can override each of them:

    python -m training.finetune --recipe=minilm_sst2 --data_dir=glue --epochs=1

--learning_rate, --batch_size, --epochs, --warmup, --weight_decay, --layer_decay, --dropout,
--encoder_dropout and --sequence_length accept lists. Each combination is trained, and the best one
on the validation data is kept. The learning rates, batch sizes and numbers of epochs in the BERT
paper are

    python -m training.finetune --train_file=reviews.tsv --text=review --label=stars \\
        --learning_rate=5e-5,3e-5,2e-5 --batch_size=16,32 --epochs=2,3,4

--preset can be a fine-tuning run, whose encoder and head are trained further. For example, train on
TriviaQA, then on SQuAD, as in section 4.2 of the BERT paper:

    python -m training.finetune --train_file=train-v1.1.json --dev_file=dev-v1.1.json \\
        --preset=runs/triviaqa

Ctrl-C and SIGTERM stop the command after a checkpoint. The same command resumes an interrupted run
from the last checkpoint, and ends with the same weights and scores. Finished seeds are not trained
again. The output directory may contain other files, but not with the names of the written files.

Files written to `output_dir`: for each seed, the best model (`seed_N/model.keras`) and the curves
of loss and metrics (`seed_N/curves.png`); `results.json`; a SavedModel that accepts text
(`export/1`); and the predictions of the best seed for the test file (`predictions.tsv`). Tagging
writes the predictions for both files as `dev.conll` and `test.conll`, in the last column, and the
scores by entity type (`dev_scores.json`, `test_scores.json`). Question answering writes the files
of the original BERT code: `predictions.json`, `nbest_predictions.json` and, if questions may be
unanswerable, `null_odds.json`. The same files for the test file are in `test`. Ranking writes
the rankings of the held-out queries by BM25, by the encoder and by both (`bm25.run`,
`reranked.run`, `combined.run`), their qrels (`held_out.qrels`), `scores.json` and `model.keras`. A
grid of hyperparameters writes its runs (`grid/*`), their scores (`grid.json`, `grid.md`) and a plot
(`grid.png`).
"""

from .engine import program
from .jobs import tasks


def main(arguments: list[str]) -> None:
    program.reject_arguments(arguments)
    task, config, grid = tasks.task_from_flags()
    if grid is None:
        task.run(config)
    else:
        task.run(config, grid=grid)


if __name__ == "__main__":
    tasks.define_flags()
    program.run(main, help=tasks.help_text)
