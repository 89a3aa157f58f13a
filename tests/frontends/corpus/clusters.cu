// Clusters: each CTA reads its neighbours' shared memory.
#include <cuda/ptx>
namespace ptx = cuda::ptx;

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring(const int *x, int *out) {
    __shared__ int own[64];
    unsigned rank = ptx::get_sreg_cluster_ctarank(), size = ptx::get_sreg_cluster_nctarank();
    int i = threadIdx.x;
    own[i] = x[blockIdx.x * 64 + i];
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    unsigned here = __cvta_generic_to_shared(own + i), there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"((rank + 1) % size));
    int next;
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(next) : "r"(there) : "memory");
    asm volatile("red.shared::cluster.add.s32 [%0], %1;" :: "r"(there), "r"(0) : "memory");
    out[blockIdx.x * 64 + i] = own[i] * 1000 + next;
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
}
#endif
