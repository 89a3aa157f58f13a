// Integer arithmetic: division of 64 and 128 bits, bit tricks, packed bytes.
extern "C" __global__ void wide(const long long *x, const long long *y, long long *out) {
    int i = threadIdx.x, n = blockDim.x;
    long long a = x[i], b = y[i];
    unsigned long long u = a, v = b;
    out[0 * n + i] = a / b;
    out[1 * n + i] = a % b;
    out[2 * n + i] = u / v;
    out[3 * n + i] = u % v;
    out[4 * n + i] = __mul64hi(a, b);
    out[5 * n + i] = __umul64hi(u, v);
    unsigned __int128 product = (unsigned __int128)u * v;
    out[6 * n + i] = (long long)(product >> 37);
    out[7 * n + i] = (long long)((product + u) / (v | 1));
    out[8 * n + i] = __clzll(a) + 100 * __ffsll(a) + 10000 * __popcll(a);
    out[9 * n + i] = __brevll(u);
    out[10 * n + i] = a >> (b & 63);
    out[11 * n + i] = (int)a / ((int)b | 1) + (int)a % 7;
}

extern "C" __global__ void narrow(const int *x, const int *y, int *out) {
    int i = threadIdx.x, n = blockDim.x;
    int a = x[i], b = y[i];
    out[0 * n + i] = __clz(a) + 100 * __ffs(a) + 10000 * __popc(a);
    out[1 * n + i] = __brev(a);
    out[2 * n + i] = __byte_perm(a, b, 0x5140);
    out[3 * n + i] = __funnelshift_l(a, b, 11);
    out[4 * n + i] = __funnelshift_r(a, b, b);
    out[5 * n + i] = __dp4a(a, b, 17);
    out[6 * n + i] = __mulhi(a, b);
    out[7 * n + i] = __sad(a, b, 5);
    out[8 * n + i] = __vadd4(a, b);
    out[9 * n + i] = __vabsdiffu4(a, b);
    out[10 * n + i] = __vmaxs2(a, b);
    out[11 * n + i] = __rhadd(a, b);
    out[12 * n + i] = abs(a) + min(a, b) * 3 + (a > b ? a - b : 1);
    out[13 * n + i] = (short)a * (short)b + (signed char)a + (unsigned char)b;
    out[14 * n + i] = (unsigned)a / (((unsigned)b & 1023u) + 1u);
    out[15 * n + i] = __vcmpgtu4(a, b);
}
