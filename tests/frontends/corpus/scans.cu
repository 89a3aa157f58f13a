// Prefix sums and sorting networks in shared memory.
extern "C" __global__ void prefix(const int *x, int *out) {
    extern __shared__ int buffer[];
    int i = threadIdx.x, n = blockDim.x, side = 0;
    buffer[i] = x[blockIdx.x * n + i];
    for (int step = 1; step < n; step *= 2) {
        __syncthreads();
        buffer[(1 - side) * n + i] = buffer[side * n + i] + (i >= step ? buffer[side * n + i - step] : 0);
        side = 1 - side;
    }
    out[blockIdx.x * n + i] = buffer[side * n + i];
}

extern "C" __global__ void bitonic(float *x) {
    __shared__ float values[256];
    int i = threadIdx.x;
    values[i] = x[i];
    for (int size = 2; size <= 256; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            int other = i ^ step;
            if (other > i && (values[i] > values[other]) == !(i & size)) {
                float t = values[i];
                values[i] = values[other];
                values[other] = t;
            }
        }
    __syncthreads();
    x[i] = values[i];
}
