// Variables of the module: constant, global, initialised, pointing at each other.
__constant__ float weights[8] = {1, -2, 3.5f, 0.25f, 5, 6, 7, 8};
__constant__ struct { int a; double b; short c[3]; } mixed = {7, 2.5, {1, -2, 3}};
__device__ int counter = 5;
__device__ int numbers[4] = {10, 20, 30, 40};
__device__ int *pointer = numbers + 2;
__device__ const char *words[] = {"warp", "wright"};

extern "C" __global__ void read(float *out) {
    int i = threadIdx.x;
    out[i] = weights[i % 8] * mixed.a + mixed.b + mixed.c[i % 3] + pointer[i % 2] + words[i % 2][i % 4];
}

extern "C" __global__ void count(int *out) {
    int before = atomicAdd(&counter, 1);
    __syncthreads();
    if (threadIdx.x == 0) *out = counter;
    if (before < 0) numbers[0] = 1;
}
