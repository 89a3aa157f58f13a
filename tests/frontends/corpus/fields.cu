// Stencils, fractals and random walks: floating-point loops with data-dependent ends.
extern "C" __global__ void mandelbrot(int *out, int width, int height, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    double cx = -2.0 + 3.0 * px / width, cy = -1.5 + 3.0 * py / height, x = 0, y = 0;
    int steps = 0;
    while (x * x + y * y <= 4 && steps < limit) {
        double t = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = t;
        steps++;
    }
    out[py * width + px] = steps;
}

extern "C" __global__ void laplace(const float *x, float *out, int width, int height) {
    __shared__ float tile[10][34];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    auto at = [&](int row, int col) { return row < 0 || col < 0 || row >= height || col >= width ? 0.0f : x[row * width + col]; };
    for (int i = threadIdx.y; i < 10; i += 8)
        for (int j = threadIdx.x; j < 34; j += 32) tile[i][j] = at(blockIdx.y * 8 + i - 1, blockIdx.x * 32 + j - 1);
    __syncthreads();
    int i = threadIdx.y + 1, j = threadIdx.x + 1;
    if (r < height && c < width)
        out[r * width + c] = tile[i - 1][j] + tile[i + 1][j] + tile[i][j - 1] + tile[i][j + 1] - 4 * tile[i][j];
}

extern "C" __global__ void walk(unsigned long long *out, int steps) {
    unsigned long long state = threadIdx.x * 0x9e3779b97f4a7c15ull + 1;
    for (int i = 0; i < steps; i++) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; }
    out[threadIdx.x] = state;
}
