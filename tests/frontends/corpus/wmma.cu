// Tensor cores as CUDA C++ gives them: nvcuda::wmma in every type.
#include <mma.h>
using namespace nvcuda;

template <typename T, typename Sum, int M, int N, int K, typename Fragment = T>
__device__ void tile(const T *a, const T *b, Sum *c) {
    wmma::fragment<wmma::matrix_a, M, N, K, Fragment, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, M, N, K, Fragment, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::fill_fragment(sum, Sum(1));
    wmma::load_matrix_sync(left, a, K);
    wmma::load_matrix_sync(right, b, K);
    for (int i = 0; i < left.num_elements; i++) left.x[i] = left.x[i] + left.x[i];
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, N, wmma::mem_row_major);
}

extern "C" __global__ void half_float(const __half *a, const __half *b, float *c) { tile<__half, float, 16, 16, 16>(a, b, c); }
extern "C" __global__ void half_half(const __half *a, const __half *b, __half *c) { tile<__half, __half, 32, 8, 16>(a, b, c); }
extern "C" __global__ void bfloat(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) { tile<__nv_bfloat16, float, 8, 32, 16>(a, b, c); }
extern "C" __global__ void bytes(const signed char *a, const signed char *b, int *c) { tile<signed char, int, 16, 16, 16>(a, b, c); }
extern "C" __global__ void doubles(const double *a, const double *b, double *c) { tile<double, double, 8, 8, 4>(a, b, c); }
extern "C" __global__ void tensor_float(const float *a, const float *b, float *c) { tile<float, float, 16, 16, 8, wmma::precision::tf32>(a, b, c); }
