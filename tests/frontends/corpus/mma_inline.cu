// Tensor cores by inline PTX: cp.async into shared memory, ldmatrix, mma.sync, 16×8 of C a warp, K in steps of 16.
#include <cuda_fp16.h>

extern "C" __global__ void gemm(const __half *a, const __half *b, float *c, int k_total) {
    __shared__ __align__(16) __half left[2][16 * 16], right[2][8 * 16];
    int lane = threadIdx.x;
    unsigned left_at = __cvta_generic_to_shared(&left[0][0]), right_at = __cvta_generic_to_shared(&right[0][0]);
    auto fetch = [&](int k, int buffer) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(left_at + buffer * 512 + lane * 16),
                     "l"(a + (lane / 2) * k_total + k + lane % 2 * 8));
        if (lane < 16)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(right_at + buffer * 256 + lane * 16),
                         "l"(b + (lane / 2) * k_total + k + lane % 2 * 8));
        asm volatile("cp.async.commit_group;");
    };
    float sum[4] = {0, 0, 0, 0};
    fetch(0, 0);
    for (int k = 0, buffer = 0; k < k_total; k += 16, buffer ^= 1) {
        if (k + 16 < k_total) { fetch(k + 16, buffer ^ 1); asm volatile("cp.async.wait_group 1;"); }
        else asm volatile("cp.async.wait_all;");
        __syncwarp();
        unsigned x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(left_at + buffer * 512 + (lane % 16) * 32 + lane / 16 * 16));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1])
                     : "r"(right_at + buffer * 256 + (lane % 8) * 32 + lane / 8 % 2 * 16));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp();
    }
    float *row = c + lane / 4 * 8 + lane % 4 * 2;
    row[0] = sum[0]; row[1] = sum[1]; row[64] = sum[2]; row[65] = sum[3];
}
