# SPDX-License-Identifier: Apache-2.0
"""Extractive question answering: SQuAD 1.1 and 2.0, TriviaQA, and your own files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.data.squad import QuestionExample

from ..engine.finetuning_config import SCORED_ROWS, LabeledFilesConfig
from ..engine.job import DevScores, Evaluation, InsightRows, Job, JobData, Training, finite
from ..engine.options import Fraction, NonNegativeInt, PositiveInt, check_one_of, check_unset
from ..readers.data_splits import stratified_sample
from ..readers.question_files import QuestionFile, check_document_words, read_questions
from ..readers.triviaqa import DocumentQuestion
from ..scores import question_scores, squad_scores
from ..scores.question_scores import GoldAnswers
from .report_configs import EvaluateConfig, InsightConfig

if TYPE_CHECKING:
    from keras_bert import QuestionAnswerer
    from keras_bert.tasks.answer_spans import AnswerSpans

    from ..plots import page
    from ..plots.span_view import AnsweredQuestion
    from ..scores.baselines import Baselines

# Maximum number of passage characters in memory at once during evaluation. SQuAD has fewer.
_CHARACTERS_AT_ONCE = 16_000_000
# The file names of the original BERT code
ANSWER_FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")


@dataclasses.dataclass(frozen=True)
class SquadConfig(LabeledFilesConfig):
    """Fine-tuning on questions: SQuAD's JSON, rows with its columns, or TriviaQA.

    Args:
        train_file: Training file: questions with answers.
        dev_file: Validation file, used to select the best epoch and, for SQuAD 2.0, the null
            threshold. Leave it empty with train_articles.
        test_file: Questions to predict after training. Optional.
        train_articles: Number of articles in train_file to train on, in the order of their titles.
            The other articles are the validation set, instead of dev_file. 0 trains on all
            articles.
        train_rows: Number of training questions to use, in a random stratified sample. 0 uses all.
        max_questions: Number of training questions to use from the start of the file, before
            train_rows takes its sample. 0 uses all.
        unanswerable: One of auto, yes and no: whether there are unanswerable questions, as in SQuAD
            2.0. auto looks for them in train_file.
        skip_invalid: Whether to skip and count invalid questions and missing documents, instead
            of raising an error.
        max_document_words: For TriviaQA, the number of words to read from the start of documents.
            Defaults to 800. 0 reads all. Documents without an answer in these words are not used
            for training.
        epochs: Number of passes over the training windows.
        batch_size: Number of windows per optimizer step.
        sequence_length: Maximum window length in tokens, including the question.
        doc_stride: Number of tokens between the starts of consecutive windows.
        max_query_length: Maximum question length in tokens. Longer questions are truncated.
        negative_fraction: Fraction of the negative windows to train on, in a random sample. A
            negative window does not contain the answer while another window of the same question
            does. Whole documents have many of them.
        n_best: Number of start and end positions to keep per window, and number of answers to write
            per question.
        max_answer_length: Maximum answer length in tokens.
        bilstm_units: Number of units per direction in a new BiLSTM between encoder and logits. 0
            adds no BiLSTM. By default, the checkpoint's layers are kept.
    """

    train_articles: NonNegativeInt = 0
    max_questions: NonNegativeInt = 0
    unanswerable: str = "auto"
    skip_invalid: bool = False
    max_document_words: NonNegativeInt | None = None
    epochs: PositiveInt = 3
    sequence_length: PositiveInt = 384
    doc_stride: PositiveInt = 128
    max_query_length: PositiveInt = 64
    negative_fraction: Fraction = 1.0
    n_best: PositiveInt = 20
    max_answer_length: PositiveInt = 30
    bilstm_units: NonNegativeInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, unanswerable=("auto", "yes", "no"))


@dataclasses.dataclass(frozen=True)
class SquadData(JobData):
    """Questions, as tuples of `QuestionExample`.

    Args:
        has_unanswerable: Whether questions may be unanswerable.
        skipped: Messages about the skipped parts of the files.
    """

    has_unanswerable: bool
    skipped: tuple[str, ...] = dataclasses.field(compare=False)

    @property
    def has_test_labels(self) -> bool:
        return bool(self.test) and all(one.answers is not None for one in self.test)


def read_data(config: SquadConfig) -> SquadData:
    """Reads and validates all files before training starts.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid. The message contains the article, the paragraph and the
            question.
    """
    if not config.train_file:
        raise ValueError("--train_file must be a file of questions. Received: no --train_file")
    if bool(config.dev_file) == bool(config.train_articles):
        raise ValueError(
            f"pass either --dev_file or --train_articles. Received: "
            f"--dev_file={config.dev_file} and --train_articles={config.train_articles}"
        )
    files = [_read(config, config.train_file)]
    train = _drop_unanswered(files[0].examples)
    if config.dev_file:
        files.append(_read(config, config.dev_file))
        dev = files[1].examples
    else:
        train, dev = split_by_title(train, config.train_articles)
    if config.test_file:
        files.append(_read(config, config.test_file, labeled=False))
    check_document_words(config, (file.examples for file in files))
    auto = files[0].has_unanswerable
    train = train[: config.max_questions or None]
    sample = stratified_sample([bool(one.answers) for one in train], config.train_rows)
    train = tuple(train[index] for index in sample)
    data = SquadData(
        train=train,
        dev=dev,
        test=files[-1].examples if config.test_file else None,
        has_unanswerable={"auto": auto, "yes": True, "no": False}[config.unanswerable],
        skipped=tuple(message for file in files for message in file.skipped),
    )
    _check(config, data)
    return data


def split_by_title(
    examples: Sequence[QuestionExample], count: int
) -> tuple[tuple[QuestionExample, ...], tuple[QuestionExample, ...]]:
    """Splits questions by article: the first `count` articles in the order of titles, and the rest.

    Raises:
        ValueError: If `count` is below 1, or not less than the number of articles.
    """
    titles = sorted({example.title for example in examples})
    if not 0 < count < len(titles):
        raise ValueError(
            f"--train_articles must be at least 1 and less than the {len(titles)} articles of "
            f"--train_file. Received: {count}"
        )
    first = set(titles[:count])
    return (
        tuple(example for example in examples if example.title in first),
        tuple(example for example in examples if example.title not in first),
    )


def _drop_unanswered(examples: tuple[QuestionExample, ...]) -> tuple[QuestionExample, ...]:
    """Removes questions on TriviaQA documents that do not contain an answer."""
    answerable = tuple(
        one for one in examples if one.answers or not isinstance(one, DocumentQuestion)
    )
    if len(answerable) < len(examples):
        logging.info(
            "%d of %d documents contain no answer and are not used for training",
            len(examples) - len(answerable),
            len(examples),
        )
    return answerable


def _check(config: SquadConfig, data: SquadData) -> None:
    for name, examples in (("train", data.train), ("dev", data.dev)):
        if not examples:
            raise ValueError(
                f"the files in {config.data_dir!r} must have at least one {name} question"
            )
        unanswered = [
            example.id
            for example in examples
            if not example.answers and not isinstance(example, DocumentQuestion)
        ]
        if unanswered and not data.has_unanswerable:
            raise ValueError(
                f"each {name} question must have an answer. Received: {unanswered[0]!r}, without "
                "an answer. Pass --unanswerable=yes to accept unanswerable questions"
            )


def _read(config: SquadConfig, name: str, labeled: bool = True) -> QuestionFile:
    return read_questions(
        config.path(name, "a file of questions"),
        labeled=labeled,
        skip_invalid=config.skip_invalid,
        max_document_words=config.max_document_words,
        encoding=config.encoding,
    )


def evaluate(config: EvaluateConfig, model: Any) -> Evaluation:
    """Scores a question answerer, or a file of its predictions, see `Job.evaluate`."""
    from ..plots import error_report
    from ..plots.span_view import write_span_view
    from ..readers import answer_files

    def read() -> tuple[QuestionExample, ...]:
        return read_questions(
            config.data_file,
            max_document_words=config.max_document_words,
            encoding=config.encoding,
        ).examples

    golds = question_scores.read_gold(config.data_file, config.encoding)
    golds.log_rule()
    reads_documents = config.model or config.plots_dir or config.report_dir
    if golds.data_set != "triviaqa" or not reads_documents:
        check_unset(config, ["max_document_words"], "no TriviaQA documents are read")
    if config.null_odds and not (config.predictions and golds.data_set == "squad_v2"):
        raise ValueError("--null_odds is only supported with --predictions on SQuAD 2.0")
    odds = squad_scores.read_null_odds(config.null_odds) if config.null_odds else None
    if config.predictions and Path(config.predictions).suffix == ".jsonl":
        texts = answer_files.answers_by_id(Path(config.predictions), answer_files.read_text)
    elif config.predictions:
        texts = squad_scores.read_predictions(config.predictions)
    else:
        examples, predictions, best = read(), [], []
        for part, spans in candidate_spans(model, examples):
            predictions += spans.answers([one.context for one in part], model.null_threshold)
            best += spans.best_scores.tolist()
        texts = question_scores.best_by_key(examples, [one["answer"] for one in predictions], best)
    unanswered = [gold.id for gold in golds.questions if gold.id not in texts]
    if unanswered and len(unanswered) == len(golds.questions):
        raise ValueError(
            f"{config.predictions} must have answers to the questions in {config.data_file}. "
            "Received: only answers with other ids"
        )
    if unanswered:
        logging.warning(
            "%s has no answers to %d of %d questions, such as %s",
            config.predictions,
            len(unanswered),
            len(golds.questions),
            unanswered[0],
        )
    if golds.data_set != "squad_v2":
        scores = golds.scores(texts)
    else:
        threshold = config.null_threshold
        scores = squad_scores.score_squad_v2(golds.questions, texts, odds, threshold)
        texts = squad_scores.with_null_threshold(texts, odds, threshold)
        scores |= squad_scores.score_klue(golds.questions, texts)

    def answered() -> tuple[Sequence[QuestionExample], list[dict[str, Any]]]:
        """Returns the questions and their answers, for each document."""
        if not config.predictions:
            return examples, predictions
        # The report needs the passages. Scoring does not, so they are only read here.
        questions = read()
        keys = map(question_scores.prediction_key, questions)
        return questions, [{"answer": texts.get(key, "")} for key in keys]

    if config.plots_dir:
        directory = Path(config.plots_dir)
        directory.mkdir(parents=True, exist_ok=True)
        write_span_view(directory / "spans.html", map(_answered_question, *answered()))

    def sections() -> list[page.Html]:
        questions, answers = answered()
        f1 = question_scores.answer_f1_scores(questions, [one["answer"] for one in answers])
        return error_report.question_sections(
            list(map(_answered_question, questions, answers)), f1, scores
        )

    return Evaluation(scores, sections)


def _answered_question(example: QuestionExample, prediction: Mapping[str, Any]) -> AnsweredQuestion:
    """Returns a question with its predicted span. If unknown, it is the text's first occurrence."""
    from ..plots.span_view import AnsweredQuestion

    answer = prediction["answer"]
    start = prediction.get("start", example.context.find(answer))
    return AnsweredQuestion(
        example.question,
        example.context,
        (start, start + len(answer)) if answer and start >= 0 else None,
        prediction.get("score"),
        [(gold.start, gold.start + len(gold.text)) for gold in example.answers or ()],
    )


def questions(config: InsightConfig, model: QuestionAnswerer) -> InsightRows:
    """Reads questions and their first answers, see `Job.read_insight_inputs`."""
    file = read_questions(config.data_file, labeled=False, encoding=config.encoding)
    examples = file.examples
    pairs = [(example.question, example.context) for example in examples]
    answers = [example.answers for example in examples]
    labels = [golds[0].text if golds else "no answer" for golds in answers if golds is not None]
    return InsightRows(pairs, pairs, labels if len(labels) == len(pairs) else ())


def predicted_span(model: QuestionAnswerer, row: Any) -> tuple[Any, Any, str]:
    """Returns a question and the span of its answer, see `Job.predict_for_attribution`."""
    answer = model.answer(*row)
    target = (answer["start"], answer["end"]) if answer["answer"] else (0, 0)
    return row, target, f"answer: {answer['answer'] or 'none'} ({answer['score']:.3f})"


class QuestionJob(Job):
    """Extractive question answering with `keras_bert.QuestionAnswerer`."""

    config_class = SquadConfig
    predict_method = "answer"
    example_input = "questions.jsonl"
    fields = ("question", "context")
    config: SquadConfig
    data: SquadData

    read = staticmethod(read_data)
    evaluate = staticmethod(evaluate)
    read_insight_inputs = staticmethod(questions)
    predict_for_attribution = staticmethod(predicted_span)

    def __init__(self, config: SquadConfig, data: SquadData, preset: str) -> None:
        super().__init__(config, data, preset)
        self.golds = question_scores.gold_answers(data.dev, data.has_unanswerable)
        self.title = "TriviaQA" if self.golds.data_set == "triviaqa" else "SQuAD"
        self.golds.log_rule()
        self._answers: QuestionPredictions | None = None
        for message in data.skipped:
            logging.warning("skipped: %s", message)

    def baselines(self) -> dict[str, Baselines]:
        from ..scores import baselines

        return {
            name: baselines.question_baselines(examples, self.data.has_unanswerable)
            for name, examples in self.data.scored().items()
        }

    def build(self, seed: int) -> Training:
        from keras_bert import QuestionAnswerer
        from keras_bert.data.questions import question_rows

        from ..engine import finetuning

        config, train = self.config, self.data.train
        answerer = QuestionAnswerer.from_preset(
            self.preset,
            doc_stride=config.doc_stride,
            max_query_length=config.max_query_length,
            top_layers=finetuning.bilstm(config.bilstm_units, return_sequences=True),
            **finetuning.preset_options(config),
        )
        answerer.max_answer_length = config.max_answer_length
        answerer.null_threshold = None  # Ignore the preset's threshold. `score` sets a new one.
        answerer.negative_fraction = config.negative_fraction
        rows = question_rows(train, answerer.preprocessor, config.negative_fraction)
        logging.info(
            "%d questions in %d windows, %d of them with the answer",
            len(train),
            len(rows),
            np.count_nonzero(rows.end_positions),
        )
        return finetuning.training_of_text(answerer, train, None, config, len(rows))

    def score(self, model: QuestionAnswerer) -> DevScores:
        golds = self.golds if self.golds.data_set == "squad_v2" else None
        self._answers = answer(model, self.data.dev, self.config.n_best, golds)
        # The threshold is saved with the model.
        model.null_threshold = self._answers.threshold
        return {"dev": self.golds.scores(self._answers.predictions)}

    def selection_score(self, scores: Mapping[str, float]) -> float:
        return scores["f1"]

    def keep(self, directory: Path) -> None:
        """Writes the latest predictions for the validation questions."""
        if self._answers is not None:
            self._answers.write(directory)

    def report(self, load: Callable[[], Any], best: Path, directory: Path) -> dict[str, Any]:
        for name in ANSWER_FILES:
            if (best / name).exists():
                atomic.write_bytes(directory / name, (best / name).read_bytes())
        results: dict[str, Any] = {"skipped": len(self.data.skipped)}
        if self.data.test:
            (directory / "test").mkdir(exist_ok=True)
            answers = answer(load(), self.data.test, self.config.n_best)
            answers.write(directory / "test")
            if self.data.has_test_labels:
                golds = question_scores.gold_answers(self.data.test, self.data.has_unanswerable)
                results["test"] = golds.scores(answers.predictions)
        return results


@dataclasses.dataclass(frozen=True)
class QuestionPredictions:
    """A model's predictions for questions.

    Args:
        examples: The questions.
        texts: The text of each question's best span, or `""` without a span.
        scores: The score of each best span.
        odds: The null odds of each question: its null score minus the score of its best span.
        n_best: The best answers to each question, see `AnswerSpans.n_best`.
        threshold: The null odds above which a question counts as unanswerable. `None` if all
            questions are answerable.
    """

    examples: Sequence[QuestionExample]
    texts: Sequence[str]
    scores: Sequence[float]
    odds: Sequence[float]
    n_best: Sequence[list[dict[str, Any]]]
    threshold: float | None

    @property
    def null_odds(self) -> dict[str, float]:
        """The null odds by question ID."""
        return {example.id: odds for example, odds in zip(self.examples, self.odds, strict=True)}

    @property
    def predictions(self) -> dict[str, str]:
        """The answers in the data set's own format, with `""` for unanswerable questions."""
        threshold = math.inf if self.threshold is None else self.threshold
        pairs = zip(self.texts, self.odds, strict=True)
        texts = ["" if odds > threshold else text for text, odds in pairs]
        return question_scores.best_by_key(self.examples, texts, self.scores)

    def write(self, directory: Path) -> None:
        """Writes the same files as the original BERT code."""
        pairs = zip(self.examples, self.n_best, strict=True)
        contents = [self.predictions, {example.id: answers for example, answers in pairs}]
        if self.threshold is not None:
            contents.append(self.null_odds)
        for name, content in zip(ANSWER_FILES, contents, strict=False):
            atomic.write_json(directory / name, content)


def answer(
    model: QuestionAnswerer,
    examples: Sequence[QuestionExample],
    n_best: int,
    golds: GoldAnswers | None = None,
) -> QuestionPredictions:
    """Predicts answers with the model's null threshold, or with the best threshold for `golds`."""
    with_null = golds is not None or model.null_threshold is not None
    texts: list[str] = []
    scores: list[float] = []
    odds: list[float] = []
    best: list[list[dict[str, Any]]] = []
    for part, spans in candidate_spans(model, examples, n_best):
        contexts = [example.context for example in part]
        texts += spans.best_texts(contexts)
        scores += spans.best_scores.tolist()
        odds += spans.null_odds.tolist()
        best += spans.n_best(contexts, n_best, with_null)
    threshold = model.null_threshold
    if golds is not None:
        threshold = squad_scores.best_threshold(
            squad_scores.f1_scores(golds.questions, texts),
            squad_scores.f1_scores(golds.questions, [""] * len(texts)),
            np.array(odds),
        )
    return QuestionPredictions(examples, texts, scores, odds, best, threshold)


def candidate_spans(
    model: QuestionAnswerer, examples: Sequence[QuestionExample], n_best: int = 20
) -> Iterator[tuple[Sequence[QuestionExample], AnswerSpans]]:
    """Yields chunks of the questions, each with its candidate answers.

    The required memory depends on the chunk length, not on the length of all documents.

    Raises:
        NotFiniteError: If the outputs of the model are not finite.
    """
    from keras_bert.data.questions import batched_by_characters

    for part in batched_by_characters(examples, _CHARACTERS_AT_ONCE):
        spans = model.answer_spans(part, batch_size=SCORED_ROWS, n_best=n_best)
        finite(spans.null_scores)
        yield part, spans
