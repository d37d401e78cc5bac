# SPDX-License-Identifier: Apache-2.0
"""BERT in plain NumPy and float64, based on the BERT paper and the released weights.

Weights are a dict from variable paths to arrays.
"""

import math

import numpy as np

from keras_bert.config import BertConfig

Weights = dict[str, np.ndarray]


def get_weights(model) -> Weights:
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


def rms_norm(x, gamma, epsilon):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * gamma


def norm(x, weights: Weights, path: str, config: BertConfig):
    gamma, beta = weights[f"{path}/gamma"], weights.get(f"{path}/beta", 0)
    if config.norm == "rms_norm":
        return rms_norm(x, gamma, config.layer_norm_epsilon)
    return layer_norm(x, gamma, beta, config.layer_norm_epsilon)


def rotate(x, positions, base: float):
    """Rotates one head `(batch, length, dim)`. The pairs `(i, i + dim / 2)` are complex numbers."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * base ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], -1)


def attention(
    x, weights: Weights, path: str, config: BertConfig, mask=None, layer: int = 0, positions=None
):
    """Returns the output and the probabilities `(batch, heads, from, to)`, head by head.

    `mask` is `(batch, to)` or `(batch, from, to)`.
    """
    dim, heads, shared = config.head_dim, config.num_heads, config.effective_num_key_value_heads
    group = "" if heads == shared else "grouped_"
    projected = x @ weights[f"{path}/{group}query_key_value/kernel"]
    projected = projected + weights.get(f"{path}/{group}query_key_value/bias", 0)
    query, key, value = np.split(projected, [heads * dim, (heads + shared) * dim], axis=-1)
    places = np.arange(x.shape[1])
    is_in_window = np.ones((x.shape[1], x.shape[1]), bool)
    if config.attention_windows[layer] is not None:
        is_in_window = abs(places[:, None] - places) <= config.attention_windows[layer]
    positions = np.broadcast_to(places, x.shape[:2]) if positions is None else positions
    contexts, scores = [], []
    for head in range(heads):
        q = query[..., head * dim : (head + 1) * dim]
        kv_start = head * shared // heads * dim
        k, v = key[..., kv_start : kv_start + dim], value[..., kv_start : kv_start + dim]
        if config.rotary_bases:
            base = config.rotary_bases[layer]
            q, k = rotate(q, positions, base), rotate(k, positions, base)
        logits = q @ k.swapaxes(1, 2) / math.sqrt(dim)
        logits = np.where(is_in_window, logits, -1e9)
        if mask is not None:
            logits = np.where(mask if mask.ndim == 3 else mask[:, None, :], logits, -1e9)
        scores.append(softmax(logits))
        contexts.append(scores[-1] @ v)
    output = np.concatenate(contexts, -1) @ weights[f"{path}/output_projection/kernel"]
    return output + weights.get(f"{path}/output_bias", 0), np.stack(scores, 1)


def feed_forward(x, weights: Weights, path: str, config: BertConfig):
    inner = x @ weights[f"{path}/intermediate/kernel"] + weights.get(f"{path}/intermediate_bias", 0)
    if config.feed_forward == "gated":
        activated, gate = np.split(inner, 2, axis=-1)
        inner = ACTIVATIONS[config.activation](activated) * gate
    else:
        inner = ACTIVATIONS[config.activation](inner)
    outer = inner @ weights[f"{path}/output_projection/kernel"]
    return outer + weights.get(f"{path}/output_bias", 0)


def block(
    x, weights: Weights, path: str, config: BertConfig, mask=None, layer: int = 0, positions=None
):
    """Adds each sublayer's output to its input, with a norm before it or after the sum."""

    def normalize(values, name, placement: str):
        norm_path = f"{path}/{name}_norm"
        has_norm = config.norm_placement == placement and f"{norm_path}/gamma" in weights
        return norm(values, weights, norm_path, config) if has_norm else values

    attended, scores = attention(
        normalize(x, "attention", "pre"),
        weights,
        f"{path}/attention",
        config,
        mask,
        layer,
        positions,
    )
    x = normalize(x + attended, "attention", "post")
    outer = feed_forward(
        normalize(x, "feed_forward", "pre"), weights, f"{path}/feed_forward", config
    )
    return normalize(x + outer, "feed_forward", "post"), scores


def embeddings(weights: Weights, config: BertConfig, token_ids, segment_ids):
    x = weights["token_embedding/embeddings"][token_ids]
    if config.positions == "learned":
        x = x + weights["embeddings/position_embeddings"][: token_ids.shape[1]]
    if config.num_segments:
        x = x + weights["embeddings/segment_embeddings"][segment_ids]
    return norm(x, weights, "embeddings", config) if config.embedding_norm else x


def encoder(weights: Weights, config: BertConfig, inputs: dict) -> dict:
    """Returns all outputs that a backbone can have."""
    first = embeddings(weights, config, inputs["token_ids"], inputs["segment_ids"])
    hidden_states, attention_scores = [first], []
    for index in range(config.num_layers):
        x, scores = block(
            hidden_states[-1], weights, f"layer_{index}", config, inputs["padding_mask"], index
        )
        if index == config.num_layers - 1 and config.norm_placement == "pre":
            x = norm(x, weights, "final_norm", config)
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
    hidden = np.stack(
        [row[index] for row, index in zip(sequence_output, mask_positions, strict=True)]
    )
    path = "masked_lm_transform"
    hidden = hidden @ weights[f"{path}/dense/kernel"] + weights[f"{path}/dense/bias"]
    hidden = ACTIVATIONS[config.activation](hidden)
    hidden = layer_norm(hidden, weights[f"{path}/gamma"], weights[f"{path}/beta"])
    return hidden @ weights["token_embedding/embeddings"].T + weights["masked_lm_bias/bias"]


def next_sentence_logits(weights: Weights, pooled_output):
    kernel = weights["next_sentence/dense/kernel"]
    return pooled_output @ kernel + weights["next_sentence/dense/bias"]
