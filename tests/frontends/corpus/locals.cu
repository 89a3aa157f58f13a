// Arrays of a thread with indices that are data; structures as parameters.
struct Matrix { float m[4][4]; int tag; };
struct Small { char a; short b; double c; };

extern "C" __global__ void apply(Matrix matrix, Small small, const float4 *x, float4 *out) {
    float in[4] = {x[threadIdx.x].x, x[threadIdx.x].y, x[threadIdx.x].z, x[threadIdx.x].w}, sums[4];
    for (int r = 0; r < 4; r++) {
        sums[r] = 0;
        for (int c = 0; c < 4; c++) sums[r] += matrix.m[r][c] * in[c];
    }
    int first = (threadIdx.x + matrix.tag) % 4;
    out[threadIdx.x] = make_float4(sums[first], sums[(first + 1) % 4], small.a + small.b, small.c);
}

extern "C" __global__ void digits(const int *x, int *out, int base) {
    int stack[32], top = 0, value = x[threadIdx.x], reversed = 0;
    while (value) { stack[top++] = value % base; value /= base; }
    for (int i = 0; i < top; i++) reversed = reversed * base + stack[i];
    out[threadIdx.x] = reversed * 100 + top;
}
