"""Protocol and arithmetic of the quality numbers: perplexity, KL divergence, top-1 agreement.

Shared by quality.py (Octavo) and golden/default_model.py (transformers), so that both mean the
same: the first `tokens` tokens of a text, no special tokens added, in windows of `window` tokens
that know nothing of each other. Perplexity scores every token of a window but its first. The
divergence of a position is KL(reference || candidate) over the whole vocabulary in nats, taken at
every position of every window.
"""

import hashlib
import pathlib

import numpy as np

TOKENS = 2048
WINDOW = 512


def read_windows(model: pathlib.Path, text: pathlib.Path, tokens: int = TOKENS,
                 window: int = WINDOW) -> list[np.ndarray]:
    """Token ids (int64) of `text` by the tokenizer of `model`, cut into windows."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    encoding = tokenizer.encode(text.read_text(encoding="utf-8"), add_special_tokens=False)
    ids = np.array(encoding.ids[:tokens], np.int64)
    if ids.size < tokens:
        raise ValueError(f"{text} has {ids.size} tokens, {tokens} expected")
    return [ids[start:start + window] for start in range(0, tokens, window)]


def fingerprint(windows: list[np.ndarray]) -> str:
    """SHA-256 over every window's length and ids (little-endian int64): equal if the scored tokens
    and the contexts they are scored in are."""
    digest = hashlib.sha256()
    for ids in windows:
        digest.update(np.concatenate([[ids.size], ids]).astype("<i8").tobytes())
    return digest.hexdigest()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64)  # [tokens, vocab]
    shifted -= shifted.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class Quality:
    """Collects windows of logits and says what they are worth."""

    def __init__(self) -> None:
        self.losses: list[np.ndarray] = []
        self.divergences: list[np.ndarray] = []
        self.agreements: list[np.ndarray] = []

    def add(self, ids: np.ndarray, logits: np.ndarray, reference: np.ndarray | None) -> None:
        """`logits` and `reference`: [tokens, vocab] after each token of `ids`."""
        if logits.ndim != 2 or logits.shape[0] != ids.size:
            raise ValueError(f"logits of shape {list(logits.shape)} for {ids.size} tokens")
        if not np.isfinite(logits).all():
            raise ValueError("logits that are not finite")
        found = log_softmax(logits)
        self.losses.append(-found[np.arange(ids.size - 1), ids[1:]])
        if reference is None:
            return
        if reference.shape != logits.shape:
            raise ValueError(f"reference logits of shape {list(reference.shape)} beside "
                             f"{list(logits.shape)}")
        wanted = log_softmax(reference)
        self.divergences.append((np.exp(wanted) * (wanted - found)).sum(-1))
        self.agreements.append(reference.argmax(-1) == logits.argmax(-1))

    def result(self) -> dict[str, float | int]:
        losses = np.concatenate(self.losses)
        result = {"perplexity": float(np.exp(losses.mean())), "scored_tokens": losses.size}
        if self.divergences:
            divergences = np.concatenate(self.divergences)
            result |= {"kl_mean": float(divergences.mean()),
                       "kl_p99": float(np.quantile(divergences, 0.99)),
                       "kl_max": float(divergences.max()),
                       "top1_agreement": float(np.concatenate(self.agreements).mean())}
        return result
