// FP16 and BF16: conversions and arithmetic, one and two at a time.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void half_math(const float *x, const float *y, float *out) {
    int i = threadIdx.x, n = blockDim.x;
    __half a = __float2half_rn(x[i]), b = __float2half_rn(y[i]);
    out[0 * n + i] = __half2float(a + b);
    out[1 * n + i] = __half2float(a * b);
    out[2 * n + i] = __half2float(__hfma(a, b, a));
    out[3 * n + i] = __half2float(a / b);
    out[4 * n + i] = __half2float(hsqrt(__habs(a)));
    out[5 * n + i] = __half2float(hexp2(a));
    out[6 * n + i] = __hgt(a, b);
    out[7 * n + i] = __half2int_rz(a);
    out[8 * n + i] = __half2float(__hmax(a, b));
    __half2 pair = __hfma2(__halves2half2(a, b), __half2half2(b), __float2half2_rn(0.5f));
    out[9 * n + i] = __low2float(pair) + 64 * __high2float(pair);
    out[10 * n + i] = __half2float(htanh(a));
    out[11 * n + i] = __half2float(hsin(a));
}

extern "C" __global__ void bfloat_math(const float *x, const float *y, float *out) {
    int i = threadIdx.x, n = blockDim.x;
    __nv_bfloat16 a = __float2bfloat16_rn(x[i]), b = __float2bfloat16_rn(y[i]);
    out[0 * n + i] = __bfloat162float(a + b);
    out[1 * n + i] = __bfloat162float(a * b);
    out[2 * n + i] = __bfloat162float(__hfma(a, b, a));
    out[3 * n + i] = __bfloat162float(__hmin(a, b));
    __nv_bfloat162 pair = __hmul2(__floats2bfloat162_rn(x[i], y[i]), __floats2bfloat162_rn(2.0f, 0.5f));
    out[4 * n + i] = __low2float(pair) + __high2float(pair);
    out[5 * n + i] = __bfloat162float(__float2bfloat16_rz(x[i]));
    out[6 * n + i] = __bfloat162float(__int2bfloat16_rn(1001 * i));
}
