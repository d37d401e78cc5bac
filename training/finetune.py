# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on labeled data, reports its scores, and exports it.

On your own file:

    python -m training.finetune --train_file=reviews.tsv --text=review --label=stars
    python -m training.finetune --train_file=train.conll --dev_file=dev.conll
    python -m training.finetune --train_file=train-v2.0.json --dev_file=dev-v2.0.json

The file tells the task, or else --task names it:

    classification  texts and labels in TSV, CSV, JSON Lines, a JSON array, Parquet or .xlsx
    pairs           the same with two texts, in --text and --text_pair
    regression      the same, of a text or two, with labels that are numbers
    labels          texts with any number of labels for each: a list, or columns of 0 and 1, such as
                    --label=toxic,insult
    few_shot        texts with labels, some eight of each class: the encoder learns from all pairs
                    of them, below a logistic regression, as in SetFit
    tagging         words and labels in columns, as in CoNLL's shared tasks, or in lists, in JSON
    questions       SQuAD's JSON, version 1.1 or 2.0; rows with question, context and answers, as
                    Hugging Face's squad has them; TriviaQA's JSON with its documents
    choice          SWAG's CSV, CODAH's TSV, or JSON with text, choices and label, or with the
                    fields of CommonsenseQA, ARC, OpenBookQA, COPA, RACE, DREAM, Cosmos QA or QuAIL
    ranking         a folder, --data_dir, of documents, queries and qrels: those of Cranfield,
                    of a BEIR collection, or of MS MARCO; an encoder ranks BM25's results anew. Of
                    qrels by split, such as qrels/train.tsv and qrels/test.tsv, the first are
                    trained on, and the last scored

--task=sst2 and the other GLUE tasks are read from their download in --data_dir. With a recipe, any
value of which a flag can change:

    python -m training.finetune --recipe=minilm_sst2 --data_dir=glue --epochs=1

--preset may name a fine-tuning run, from whose encoder and head the next one goes on: TriviaQA,
then SQuAD, as in the paper's section 4.2.

    python -m training.finetune --train_file=train-v1.1.json --dev_file=dev-v1.1.json \\
        --preset=runs/triviaqa

Ctrl-C and SIGTERM end it after a checkpoint. If it is interrupted, the same command resumes from
the last checkpoint and ends with the same weights and scores. Seeds that are finished are not
trained again. The folder may have other files, but none of those that are written.

Files written to `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and metrics (`seed_N/curves.png`); `results.json`; a SavedModel that takes text (`export/1`);
and the best seed's predictions for the test file: `predictions.tsv`. Tagging writes those for both
files as `dev.conll` and `test.conll`, the predictions in the last column, with their scores by
entity type (`dev_scores.json`, `test_scores.json`); questions as BERT's released code,
`predictions.json`, `nbest_predictions.json` and, where questions may be unanswerable,
`null_odds.json`, and for the test file in the folder `test`. Ranking writes the rankings of
validation queries by BM25, by the encoder and by both (`bm25.run`, `reranked.run`, `combined.run`),
their qrels (`held_out.qrels`), `scores.json` and `model.keras`.
"""

from .engine import program
from .jobs import tasks


def main(arguments: list[str]) -> None:
    program.reject_arguments(arguments)
    task, config = tasks.task_from_flags()
    task.run(config)


if __name__ == "__main__":
    tasks.define_flags()
    program.run(main, help=tasks.help_text)
