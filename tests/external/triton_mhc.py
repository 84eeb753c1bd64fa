#!/usr/bin/env python3
"""A fork's mixing kernel in Triton, as a candidate of `mhc-mix`: see kernels/external.py.

Operands in bf16, sums in f32, one program for sixteen tokens; the product is rounded to bf16.
"""

import json
import os
import sys

import torch
import triton
import triton.language as tl


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


def main():
    # Libraries print to standard output while they compile; that must not get between the tensors.
    answer = os.dup(1)
    os.dup2(2, 1)
    from safetensors.torch import load, save

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with os.fdopen(answer, "wb") as out:
        # One case after another, each behind its length: this process is started once for all.
        while header := sys.stdin.buffer.read(8):
            data = sys.stdin.buffer.read(int.from_bytes(header, "little"))
            notes = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
            inputs = {name: tensor.to(device) for name, tensor in load(data).items()}
            file = save(checked(run(inputs, notes), notes))
            out.write(len(file).to_bytes(8, "little") + file)


def checked(outputs, notes):
    """The outputs that were asked for, with their types and shapes."""
    import torch

    made = {}
    for wanted in notes["outputs"].split():
        name, kind, shape = wanted.split(":")
        dtype = torch.int32 if kind == "i32" else torch.float32
        made[name] = outputs[name].detach().to("cpu", dtype).reshape([int(n) for n in shape.split("x")]).contiguous()
    return made


if __name__ == "__main__":
    main()
