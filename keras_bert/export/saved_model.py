# SPDX-License-Identifier: Apache-2.0
"""Writes SavedModels that accept text and only use operations that servers support."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.export.description import DESCRIPTION_FILE, TOKENIZER_FILE, ExportDescription
from keras_bert.export.options import ExportError, ExportOptions, Servable
from keras_bert.export.server_files import (
    have_fixed_widths,
    write_batching_parameters,
    write_warm_up_requests,
)
from keras_bert.ops.tensorflow_int8 import constant_kernels

OLDEST_SERVING = "TensorFlow Serving 2.12 (with TensorFlow Text 2.12.1, as up to 2.19)"

# Operations in TensorFlow 2.12.0 and TensorFlow Text 2.12.1 for text models, grouped into
# arithmetic, reductions, arrays, ragged and sparse tensors, strings, control flow and variables,
# checkpoints, and TensorFlow Text
_SERVING_OPS = """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 Asin Asinh Atan Atan2 Atanh BitwiseAnd BitwiseOr
    BitwiseXor Ceil ClipByValue Cos Cosh Cumprod Cumsum CumulativeLogsumexp Digamma Div DivNoNan
    Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Inv Invert LeftShift Lgamma Log Log1p
    Maximum Minimum Mod Mul MulNoNan Ndtri Neg PopulationCount Pow RealDiv Reciprocal RightShift
    Rint Round Rsqrt Sign Sin Sinh Sqrt Square SquaredDifference Sub Tan Tanh TruncateDiv
    TruncateMod Xdivy Xlog1py Xlogy
    ApproximateEqual Equal Greater GreaterEqual IsFinite IsInf IsNan Less LessEqual LogicalAnd
    LogicalNot LogicalOr NotEqual Select SelectV2
    All Any ArgMax ArgMin BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd Bincount Bucketize
    DenseBincount Einsum Elu EuclideanNorm FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3
    InTopKV2 L2Loss LeakyRelu LogSoftmax MatMul Max Mean Min NthElement Prod Relu Relu6
    SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum Selu Sigmoid Softmax Softplus
    Softsign Sum TopK TopKV2 UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
    UnsortedSegmentSum
    Bitcast BroadcastArgs BroadcastTo Cast CheckNumerics CheckNumericsV2 Concat ConcatOffset
    ConcatV2 ConjugateTranspose Const DeepCopy Diag DiagPart DynamicPartition DynamicStitch
    Empty EnsureShape ExpandDims Fill Gather GatherNd GatherV2 GuaranteeConst
    HistogramFixedWidth Identity IdentityN ImmutableConst InvertPermutation LinSpace ListDiff
    LowerBound MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
    MatrixDiagV2 MatrixDiagV3 MatrixSetDiagV3 MirrorPad OneHot OnesLike Pack Pad PadV2
    ParallelDynamicStitch Placeholder PlaceholderWithDefault Range Rank Reshape Reverse
    ReverseSequence ReverseV2 Roll ScatterNd ScatterNdNonAliasingAdd Shape ShapeN Size Slice
    Snapshot Split SplitV Squeeze StridedSlice TensorScatterAdd TensorScatterMax
    TensorScatterMin TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile
    Transpose Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UpperBound
    Where ZerosLike
    RaggedBincount RaggedCross RaggedGather RaggedRange RaggedTensorFromVariant
    RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant SparseConcat
    SparseFillEmptyRows SparseReorder SparseReshape SparseSegmentMean SparseSegmentSqrtN
    SparseSegmentSum SparseSlice SparseSplit SparseToDense
    AsString DecodeBase64 DecodePaddedRaw DecodeRaw EncodeBase64 ParseExample ParseExampleV2
    ParseTensor ReduceJoin RegexFullMatch RegexReplace SerializeTensor StaticRegexFullMatch
    StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams StringSplit
    StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
    StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode
    UnicodeScript UnicodeTranscode UnsortedSegmentJoin
    AnonymousHashTable Assert Assign AssignAddVariableOp AssignSubVariableOp AssignVariableOp
    Case EmptyTensorList Enter Exit For HashTable HashTableV2 If InitializeTable
    InitializeTableFromTextFileV2 InitializeTableV2 LookupTableExportV2 LookupTableFindV2
    LookupTableImportV2 LookupTableInsertV2 LookupTableSizeV2 LoopCond Merge MutableHashTableV2
    NextIteration NoOp PartitionedCall PreventGradient Print PrintV2 ReadVariableOp
    ResourceGather ResourceGatherNd StatefulPartitionedCall StatelessCase StatelessIf
    StatelessWhile StopGradient Switch TensorListConcatV2 TensorListElementShape
    TensorListFromTensor TensorListGather TensorListGetItem TensorListLength TensorListPopBack
    TensorListPushBack TensorListReserve TensorListResize TensorListScatterV2 TensorListSetItem
    TensorListStack VarHandleOp VarIsInitializedOp VariableShape While
    DisableCopyOnRead MergeV2Checkpoints RestoreV2 SaveV2 ShardedFilename ShardedFilespec
    CaseFoldUTF8 FastBertNormalize FastWordpieceTokenizeWithOffsets FindSourceOffsets
    NormalizeUTF8 NormalizeUTF8WithOffsetsMap RegexSplitWithOffsets SentenceFragments
    SentencepieceDetokenizeOp SentencepieceOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp SplitMergeTokenizeWithOffsets
    TFText>BoiseTagsToOffsets TFText>ByteSplitByOffsets TFText>ByteSplitWithOffsets
    TFText>FastSentencepieceDetokenize TFText>FastSentencepieceTokenize
    TFText>FastWordpieceDetokenize TFText>NgramsStringJoin TFText>OffsetsToBoiseTags
    TFText>PhraseDetokenize TFText>WhitespaceTokenizeWithOffsetsV2 TokenizerFromLogits
    UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets
"""
SERVING_OPS = frozenset(_SERVING_OPS.split())
# Operations in int8 exports. TensorFlow 2.18 supports them, and 2.15 does not.
INT8_OPS = frozenset({"_QuantizedMatMul"})

# Servers built without XLA reject functions with these attributes ("XLA compilation disabled").
_COMPILED = ("_XlaMustCompile", "_XlaCompile")


def write_saved_model(task: Servable, directory: Path, options: ExportOptions) -> None:
    """Writes a SavedModel with its signatures, its weights and the server's files.

    The task must have a preprocessor and be on the TensorFlow backend.
    """
    functions = task.serving_signatures(options)
    with constant_kernels():
        signatures = {name: each.get_concrete_function() for name, each in functions.items()}
    save_signatures(signatures, directory, task.preprocessor.tokenizer.graph.resources)
    check_serving_ops(directory, INT8_OPS if options.dtype == "int8" else frozenset())
    description = directory / DESCRIPTION_FILE
    description.parent.mkdir()
    description.write_text(ExportDescription.from_task(task, options).to_json(), encoding="utf-8")
    tokenizer = json.dumps(task.preprocessor.tokenizer.get_config(), ensure_ascii=False)
    (directory / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
    write_batching_parameters(
        directory,
        options.max_batch_size,
        splits=have_fixed_widths(signatures),
        padded=options.padded_batches,
    )
    if options.warm_up:
        write_warm_up_requests(directory, functions, task, options)


def save_signatures(
    signatures: dict[str, Any], directory: Path, resources: Sequence[Any] = ()
) -> None:
    """Writes concrete functions by name, with their variables and tables."""
    # Tracking the model itself would also store its random generators' states, and each weight
    # twice.
    variables = {id(v): v for function in signatures.values() for v in function.variables}
    root = tf.Module()
    root.weights = list(variables.values())
    root.resources = list(resources)
    tf.saved_model.save(root, str(directory), signatures=signatures)


def check_serving_ops(directory: Path, newer_ops: Set[str] = frozenset()) -> None:
    """Checks that the oldest supported server can run a SavedModel's graphs.

    Operations in `newer_ops` are allowed, although only newer servers support them.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((directory / "saved_model.pb").read_bytes())
    for meta_graph in saved_model.meta_graphs:
        check_graph(meta_graph.graph_def, newer_ops)


def check_graph(graph_def: Any, newer_ops: Set[str] = frozenset()) -> None:
    """Checks a `tf.compat.v1.GraphDef`. See `check_serving_ops`."""
    functions = {function.signature.name for function in graph_def.library.function}
    nodes = list(_nodes(graph_def))
    unknown = sorted({node.op for node in nodes} - SERVING_OPS - newer_ops - functions)
    if unknown:
        raise ExportError(
            f"A SavedModel must only contain operations that {OLDEST_SERVING} supports. Received: "
            f"{', '.join(unknown)}"
        )
    holders: Iterable[Any] = (*nodes, *graph_def.library.function)
    for holder in holders:
        if any(holder.attr[name].b for name in _COMPILED if name in holder.attr):
            name = getattr(holder, "name", "") or holder.signature.name
            raise ExportError(
                "Functions must not be compiled by XLA, because servers may not support it. "
                f"Received: {name!r} with jit_compile=True"
            )


def _nodes(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
