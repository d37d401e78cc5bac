# SPDX-License-Identifier: Apache-2.0
"""Embeddings of another library by OpenAI's API, behind uvicorn as its users put it, to measure it.

    pip install fastapi uvicorn fastembed "sentence-transformers[onnx,openvino]" datasets
    python docs/measurements/peer_server.py torch|onnx|openvino|fastembed MODEL_DIRECTORY PORT TEXTS

It needs none of this project, and runs in an environment of the other library. ONNX and OpenVINO
models have int8 products, as sentence-transformers quantizes them, OpenVINO's with the column
`text` of the CSV files in the directory TEXTS. fastembed computes in float32, from the ONNX file
that sentence-transformers writes. ONNX Runtime has one thread, for a server of one core.
"""

import json
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response

MAX_TOKENS = 256
QUANTIZED = {
    "onnx": "onnx/model_qint8_avx512_vnni.onnx",
    "openvino": "openvino/openvino_model_qint8_quantized.xml",
}


def sentence_transformer(backend, directory, texts):
    import sentence_transformers as st

    options = {"torch_dtype": "bfloat16"} if backend == "torch" else {}
    if backend == "onnx":
        from onnxruntime import SessionOptions

        options["session_options"] = SessionOptions()
        options["session_options"].intra_op_num_threads = 1
    if backend in QUANTIZED:
        options["file_name"] = QUANTIZED[backend]
        if not Path(directory, QUANTIZED[backend]).exists():
            model = st.SentenceTransformer(directory, backend=backend, device="cpu")
            model.save_pretrained(directory)
            if backend == "onnx":
                st.export_dynamic_quantized_onnx_model(model, "avx512_vnni", directory)
            else:
                st.export_static_quantized_openvino_model(
                    *(model, None, directory, texts, "default", "train", "text"),
                )
    model = st.SentenceTransformer(directory, backend=backend, device="cpu", model_kwargs=options)
    model.max_seq_length = MAX_TOKENS
    return lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def fast_embedding(directory):
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="local",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="local"),
        dim=384,
        model_file="onnx/model.onnx",
    )
    model = TextEmbedding("local", specific_model_path=directory, threads=1)
    return lambda texts: list(model.embed(texts))


def application(embed):
    app = FastAPI()

    @app.post("/v1/embeddings")
    def embeddings(body: dict):
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        data = [
            {"object": "embedding", "index": index, "embedding": vector.tolist()}
            for index, vector in enumerate(embed(texts))
        ]
        content = {"object": "list", "data": data, "model": body["model"]}
        return Response(json.dumps(content), media_type="application/json")

    return app


if __name__ == "__main__":
    library, directory, port, texts = sys.argv[1:]
    is_fastembed = library == "fastembed"
    embed = (
        fast_embedding(directory)
        if is_fastembed
        else sentence_transformer(library, directory, texts)
    )
    uvicorn.run(application(embed), port=int(port), log_level="warning")
