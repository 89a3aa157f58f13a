// Memory barriers by cuda::ptx: a producer warp and consumers, and a bulk copy that the barrier counts.
#include <cuda/ptx>
namespace ptx = cuda::ptx;

extern "C" __global__ void producer(const int *x, int *out, int rounds) {
    __shared__ uint64_t full, empty;
    __shared__ int box[32];
    if (threadIdx.x == 0) { ptx::mbarrier_init(&full, 32); ptx::mbarrier_init(&empty, 32); }
    __syncthreads();
    int lane = threadIdx.x % 32, sum = 0;
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x < 32) {
            if (round) while (!ptx::mbarrier_test_wait_parity(&empty, (round - 1) & 1)) {}
            box[lane] = x[round * 32 + lane];
            ptx::mbarrier_arrive(&full);
        } else {
            while (!ptx::mbarrier_test_wait_parity(&full, round & 1)) {}
            sum += box[31 - lane];
            ptx::mbarrier_arrive(&empty);
        }
    }
    if (threadIdx.x >= 32) out[lane] = sum;
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void bulk(const int *x, int *out, int n) {
    __shared__ alignas(128) int tile[256];
    __shared__ uint64_t filled;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&filled, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &filled, 4 * n);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x + blockIdx.x * n, 4 * n, &filled);
    }
    while (!ptx::mbarrier_try_wait_parity(&filled, 0)) {}
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = 3 * tile[i] + 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * n, tile, 4 * n);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}
#endif
