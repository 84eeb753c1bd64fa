#!/usr/bin/env python3
"""A fork's mixing kernel in Triton, as a candidate of `mhc-mix`: see kernels/external.py.

Operands in bf16, sums in f32, one program for sixteen tokens; the product is rounded to bf16.
"""

import pathlib
import sys

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "kernels"))
import external  # noqa: E402


@triton.jit
def mix(weight, streams, products, roots, rows, inner, eps, BLOCK: tl.constexpr):
    tokens = tl.program_id(0) * 16 + tl.arange(0, 16)
    mixes = tl.arange(0, 32)
    columns = tl.arange(0, BLOCK)
    sums = tl.zeros((16, 32), tl.float32)
    squares = tl.zeros((16,), tl.float32)
    for first in range(0, inner, BLOCK):
        k = first + columns
        x = tl.load(
            streams + tokens[:, None] * inner + k[None, :],
            mask=(tokens[:, None] < rows) & (k[None, :] < inner),
            other=0.0,
        )
        w = tl.load(
            weight + mixes[None, :] * inner + k[:, None],
            mask=(mixes[None, :] < 24) & (k[:, None] < inner),
            other=0.0,
        )
        squares += tl.sum(x * x, 1)
        sums += tl.dot(x.to(tl.bfloat16), w.to(tl.bfloat16))
    where = (tokens[:, None] < rows) & (mixes[None, :] < 24)
    tl.store(products + tokens[:, None] * 24 + mixes[None, :], sums.to(tl.bfloat16).to(tl.float32), mask=where)
    tl.store(roots + tokens, 1.0 / tl.sqrt(squares / inner + eps), mask=tokens < rows)


def run(inputs, notes):
    """The function under suspicion: tensors by name in, tensors by name out."""
    rows, inner = int(notes["rows"]), int(notes["inner"])
    weight, streams = inputs["weight"], inputs["streams"]
    if notes["candidate"] == "triton-one-stream":
        streams = streams[:, : inner // 4].repeat(1, 4).contiguous()
    products = torch.empty(rows, 24, device=streams.device)
    roots = torch.empty(rows, device=streams.device)
    mix[((rows + 15) // 16,)](weight, streams, products, roots, rows, inner, float(notes["eps"]), BLOCK=64)
    return {"products": products, "inverse_rms": roots}


if __name__ == "__main__":
    external.main(run)
