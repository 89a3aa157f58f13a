// printf with every kind of argument.
#ifndef __CUDACC_RTC__
#include <cstdio>
#endif
extern "C" __global__ void speak(int n) {
    if (threadIdx.x < n)
        printf("thread %d of %u: %5.2f %e %c %s %llx %%\n", threadIdx.x, blockDim.x, 1.5 * threadIdx.x, 0.001f, 'a' + threadIdx.x, "text", 1ll << 40);
    if (threadIdx.x == 0) printf("once\n");
}
