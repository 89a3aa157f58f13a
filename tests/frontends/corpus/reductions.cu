// Sums of a block: by shared memory, by shuffles, over a grid with atomics.
extern __shared__ float dynamic[];

extern "C" __global__ void tree(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    dynamic[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) dynamic[threadIdx.x] += dynamic[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = dynamic[0];
}

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
    return value;
}

extern "C" __global__ void shuffled(const float *x, float *out, int n) {
    __shared__ float of_warp[32];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

extern "C" __global__ void counted(const int *x, int *out, int n) {
    int i = threadIdx.x;
    bool positive = i < n && x[i] > 0;
    int count = __syncthreads_count(positive);
    int all = __syncthreads_and(positive), any = __syncthreads_or(positive);
    if (i == 0) { out[0] = count; out[1] = all; out[2] = any; }
}
