// Every atomic function, many threads on few words.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void integers(int *i, unsigned *u, unsigned long long *l) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(i + 0, t);       atomicSub(i + 1, 3);         atomicMin(i + 2, 50 - t);    atomicMax(i + 3, t - 50);
    atomicAnd(i + 4, ~(1 << t % 5)); atomicOr(i + 5, 1 << t % 7); atomicXor(i + 6, t);     atomicExch(i + 7, 77);
    atomicInc(u + 0, 9);       atomicDec(u + 1, 6);         atomicMax(u + 2, t * 3u);    atomicMin(u + 3, 1000u - t);
    atomicAdd(l + 0, 1ull << 33); atomicMax(l + 1, 1ull << (t % 60)); atomicXor(l + 2, (unsigned long long)t << 20);
    atomicAdd_block(u + 4, 1u); atomicAdd_system(u + 5, 2u);
    if (atomicCAS(u + 6, 0u, 1u + t) == 0u) atomicAdd(u + 7, 1u);
    for (unsigned long long seen = l[3], next; ; seen = next) {  // a sum of squares by compare and swap
        next = atomicCAS(l + 3, seen, seen + t * (unsigned long long)t);
        if (next == seen) break;
    }
}

extern "C" __global__ void floats(float *f, double *d, __half2 *h, __nv_bfloat162 *b) {
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    atomicAdd(h, __floats2half2_rn(1.0f, 0.5f));
    atomicAdd(b, __floats2bfloat162_rn(1.0f, 2.0f));
    atomicAdd((__half *)(h + 1), __float2half(0.25f));
    atomicExch(f + 1, 3.5f);
}

extern "C" __global__ void histogram(const unsigned char *x, int n, unsigned *out) {
    __shared__ unsigned bins[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(bins + x[i], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) if (bins[b]) atomicAdd(out + b, bins[b]);
}
