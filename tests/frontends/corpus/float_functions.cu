// The single-precision library.
extern "C" __global__ void functions(const float *x, const float *y, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x, k = 0;
    float a = x[i], b = y[i];
#define SAVE(value) out[k++ * n + i] = (value);
    SAVE(sinf(a)) SAVE(cosf(a)) SAVE(tanf(a)) SAVE(expf(a)) SAVE(exp2f(a)) SAVE(expm1f(a)) SAVE(logf(b)) SAVE(log1pf(b)) SAVE(log10f(b))
    SAVE(powf(b, a)) SAVE(tgammaf(b)) SAVE(lgammaf(b)) SAVE(erff(a)) SAVE(erfcf(a)) SAVE(sqrtf(b)) SAVE(rsqrtf(b)) SAVE(cbrtf(a))
    SAVE(sinhf(a)) SAVE(coshf(a)) SAVE(tanhf(a)) SAVE(asinf(a / 8)) SAVE(acosf(a / 8)) SAVE(atanf(a)) SAVE(atan2f(a, b)) SAVE(asinhf(a))
    SAVE(acoshf(b + 1)) SAVE(atanhf(a / 8)) SAVE(hypotf(a, b)) SAVE(fmodf(a, b)) SAVE(remainderf(a, b)) SAVE(floorf(a)) SAVE(ceilf(a))
    SAVE(rintf(a)) SAVE(truncf(a)) SAVE(roundf(a)) SAVE(fmaf(a, b, a)) SAVE(copysignf(b, a)) SAVE(ldexpf(a, 5)) SAVE(fdimf(a, b))
    SAVE(sinf(a * 1e6f)) SAVE(__expf(a)) SAVE(__fdividef(a, b)) SAVE(a / b)
}
