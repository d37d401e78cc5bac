# SPDX-License-Identifier: Apache-2.0
"""BERT in plain NumPy and float64, from the paper and the released weights' names.

Weights are a dict from the variables' paths to arrays.
"""

import math

import numpy as np

from keras_bert.config import BertConfig

Weights = dict[str, np.ndarray]


def weights_of(model) -> Weights:
    return {v.path: np.asarray(v.numpy(), "float64") for v in model.weights}


def layer_norm(x, gamma, beta, epsilon=1e-12):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def softmax(x):
    exponents = np.exp(x - x.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def gelu_erf(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def attention(x, weights: Weights, path: str, num_heads: int, mask=None):
    """Each head by itself; returns the context and the probabilities `(batch, heads, from, to)`."""
    head_dim = x.shape[-1] // num_heads
    projected = x @ weights[f"{path}/query_key_value/kernel"]
    projected = projected + weights[f"{path}/query_key_value/bias"]
    query, key, value = np.split(projected, 3, axis=-1)
    contexts, scores = [], []
    for head in range(num_heads):
        part = slice(head * head_dim, (head + 1) * head_dim)
        logits = query[..., part] @ key[..., part].swapaxes(1, 2) / math.sqrt(head_dim)
        if mask is not None:
            logits = np.where(mask[:, None, :], logits, -1e9)
        scores.append(softmax(logits))
        contexts.append(scores[-1] @ value[..., part])
    return np.concatenate(contexts, -1), np.stack(scores, 1)


def block(x, weights: Weights, path: str, config: BertConfig, mask=None):
    """Post-LayerNorm: each sublayer's output is added to its input, then normalized."""
    context, scores = attention(x, weights, f"{path}/attention", config.num_heads, mask)
    x = sublayer_end(
        context @ weights[f"{path}/attention_output/kernel"], x, weights, path, "attention"
    )
    inner = x @ weights[f"{path}/intermediate/kernel"]
    inner = inner + weights[f"{path}/intermediate_activation/bias"]
    inner = ACTIVATIONS[config.activation](inner)
    outer = inner @ weights[f"{path}/feed_forward_output/kernel"]
    return sublayer_end(outer, x, weights, path, "feed_forward"), scores


def sublayer_end(x, residual, weights: Weights, path: str, sublayer: str):
    norm = f"{path}/{sublayer}_norm"
    x = x + weights[f"{norm}/bias"] + residual
    return layer_norm(x, weights[f"{norm}/gamma"], weights[f"{norm}/beta"])


def embeddings(weights: Weights, token_ids, segment_ids):
    x = weights["token_embedding/embeddings"][token_ids]
    x = x + weights["embeddings/position_embeddings"][: token_ids.shape[1]]
    x = x + weights["embeddings/segment_embeddings"][segment_ids]
    return layer_norm(x, weights["embeddings/gamma"], weights["embeddings/beta"])


def encoder(weights: Weights, config: BertConfig, inputs: dict) -> dict:
    """All that a backbone can return."""
    hidden_states = [embeddings(weights, inputs["token_ids"], inputs["segment_ids"])]
    attention_scores = []
    for index in range(config.num_layers):
        x, scores = block(
            hidden_states[-1], weights, f"layer_{index}", config, inputs["padding_mask"]
        )
        hidden_states.append(x)
        attention_scores.append(scores)
    first = hidden_states[-1][:, 0]
    pooled = np.tanh(first @ weights["pooler/dense/kernel"] + weights["pooler/dense/bias"])
    return {
        "sequence_output": hidden_states[-1],
        "pooled_output": pooled,
        "hidden_states": tuple(hidden_states),
        "attention_scores": tuple(attention_scores),
    }


def masked_lm_logits(weights: Weights, config: BertConfig, sequence_output, mask_positions):
    hidden = np.stack([row[at] for row, at in zip(sequence_output, mask_positions, strict=True)])
    path = "masked_lm_transform"
    hidden = hidden @ weights[f"{path}/dense/kernel"] + weights[f"{path}/dense/bias"]
    hidden = ACTIVATIONS[config.activation](hidden)
    hidden = layer_norm(hidden, weights[f"{path}/gamma"], weights[f"{path}/beta"])
    return hidden @ weights["token_embedding/embeddings"].T + weights["masked_lm_bias/bias"]


def next_sentence_logits(weights: Weights, pooled_output):
    kernel = weights["next_sentence/dense/kernel"]
    return pooled_output @ kernel + weights["next_sentence/dense/bias"]
