"""Experts: the factor on what the routed ones add."""

import torch

# Where the factor is multiplied in, "topk" or "output"; None leaves it to the flag --routed-scaling.
ROUTED_SCALING = None
# One more factor on the routed experts.
ROUTED_FACTOR = 1.0


def weigh(weights: torch.Tensor, factor: float, flag: str) -> torch.Tensor:
    """Weights of the experts that a token uses."""
    weights = weights / weights.sum(dim=-1, keepdim=True)
    if (ROUTED_SCALING or flag) == "topk":
        weights = weights * factor
    return weights * ROUTED_FACTOR
