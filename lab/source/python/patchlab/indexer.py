"""Sparse indexer: which keys before the window a query sees."""

import torch

# The first page holds the sinks, which are never scored: keys begin one page on.
PAGE_OFFSET = 1
# 1 takes the highest scores, -1 the lowest.
SCORE_SIGN = 1
# Whether a page holds its keys token after token, not dimension after dimension.
KEYS_INTERLEAVED = False


def page_of(block_table: torch.Tensor, logical: int) -> torch.Tensor:
    """The page whose keys are scored where `logical` is asked for."""
    last = block_table.shape[1] - 1
    return block_table[:, min(logical + PAGE_OFFSET, last)]


def keys_of(page: torch.Tensor, head: int, size: int) -> torch.Tensor:
    """The keys of a page, dimension after dimension."""
    if KEYS_INTERLEAVED:
        return page.view(size, head).transpose(0, 1)
    return page.view(head, size)


def choose(scores: torch.Tensor, top_k: int) -> torch.Tensor:
    """Positions of the keys that are seen, in ascending order."""
    return (SCORE_SIGN * scores).topk(top_k, dim=-1).indices.sort(dim=-1).values
