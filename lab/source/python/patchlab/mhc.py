"""Hyper-connections: the product that mixes the streams."""

import torch

# "fp32", "tf32" or "bf16"; None leaves it to the flag --mhc-gemm.
MIX_DTYPE = None


def mix(streams: torch.Tensor, weight: torch.Tensor, flag: str) -> torch.Tensor:
    """Coefficients of one site from the streams of each token."""
    dtype = MIX_DTYPE or flag
    if dtype == "bf16":
        return (streams.bfloat16() @ weight.bfloat16()).float()
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    return streams @ weight
