#!/usr/bin/env python3
"""Template: the fork's own function as a candidate of a microtest.

patchbench starts this in the server's own Python, on the server's own host, with the inputs of each case
as a safetensors file on standard input, behind its length in eight bytes, and reads the outputs so from
standard output. Nothing is written anywhere else. Copy it, fill in `run`, and name it in a candidates file:

    [[candidate]]
    spec = "mhc-mix"
    name = "fork"
    says = "the fork's own mixing kernel"
    round = { weight = "bf16", streams = "bf16", output = "bf16" }   # what it is said to round
    accumulate = { in = "f32" }
    command = { host = "gpu-box", argv = ["/opt/sglang/bin/python3", "/home/me/fork_mhc.py"] }

    patchbench micro mhc-mix --candidates fork.toml

The notes of the file say which case it is: `spec`, `candidate`, `rows`, `splits`, the sizes, and
`outputs`, each as NAME:TYPE:SHAPE. Inputs and outputs of each spec, rows first:

    mhc-mix   weight [24, inner], streams [rows, inner], eps -> products [rows, 24], inverse_rms [rows]
    router    inputs [rows, width], gate [experts, width], bias [experts], table i32 [rows, active], scaling
              -> scores [rows, experts], chosen i32 [rows, active], weights [rows, active]
    indexer   queries [rows, heads, dim], weights [rows, heads], keys [count, dim], pages u8, table i32,
              visible i32 [rows], factor -> scores [rows, count], kept i32 [rows, keep]
    decode-attention   queries [rows, heads, width], keys, values, pages u8, table i32, seen i32 [rows, most],
              sinks [heads], scale -> lse [rows, heads], output [rows, heads, width]
    quantise  activation [rows, width], weight [outputs, width]
              -> activation_back, weight_back, product [rows, outputs]
    norm      input [rows, width], weight [width], eps -> inverse_root [rows], output [rows, width]
"""

import json
import os
import sys


def run(inputs, notes):
    """The function under suspicion: tensors by name in, tensors by name out (f32 or i32, in C order)."""
    raise NotImplementedError("call the fork's own function here")


def main(run):
    """Answers every case that comes in with what `run` makes of it."""
    # Libraries print to standard output while they compile; that must not get between the tensors.
    answer = os.dup(1)
    os.dup2(2, 1)
    import torch
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
    main(run)
