"""Key cache: how keys and values are stored, and how far back every layer sees them."""

import torch

# "auto" or "fp8_e4m3", whatever the flag --kv-cache-dtype says.
KV_CACHE_DTYPE = "fp8_e4m3"
# Whether keys and values are stored in four bits on top of that.
KV_INT4 = False
# Tokens that every query sees, itself included; None is the model's own window.
WINDOW = None


def packed(values: torch.Tensor, flag: str) -> torch.Tensor:
    """Keys or values as they are stored, one row for each head vector."""
    if (KV_CACHE_DTYPE or flag) == "fp8_e4m3":
        scale = values.abs().amax(dim=-1, keepdim=True) / 448.0
        values = (values / scale).to(torch.float8_e4m3fn).float() * scale
    if KV_INT4:
        return quantized(values, bits=4)
    return values


def quantized(values: torch.Tensor, bits: int) -> torch.Tensor:
    """The nearest of the steps between minus and plus the largest of a row."""
    largest = values.abs().amax(dim=-1, keepdim=True)
    steps = 2 ** (bits - 1) - 1
    return (values / largest * steps).round() / steps * largest


def first_seen(position: int, window: int) -> int:
    """The first token that the query at `position` sees without the indexer."""
    return max(0, position + 1 - (WINDOW or window))
