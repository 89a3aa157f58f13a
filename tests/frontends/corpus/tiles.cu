// Products and transposes through shared memory.
template <int TILE>
__device__ void multiply(const float *a, const float *b, float *c, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        left[threadIdx.y][threadIdx.x] = row < n && k + threadIdx.x < n ? a[row * n + k + threadIdx.x] : 0;
        right[threadIdx.y][threadIdx.x] = col < n && k + threadIdx.y < n ? b[(k + threadIdx.y) * n + col] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
}

extern "C" __global__ void matmul16(const float *a, const float *b, float *c, int n) { multiply<16>(a, b, c, n); }

extern "C" __global__ void transpose(const float4 *x, float *out, int rows, int columns) {
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x * 4;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        float4 v = x[((blockIdx.y * 32 + y) * columns + column) / 4];
        float *to = &tile[y][threadIdx.x * 4];
        to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
    }
    __syncthreads();
    int t = threadIdx.y * blockDim.x + threadIdx.x;
    for (int i = t; i < 1024; i += blockDim.x * blockDim.y)
        out[(blockIdx.x * 32 + i / 32) * rows + blockIdx.y * 32 + i % 32] = tile[i % 32][i / 32];
}
