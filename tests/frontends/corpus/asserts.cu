// assert and __trap.
#ifndef __CUDACC_RTC__
#include <cassert>
#endif
extern "C" __global__ void positive(const int *x) { assert(x[threadIdx.x] > 0 && "every x is positive"); }
extern "C" __global__ void trap_at(int thread) { if (threadIdx.x == thread) __trap(); }
