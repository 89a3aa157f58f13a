// TMA: a tile of a matrix into shared memory and out again, doubled.
#ifdef __CUDACC_RTC__
struct alignas(64) CUtensorMap { unsigned long long words[16]; };
#else
#include <cuda.h>
#endif
#include <cuda/ptx>
namespace ptx = cuda::ptx;

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void doubled(const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap target) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ uint64_t filled;
    int32_t at[2] = {(int)blockIdx.x * 32, (int)blockIdx.y * 8};
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&filled, blockDim.x);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &source, at, &filled);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &filled, sizeof(tile));
    } else {
        ptx::mbarrier_arrive(&filled);
    }
    while (!ptx::mbarrier_try_wait_parity(&filled, 0)) {}
    for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i / 32][i % 32] *= 2;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &target, at, tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}
#endif
