// FP8 in both formats, there and back.
#include <cuda_fp8.h>

extern "C" __global__ void round_trip(const float *x, unsigned char *e4m3, unsigned char *e5m2, float *from_e4m3, float *from_e5m2) {
    int i = threadIdx.x;
    __nv_fp8_e4m3 a(x[i]);
    __nv_fp8_e5m2 b(x[i]);
    e4m3[i] = a.__x;
    e5m2[i] = b.__x;
    from_e4m3[i] = float(a);
    from_e5m2[i] = float(b);
}

extern "C" __global__ void pairs(const float2 *x, unsigned short *out, float2 *back) {
    __nv_fp8x2_e4m3 both(x[threadIdx.x]);
    out[threadIdx.x] = both.__x;
    back[threadIdx.x] = float2(both);
}
