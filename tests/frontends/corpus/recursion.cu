// Functions that call themselves and each other.
__device__ __noinline__ int ackermann(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)); }
__device__ __noinline__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n == 0 ? false : even(n - 1); }

__device__ void sort(int *x, int low, int high) {
    if (low >= high) return;
    int pivot = x[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (x[i] < pivot) i++;
        while (x[j] > pivot) j--;
        if (i <= j) { int t = x[i]; x[i++] = x[j]; x[j--] = t; }
    }
    sort(x, low, j);
    sort(x, i, high);
}

extern "C" __global__ void recurse(int *out) { out[threadIdx.x] = ackermann(2, threadIdx.x % 5) + 1000 * even(threadIdx.x); }
extern "C" __global__ void quicksort(int *x, int n) { sort(x + threadIdx.x * n, 0, n - 1); }
