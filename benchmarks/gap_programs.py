# SPDX-License-Identifier: Apache-2.0
"""Programs of several kinds, a line each, for gaps.py: (name, kind, forward, arguments, inputs).

``{R}`` is rows of 4096 float32 (16 KiB each), ``{B}`` a batch; both depend on the device. ``streaming`` programs read
each input once and write each output once with little work an element; the other kinds say what else they do.
"""

ROW = "torch.randn({R}, 4096)"
HALF = "torch.randn({R}, 8192).bfloat16()"
PICTURE = "torch.randn({B}, 64, 112, 112)"
WIDE = "torch.randn({B} * 64, 1024)"
HEADS = "torch.randn({B}, 16, 512, 64)"

PROGRAMS = [
    ("add", "streaming", "x + y", "x, y", f"{ROW}, {ROW}"),
    ("axpby", "streaming", "1.5 * x + 0.25 * y", "x, y", f"{ROW}, {ROW}"),
    ("relu", "streaming", "F.relu(x)", "x", ROW),
    ("silu_gate", "streaming", "F.silu(x) * y", "x, y", f"{ROW}, {ROW}"),
    ("sigmoid", "streaming", "torch.sigmoid(x)", "x", ROW),
    ("hardswish_bf16", "streaming", "F.hardswish(x)", "x", HALF),
    ("add_bf16", "streaming", "x + y", "x, y", f"{HALF}, {HALF}"),
    ("to_bf16", "streaming", "x.bfloat16()", "x", ROW),
    ("clamp_abs", "streaming", "x.abs().clamp_max(1.0)", "x", ROW),
    ("where", "streaming", "torch.where(m, x, y)", "m, x, y", f"{ROW} > 0, {ROW}, {ROW}"),
    ("bias_relu", "streaming", "F.relu(x + b)", "x, b", f"{ROW}, torch.randn(4096)"),
    ("sum_rows", "streaming", "x.sum(1)", "x", ROW),
    ("sum_columns", "streaming", "x.sum(0)", "x", ROW),
    ("mean_all", "streaming", "x.mean()", "x", ROW),
    ("max_rows", "streaming", "x.amax(1)", "x", ROW),
    ("norm_rows", "streaming", "x.norm(dim=1)", "x", ROW),
    ("variance", "streaming", "x.var(1)", "x", ROW),
    ("l2_normalise", "streaming", "F.normalize(x, dim=1)", "x", ROW),
    ("layer_norm", "streaming", "F.layer_norm(x, (4096,))", "x", ROW),
    ("softmax_scaled", "streaming", "torch.softmax(x * 0.125, 1)", "x", ROW),
    ("mse", "streaming", "F.mse_loss(x, y)", "x, y", f"{ROW}, {ROW}"),
    ("huber", "streaming", "F.smooth_l1_loss(x, y)", "x, y", f"{ROW}, {ROW}"),
    ("hinge", "streaming", "(1 - x * y).clamp_min(0).mean()", "x, y", f"{ROW}, {ROW}"),
    ("cosine", "streaming", "F.cosine_similarity(x, y, dim=1)", "x, y", f"{ROW}, {ROW}"),
    ("bytes_xor", "streaming", "x ^ 85", "x", "torch.randint(0, 255, ({R} * 16384,), dtype=torch.uint8)"),
    ("axpy_double", "streaming", "x * 3.0 + y", "x, y", f"{ROW}.double(), {ROW}.double()"),
    ("matvec", "streaming", "x @ v", "x, v", f"{ROW}, torch.randn(4096)"),
    ("outer", "streaming", "a[:, None] * b[None, :]", "a, b", "torch.randn({R}), torch.randn(4096)"),
    ("transpose", "layout", "x.t().contiguous()", "x", ROW),
    ("to_channels_last", "layout", "x.permute(0, 2, 3, 1).contiguous()", "x", PICTURE),
    ("concatenate", "layout", "torch.cat([x, y], 1)", "x, y", f"{ROW}, {ROW}"),
    ("flip", "layout", "x.flip(1)", "x", ROW),
    ("roll", "layout", "x.roll(7, 1)", "x", ROW),
    ("pad", "layout", "F.pad(x, (1, 1, 1, 1))", "x", PICTURE),
    ("embedding", "gather", "F.embedding(i, w)", "i, w", "torch.randint(0, 50000, ({R},)), torch.randn(50000, 1024)"),
    ("gather_columns", "gather", "x.gather(1, i)", "x, i", f"{ROW}, torch.randint(0, 4096, ({{R}}, 4096))"),
    ("index_add", "gather", "torch.zeros(1024, 4096, device=x.device).index_add(0, i, x)", "x, i",
     f"{ROW}, torch.randint(0, 1024, ({{R}},))"),
    ("bin_count", "gather", "torch.bincount(i, minlength=256)", "i", "torch.randint(0, 256, ({R} * 1024,))"),
    ("cumulative_sum", "scan", "x.cumsum(1)", "x", ROW),
    ("cumulative_product", "scan", "x.cumprod(1)", "x", ROW),
    ("sort_rows", "sort", "x.sort(1).values", "x", ROW),
    ("top_k", "sort", "x.topk(32, 1).values", "x", ROW),
    ("median", "sort", "x.median(1).values", "x", ROW),
    ("max_pool", "window", "F.max_pool2d(x, 3, 2, 1)", "x", PICTURE),
    ("average_pool", "window", "F.avg_pool2d(x, 2)", "x", PICTURE),
    ("global_pool", "window", "x.mean((2, 3))", "x", PICTURE),
    ("upsample", "window", "F.interpolate(x, scale_factor=2.0, mode='bilinear')", "x", PICTURE),
    ("group_norm", "normalisation", "F.group_norm(x, 8)", "x", PICTURE),
    ("instance_norm", "normalisation", "F.instance_norm(x)", "x", PICTURE),
    ("batch_norm", "normalisation", "F.batch_norm(x, None, None, training=True)", "x", PICTURE),
    ("convolution", "convolution", "F.conv2d(x, w, padding=1)", "x, w", f"{PICTURE}, torch.randn(64, 64, 3, 3) / 20"),
    ("depthwise", "convolution", "F.conv2d(x, w, padding=1, groups=64)", "x, w",
     f"{PICTURE}, torch.randn(64, 1, 3, 3)"),
    ("pointwise_convolution", "convolution", "F.conv2d(x, w)", "x, w", f"{PICTURE}, torch.randn(64, 64, 1, 1) * 0.1"),
    ("product", "product", "x @ w", "x, w", f"{WIDE}, torch.randn(1024, 1024) * 0.03"),
    ("product_bf16", "product", "x @ w", "x, w", f"{WIDE}.bfloat16(), (torch.randn(1024, 1024) * 0.03).bfloat16()"),
    ("batched_product", "product", "x @ y", "x, y", f"{HEADS}, {HEADS}.transpose(2, 3).contiguous()"),
    ("gated_layer", "product", "F.silu(x @ w) * (x @ v)", "x, w, v",
     f"{WIDE}, torch.randn(1024, 1024) * 0.03, torch.randn(1024, 1024) * 0.03"),
    ("pairwise_distance", "product", "torch.cdist(x, y)", "x, y", f"{WIDE}, torch.randn(1024, 1024)"),
    ("attention", "attention", "torch.softmax(q @ k.transpose(2, 3) * 0.125, -1) @ v", "q, k, v",
     f"{HEADS}, {HEADS}, {HEADS}"),
    ("flash", "attention", "F.scaled_dot_product_attention(q, k, v, is_causal=True)", "q, k, v",
     f"{HEADS}, {HEADS}, {HEADS}"),
    ("polynomial", "arithmetic", "((((x * 0.1 + 0.2) * x + 0.3) * x + 0.4) * x + 0.5) * x + torch.sin(x) ** 3", "x",
     ROW),
    ("gelu_exact", "arithmetic", "F.gelu(x)", "x", ROW),
    ("log_gamma", "arithmetic", "torch.lgamma(x.abs() + 0.5)", "x", ROW),
    ("fft", "arithmetic", "torch.fft.rfft(x).abs()", "x", ROW),
    ("tiny_mlp", "tiny", "F.relu(x @ w) @ w", "x, w", "torch.randn(16, 64), torch.randn(64, 64)"),
    ("tiny_softmax", "tiny", "torch.softmax(x, 1)", "x", "torch.randn(8, 128)"),
    ("tiny_norm", "tiny", "F.layer_norm(x, (256,))", "x", "torch.randn(4, 256)"),
    ("small_batch_layer", "tiny", "x @ w", "x, w", "torch.randn(1, 1024), torch.randn(1024, 1024)"),
]  # fmt: skip
SIZES = {"cuda": {"R": 32768, "B": 64}, "cpu": {"R": 2048, "B": 4}}


def rows(device):
    """The programs as rows that ``benchmarks.planted.run.task`` takes, at the sizes of a kind of device."""
    found = []
    for name, kind, forward, arguments, inputs in PROGRAMS:
        text = inputs
        for key, value in SIZES[device].items():
            text = text.replace("{" + key + "}", str(value))
        found.append({"name": name, "kind": kind, "forward": forward, "args": arguments, "inputs": f"[{text}]"})
    return found
