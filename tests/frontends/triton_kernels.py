"""Kernels of the kinds that Triton's tutorials teach, written for these tests."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def row_softmax(out, x, x_row, out_row, rows, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """A persistent kernel: each program walks over rows."""
    col = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        value = tl.load(x + row * x_row + col, mask=col < cols, other=float("-inf"))
        power = tl.exp(value - tl.max(value, 0))
        tl.store(out + row * out_row + col, power / tl.sum(power, 0), mask=col < cols)


@triton.jit
def leaky_relu(value):
    return tl.where(value >= 0, value, 0.01 * value)


@triton.jit
def grouped_order(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Tile (m, n) of a linear index, `GROUP` rows of tiles at a time, so that neighbours share operands."""
    per_group = GROUP * tiles_n
    first = index // per_group * GROUP
    height = min(tiles_m - first, GROUP)
    return first + index % per_group % height, index % per_group // height


@triton.jit
def matmul(a, b, c, M, N, K, a_m, a_k, b_k, b_n, c_m, c_n,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr):
    tile_m, tile_n = grouped_order(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    m, n, k = (tile_m * BM + tl.arange(0, BM)) % M, (tile_n * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    a_at = a + m[:, None] * a_m + k[None, :] * a_k
    b_at = b + k[:, None] * b_k + n[None, :] * b_n
    sums = tl.zeros((BM, BN), tl.float32)
    for done in range(0, K, BK):
        left = K - done
        sums = tl.dot(tl.load(a_at, mask=k[None, :] < left, other=0.0), tl.load(b_at, mask=k[:, None] < left, other=0.0), sums)
        a_at += BK * a_k
        b_at += BK * b_k
    if ACTIVATION == "leaky_relu":
        sums = leaky_relu(sums)
    m, n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    tl.store(c + m[:, None] * c_m + n[None, :] * c_n, sums.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def seeded_dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(tl.rand(seed, at) > p, value / (1 - p), 0.0), mask=at < n)


@triton.jit
def layer_norm_forward(x, out, weight, bias, means, rstds, row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * row_stride + col, mask=col < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / cols
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * row_stride + col, mask=col < cols, other=0.0).to(tl.float32)
        away = tl.where(col < cols, value - mean, 0.0)
        total += away * away
    rstd = 1 / tl.sqrt(tl.sum(total, 0) / cols + eps)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < cols
        value = tl.load(x + row * row_stride + col, mask=inside, other=0.0).to(tl.float32)
        scaled = (value - mean) * rstd * tl.load(weight + col, mask=inside) + tl.load(bias + col, mask=inside)
        tl.store(out + row * row_stride + col, scaled, mask=inside)


@triton.jit
def layer_norm_backward(dx, dy, dw, db, x, weight, means, rstds, locks, row_stride, cols, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """dx, and sums of dw and db over the rows of a group, which its CTAs add one after another under a lock."""
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < cols
    value = tl.load(x + row * row_stride + col, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(dy + row * row_stride + col, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + col, mask=inside, other=0.0).to(tl.float32)
    mean, rstd = tl.load(means + row), tl.load(rstds + row)
    normal = tl.where(inside, (value - mean) * rstd, 0.0)
    inner = tl.where(inside, scale * slope, 0.0)
    along, average = tl.sum(normal * inner, 0) / cols, tl.sum(inner, 0) / cols
    tl.store(dx + row * row_stride + col, (inner - (normal * along + average)) * rstd, mask=inside)

    group = row % GROUPS
    lock, count = locks + group, locks + GROUPS + group
    part_w, part_b = slope * normal, slope
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_w += tl.load(dw + group * cols + col, mask=inside)
        part_b += tl.load(db + group * cols + col, mask=inside)
    tl.store(dw + group * cols + col, part_w, mask=inside)
    tl.store(db + group * cols + col, part_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def sum_rows(parts_w, parts_b, dw, db, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    col = tl.program_id(0) * BN + tl.arange(0, BN)
    sum_w, sum_b = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for start in range(0, rows, BM):
        row = start + tl.arange(0, BM)
        inside = (row[:, None] < rows) & (col[None, :] < cols)
        sum_w += tl.load(parts_w + row[:, None] * cols + col[None, :], mask=inside, other=0.0)
        sum_b += tl.load(parts_b + row[:, None] * cols + col[None, :], mask=inside, other=0.0)
    tl.store(dw + col, tl.sum(sum_w, 0), mask=col < cols)
    tl.store(db + col, tl.sum(sum_b, 0), mask=col < cols)


@triton.jit
def attention_forward(q, k, v, out, logs, scale, head_stride, tokens, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """softmax(q·kᵀ·scale)·v, one head and `BM` queries a program; `logs` gets log2 of each row's sum of powers of two."""
    first = tl.program_id(0) * BM
    base = tl.program_id(1) * head_stride
    m, d = first + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + base + m[:, None] * D + d[None, :])
    highest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    mixed = tl.zeros((BM, D), tl.float32)
    scale *= 1.44269504
    end = first + BM if CAUSAL else tokens
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        keys = tl.load(k + base + n[None, :] * D + d[:, None])
        score = tl.dot(queries, keys) * scale
        if CAUSAL:
            score = tl.where(m[:, None] >= n[None, :], score, float("-inf"))
        peak = tl.maximum(highest, tl.max(score, 1))
        power = tl.exp2(score - peak[:, None])
        shrink = tl.exp2(highest - peak)
        total = total * shrink + tl.sum(power, 1)
        values = tl.load(v + base + n[:, None] * D + d[None, :])
        mixed = tl.dot(power.to(values.dtype), values, mixed * shrink[:, None])
        highest = peak
    tl.store(out + base + m[:, None] * D + d[None, :], (mixed / total[:, None]).to(out.dtype.element_ty))
    tl.store(logs + tl.program_id(1) * tokens + m, highest + tl.log2(total))


@triton.jit
def attention_delta(out, dout, delta, BM: tl.constexpr, D: tl.constexpr):
    at = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(delta + tl.program_id(0) * BM + tl.arange(0, BM), tl.sum(tl.load(out + at).to(tl.float32) * tl.load(dout + at).to(tl.float32), 1))


@triton.jit
def attention_backward(q, k, v, dout, dq, dk, dv, logs, delta, scale, head_stride, tokens,
                       CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """dk and dv of `BN` keys, then dq of as many queries; BM tokens of the other side at a time."""
    base, row = tl.program_id(1) * head_stride, tl.program_id(1) * tokens
    first = tl.program_id(0) * BN
    mine, d = first + tl.arange(0, BN), tl.arange(0, D)
    own = base + mine[:, None] * D + d[None, :]
    log2e = 1.44269504

    keys, values = tl.load(k + own), tl.load(v + own)
    dkeys, dvalues = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    for start in range(first if CAUSAL else 0, tokens, BM):
        m = start + tl.arange(0, BM)
        queries = tl.load(q + base + m[:, None] * D + d[None, :])
        slopes = tl.load(dout + base + m[:, None] * D + d[None, :])
        power = tl.exp2(tl.dot(keys, tl.trans(queries)) * (scale * log2e) - tl.load(logs + row + m)[None, :])
        if CAUSAL:
            power = tl.where(m[None, :] >= mine[:, None], power, 0.0)
        dvalues = tl.dot(power.to(slopes.dtype), slopes, dvalues)
        dscore = power * (tl.dot(values, tl.trans(slopes)) - tl.load(delta + row + m)[None, :])
        dkeys = tl.dot(dscore.to(queries.dtype), queries, dkeys)
    tl.store(dk + own, (dkeys * scale).to(dk.dtype.element_ty))
    tl.store(dv + own, dvalues.to(dv.dtype.element_ty))

    queries, slopes = tl.load(q + own), tl.load(dout + own)
    log, less = tl.load(logs + row + mine), tl.load(delta + row + mine)
    dqueries = tl.zeros((BN, D), tl.float32)
    for start in range(0, first + BN if CAUSAL else tokens, BM):
        n = start + tl.arange(0, BM)
        keys_t = tl.load(k + base + n[None, :] * D + d[:, None])
        values_t = tl.load(v + base + n[None, :] * D + d[:, None])
        power = tl.exp2(tl.dot(queries, keys_t) * (scale * log2e) - log[:, None])
        if CAUSAL:
            power = tl.where(mine[:, None] >= n[None, :], power, 0.0)
        dscore = power * (tl.dot(slopes, values_t) - less[:, None])
        dqueries = tl.dot(dscore.to(keys_t.dtype), tl.trans(keys_t), dqueries)
    tl.store(dq + own, (dqueries * scale).to(dq.dtype.element_ty))


@triton.jit
def grouped_matmul(a_pointers, b_pointers, c_pointers, sizes, strides, groups, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    """Products of several shapes in one launch: operands' addresses and sizes are read from memory."""
    tile = tl.program_id(0)
    seen = 0
    for group in range(groups):
        M, N, K = tl.load(sizes + 3 * group), tl.load(sizes + 3 * group + 1), tl.load(sizes + 3 * group + 2)
        tiles_n = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * tiles_n
        while tile >= seen and tile < seen + tiles:
            lda, ldb, ldc = tl.load(strides + 3 * group), tl.load(strides + 3 * group + 1), tl.load(strides + 3 * group + 2)
            a = tl.load(a_pointers + group).to(tl.pointer_type(tl.float16))
            b = tl.load(b_pointers + group).to(tl.pointer_type(tl.float16))
            c = tl.load(c_pointers + group).to(tl.pointer_type(tl.float16))
            index = tile - seen
            m, n, k = index // tiles_n * BM + tl.arange(0, BM), index % tiles_n * BN + tl.arange(0, BN), tl.arange(0, BK)
            a_at, b_at = a + m[:, None] * lda + k[None, :], b + k[:, None] * ldb + n[None, :]
            sums = tl.zeros((BM, BN), tl.float32)
            for _ in range(0, tl.cdiv(K, BK)):
                sums = tl.dot(tl.load(a_at), tl.load(b_at), sums)
                a_at += BK
                b_at += BK * ldb
            tl.store(c + m[:, None] * ldc + n[None, :], sums.to(tl.float16))
            tile += SMS
        seen += tiles


@triton.jit
def persistent_matmul(a, b, c, M, N, K, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
                      SPECIALIZE: tl.constexpr):
    """C = A·Bᵀ with descriptors made on the device; a program takes every SMS-th tile."""
    a_map = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b_map = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    c_map = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, SMS, flatten=not SPECIALIZE, warp_specialize=SPECIALIZE):
        tile_m, tile_n = grouped_order(tile, tiles_m, tiles_n, GROUP)
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(a_map.load([tile_m * BM, k]), b_map.load([tile_n * BN, k]).T, sums)
        c_map.store([tile_m * BM, tile_n * BN], sums.to(c.dtype.element_ty))


@triton.jit
def described_matmul(a_map, b_map, c_map, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A·Bᵀ with descriptors made on the host."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(a_map.load([m, k]), b_map.load([n, k]).T, sums)
    c_map.store([m, n], sums.to(tl.float16))


@triton.jit
def arc_sine(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.asin(tl.load(x + at, mask=at < n)), mask=at < n)
