// The double-precision library.
extern "C" __global__ void functions(const double *x, const double *y, double *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x, k = 0;
    double a = x[i], b = y[i];
#define SAVE(value) out[k++ * n + i] = (value);
    SAVE(sin(a)) SAVE(cos(a)) SAVE(tan(a)) SAVE(exp(a)) SAVE(exp2(a)) SAVE(expm1(a)) SAVE(log(b)) SAVE(log1p(b)) SAVE(log10(b))
    SAVE(pow(b, a)) SAVE(tgamma(b)) SAVE(lgamma(b)) SAVE(erf(a)) SAVE(erfc(a)) SAVE(sqrt(b)) SAVE(rsqrt(b)) SAVE(cbrt(a))
    SAVE(sinh(a)) SAVE(cosh(a)) SAVE(tanh(a)) SAVE(asin(a / 8)) SAVE(acos(a / 8)) SAVE(atan(a)) SAVE(atan2(a, b)) SAVE(asinh(a))
    SAVE(acosh(b + 1)) SAVE(atanh(a / 8)) SAVE(hypot(a, b)) SAVE(fmod(a, b)) SAVE(remainder(a, b)) SAVE(floor(a)) SAVE(ceil(a))
    SAVE(rint(a)) SAVE(trunc(a)) SAVE(round(a)) SAVE(fma(a, b, a)) SAVE(copysign(b, a)) SAVE(ldexp(a, 5)) SAVE(fdim(a, b))
    SAVE(sin(a * 1e6)) SAVE(a / b)
}
