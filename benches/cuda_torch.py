#!/usr/bin/env python3
"""PyTorch's times for the arithmetic of the kernels in kernels/cuda, beside those of patchbench.

    patchbench micro --device cuda:0 --checkpoint synthetic:flash --json > micro.json
    python3 benches/cuda_torch.py micro.json

Both in one session of one card: medians of 20 runs, each after 256 MiB were written, so that no input is
in a cache; times by CUDA events. The sizes are those of the largest case of each report.
"""

import json
import statistics
import sys

import torch

RUNS = 20


def timed(work):
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        work()
    times = []
    for _ in range(RUNS):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def normal(*shape):
    return torch.randn(*shape, device="cuda")


def mhc_mix():
    weight, streams = normal(24, 16384) / 128, normal(256, 16384).bfloat16().float()
    narrow_weight, narrow_streams = weight.bfloat16(), streams.bfloat16()

    def mix(product):
        return lambda: product() * torch.rsqrt(streams.square().mean(-1, keepdim=True) + 1e-6)

    def with_tf32(allowed):
        def product():
            torch.backends.cuda.matmul.allow_tf32 = allowed
            return streams @ weight.T

        return product

    yield "fp32", mix(with_tf32(False))
    yield "tf32", mix(with_tf32(True))
    yield "bf16", mix(lambda: streams.bfloat16() @ weight.bfloat16().T)
    yield "bf16, operands already bf16", mix(lambda: narrow_streams @ narrow_weight.T)


def router():
    inputs, gate, bias = normal(16, 4096), normal(256, 4096) / 64, normal(256) / 5

    def choose(logits):
        scores = torch.nn.functional.softplus(logits).sqrt()
        chosen = (scores + bias).topk(6).indices
        weights = scores.gather(1, chosen)
        return weights / weights.sum(-1, keepdim=True) * 1.5

    def with_tf32(allowed):
        def work():
            torch.backends.cuda.matmul.allow_tf32 = allowed
            return choose(inputs @ gate.T)

        return work

    yield "fp32", with_tf32(False)
    yield "tf32-gate", with_tf32(True)
    yield "bf16-logits", lambda: choose((inputs.bfloat16() @ gate.bfloat16().T).float())


def indexer():
    queries, weights, keys = normal(64, 128), normal(64) / 90, normal(4096, 128)

    def scores(dtype):
        def work():
            torch.backends.cuda.matmul.allow_tf32 = False
            dots = (keys.to(dtype) @ queries.to(dtype).T).float()
            return (dots.relu() @ weights).topk(512)

        return work

    yield "fp32", scores(torch.float32)
    yield "bf16-operands", scores(torch.bfloat16)


def decode_attention():
    rows, heads, keys, width = 4, 8, 640, 512
    queries, latents = normal(rows, heads, width), normal(rows, keys, width)
    sinks = normal(heads)

    def attend(dtype):
        def work():
            torch.backends.cuda.matmul.allow_tf32 = False
            q, k = queries.to(dtype), latents.to(dtype)
            scores = (q @ k.transpose(1, 2)).float() * width**-0.5
            most = scores.amax(-1, keepdim=True)
            p = (scores - most).exp()
            total = p.sum(-1, keepdim=True) + (sinks[None, :, None] - most).exp()
            return (p.to(dtype) @ k).float() / total

        return work

    yield "f32", attend(torch.float32)
    yield "bf16", attend(torch.bfloat16)


def quantise():
    activation, weight = normal(12, 4096), normal(136, 4096) / 50

    def fp8():
        a = activation.view(12, 32, 128)
        sa = a.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
        back = ((a / sa).to(torch.float8_e4m3fn).float() * sa).view(12, 4096)
        w = torch.nn.functional.pad(weight, (0, 0, 0, 120)).view(2, 128, 32, 128)
        sw = w.abs().amax((1, 3), keepdim=True).clamp(min=1e-4) / 448
        wback = ((w / sw).to(torch.float8_e4m3fn).float() * sw).view(256, 4096)[:136]
        torch.backends.cuda.matmul.allow_tf32 = False
        return (back @ wback.T).bfloat16()

    yield "bf16", lambda: activation.bfloat16() @ weight.bfloat16().T
    yield "fp8", fp8


def norm():
    rows, weight = normal(256, 512), normal(512)
    yield "fp32", lambda: rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-6) * weight


SPECS = {
    "mhc-mix": mhc_mix,
    "router": router,
    "indexer": indexer,
    "decode-attention": decode_attention,
    "quantise": quantise,
    "norm": norm,
}


def main():
    kernels = {}
    if len(sys.argv) > 1:
        with open(sys.argv[1]) as file:
            for report in json.load(file)["reports"]:
                for kernel in (report.get("card") or {}).get("kernels", []):
                    kernels[report["spec"], kernel["candidate"]] = kernel
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for spec, works in SPECS.items():
        for (of, name), kernel in kernels.items():
            if of == spec:
                share = f"{100 * kernel['share']:.0f} % of {kernel['bound']}" if kernel["bound"] else "-"
                print(f"{spec:17} kernel   {name:28} {1e6 * kernel['seconds']:8.1f} us   {share}")
        for name, work in works():
            print(f"{spec:17} PyTorch  {name:28} {timed(work):8.1f} us")


if __name__ == "__main__":
    main()
