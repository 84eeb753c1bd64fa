"""The mixing microtest at real size in numpy, to be run beside `cargo bench --bench mhc`.

The same shapes, the same roundings and the same arithmetic as `kernel::sites::alone`: f64 products, five
candidates of which two share a product, split, Sinkhorn, errors by Gram matrices, new streams in bf16.
Inputs have the same distributions, not the same bits. Prints one JSON object.

usage: mhc_numpy.py SITES WIDTH TOKENS REPEATS
"""

import json
import sys
import time

import numpy as np

EPS = 1e-6
ROUNDS = 20
RUNS = 16
TAKEN_BACK = 0.85
SCALE = np.array([1.0, 1.0, 1.2])
CANDIDATES = ["fp32", "fp32-split-k", "tf32", "bf16-weights", "bf16"]


def bf16(values):
    bits = values.astype(np.float32, copy=False).view(np.uint32)
    return ((bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)).view(np.float32)


def tf32(values):
    bits = values.view(np.uint32)
    return ((bits + (np.uint32(0xFFF) + ((bits >> 13) & 1))) & np.uint32(0xFFFFE000)).view(np.float32)


def split(mixes, base):
    """`pre`, `post` and the combination of `[.., 24]` mixes."""
    z = mixes * np.repeat(SCALE, [4, 4, 16]) + base
    pre = 1 / (1 + np.exp(-z[..., :4])) + EPS
    post = 2 / (1 + np.exp(-z[..., 4:8]))
    c = z[..., 8:].reshape(*z.shape[:-1], 4, 4)
    c = np.exp(c - c.max(-1, keepdims=True))
    c /= c.sum(-1, keepdims=True)
    c += EPS
    c /= c.sum(-2, keepdims=True) + EPS
    for _ in range(ROUNDS - 1):
        c /= c.sum(-1, keepdims=True) + EPS
        c /= c.sum(-2, keepdims=True) + EPS
    return pre, post, c


def relative(off, right):
    """Relative errors by candidate of sums over all other axes."""
    axes = tuple(range(1, off.ndim))
    return np.sqrt(off.sum(axes) / right.sum(axes[: right.ndim] if right.ndim == off.ndim else None))


def form(c, gram):
    """c^T G c for `[.., T, n, 5]` coefficients."""
    return np.einsum("...i,...i->...", c @ gram, c)


class Inputs:
    def __init__(self, sites, width, tokens):
        random = np.random.default_rng(1)
        self.sites, self.width, self.tokens = sites, width, tokens
        self.weights = random.standard_normal((1 << 20) + 4 * width, dtype=np.float32)
        self.normal = random.standard_normal((1 << 19) + 4 * width, dtype=np.float32)
        self.gains = np.ones(width, dtype=np.float32)
        self.gains[random.choice(width, 6, replace=False)] = random.uniform(20, 60, 6)
        self.base = random.standard_normal((sites, 24)) * 0.2

    def first(self):
        x = np.empty((self.tokens, 4, self.width), dtype=np.float32)
        for token in range(self.tokens):
            start = token * 40503 % (1 << 19)
            x[token] = self.normal[start : start + 4 * self.width].reshape(4, self.width) * self.gains
        return bf16(x)

    def mixing(self, site):
        inner = 4 * self.width
        starts = [(site * 24 + row) * 648391 % (1 << 20) for row in range(24)]
        return np.stack([self.weights[s : s + inner] for s in starts]) * np.float32(inner**-0.5)

    def output(self, site, mean):
        out = np.empty((self.tokens, self.width), dtype=np.float32)
        for token in range(self.tokens):
            start = ((site + 1) * self.tokens + token) * 40503 % (1 << 19)
            np.multiply(self.normal[start : start + self.width], self.gains, out=out[token])
        return bf16(out - TAKEN_BACK * mean)


def products(x, x64, mixing, clock):
    """The reference's product and those of the candidates, which are five of four products."""
    begun = time.perf_counter()
    reference = x64 @ mixing.astype(np.float64).T
    clock["f64"] += time.perf_counter() - begun
    inner = mixing.shape[1]
    exact = x @ mixing.T
    runs = np.zeros_like(exact)
    for run in range(RUNS):
        part = slice(run * inner // RUNS, (run + 1) * inner // RUNS)
        runs += x[:, part] @ mixing[:, part].T
    coarse = x @ tf32(mixing).T
    patch = x @ bf16(mixing).T
    clock["products"] += time.perf_counter() - begun
    return reference, np.stack([exact, runs, coarse, patch, bf16(patch)]).astype(np.float64)


def sweep(inputs):
    clock = {"f64": 0.0, "products": 0.0}
    begun = time.perf_counter()
    x = inputs.first()
    tokens, width = inputs.tokens, inputs.width
    errors = []
    for site in range(inputs.sites):
        v = np.empty((tokens, 5, width))
        v[:, 1:] = x
        x64 = np.ascontiguousarray(v[:, 1:]).reshape(tokens, 4 * width)
        reference, made = products(x.reshape(tokens, 4 * width), x64, inputs.mixing(site), clock)
        v[:, 0] = inputs.output(site, v[:, 1:].mean(1))
        gram = v @ v.transpose(0, 2, 1)
        scale = 1 / np.sqrt(np.einsum("tk,tk->t", x64, x64) / (4 * width) + EPS)
        mixes = np.concatenate([reference[None], made]) * scale[:, None]
        pre, post, comb = split(mixes, inputs.base[site])
        # Coefficients of (f, x0..x3): of the four new streams `[T, 4, 5]`, of the site input `[T, 1, 5]`.
        new = np.concatenate([post[..., None], comb.swapaxes(-1, -2)], -1)
        into = np.concatenate([np.zeros_like(pre[..., :1]), pre], -1)[..., None, :]
        row = [
            relative((mixes[1:] - mixes[0]) ** 2, mixes[:1] ** 2),
            relative((comb[1:] - comb[0]) ** 2, comb[:1] ** 2),
            relative(form(into[1:] - into[0], gram), form(into[:1], gram)),
            relative(form(new[1:] - new[0], gram), form(new[:1], gram)),
        ]
        right = new[0] @ v
        x = bf16(right)
        off = x - right
        floor = np.sqrt(np.vdot(off, off) / np.vdot(right, right))
        errors.append(np.array(row + [np.full(len(CANDIDATES), floor)]))
    return time.perf_counter() - begun, clock, np.sqrt((np.array(errors) ** 2).mean(0))


def main():
    sites, width, tokens, repeats = map(int, sys.argv[1:5])
    inputs = Inputs(sites, width, tokens)
    runs = [sweep(inputs) for _ in range(repeats)]
    best = min(runs, key=lambda run: run[0])
    errors = best[2]
    print(
        json.dumps(
            {
                "numpy": np.__version__,
                "seconds": [run[0] for run in runs],
                "products": [run[1]["products"] for run in runs],
                "f64": [run[1]["f64"] for run in runs],
                "errors": {name: errors[:, i].tolist() for i, name in enumerate(CANDIDATES)},
            }
        )
    )


main()
