// Asynchronous copies by cuda_pipeline.h, four stages deep.
#include <cuda_pipeline.h>

extern "C" __global__ void moving_sum(const int *x, int *out, int tiles) {
    __shared__ int stage[4][128];
    auto fetch = [&](int tile) {
        if (tile < tiles) __pipeline_memcpy_async(&stage[tile % 4][threadIdx.x], x + tile * 128 + threadIdx.x, 4);
        __pipeline_commit();
    };
    for (int tile = 0; tile < 3; tile++) fetch(tile);
    int sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        fetch(tile + 3);
        __pipeline_wait_prior(3);
        __syncthreads();
        sum += stage[tile % 4][threadIdx.x] * (tile + 1) + stage[tile % 4][127 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
