# SPDX-License-Identifier: Apache-2.0
"""What is done where the backend is TensorFlow: a task read from its files, and exported."""

from __future__ import annotations

from pathlib import Path

from keras_bert.export.choice_signatures import choice_signatures
from keras_bert.export.classifier_signatures import classifier_signatures
from keras_bert.export.destination import NEW
from keras_bert.export.embedding_signatures import embedding_signatures
from keras_bert.export.ids_model import write_ids_model
from keras_bert.export.job import read_options, read_task
from keras_bert.export.question_signatures import question_signatures
from keras_bert.export.saved_model import write_saved_model
from keras_bert.export.tagging_signatures import tagging_signatures

# For each kind of task, what makes the functions of its SavedModel
SIGNATURES = {
    "multiple_choice": choice_signatures,
    "question_answerer": question_signatures,
    "text_classifier": classifier_signatures,
    "text_embedder": embedding_signatures,
    "token_classifier": tagging_signatures,
}


def run_job(folder: Path) -> None:
    """Exports the task in a working folder of `new_destination`.

    Args:
        folder: Holds what `write_task` and `write_options` wrote.

    Raises:
        ExportError: If a server could not run the model.
    """
    options = read_options(folder)
    task = read_task(folder, options.dtype)
    path = folder / NEW / options.name
    if options.format == "tf_saved_model":
        write_saved_model(task, path, options, SIGNATURES[options.kind](task, options))
    else:
        write_ids_model(task, path, options)
