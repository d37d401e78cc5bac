# SPDX-License-Identifier: Apache-2.0
"""The first step of BERT's best SQuAD system: TriviaQA's Wikipedia documents with BERT-large.

    python -m training.finetune --recipe=bert_large_triviaqa --data_dir=triviaqa-rc

`--data_dir` is the TriviaQA download, with `qa` and `evidence`. The model is trained on the first
400 words of each document that contain an answer. The paper (section 4.2, a footnote) uses 400
tokens. It does not give the learning rate and epochs of this step, so the recipe uses the paper's
values for SQuAD. The second step is the recipe `bert_large_triviaqa_squad`.

Score and time: not run here.
Hardware: one GPU.
"""

from ...jobs.question_answering import SquadConfig

CONFIG = SquadConfig.from_flags(
    train_file="qa/wikipedia-train.json",
    dev_file="qa/wikipedia-dev.json",
    max_document_words=400,
    preset="hf://google-bert/bert-large-uncased",
    epochs=3,
    batch_size=32,
    learning_rate=5e-5,
    export=False,
    output_dir="runs/bert_large_triviaqa",
)
