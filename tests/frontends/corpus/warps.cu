// What the lanes of a warp tell each other.
extern "C" __global__ void lanes(const int *x, unsigned *out) {
    int lane = threadIdx.x, value = x[lane];
    unsigned *mine = out + lane;
    mine[0 * 32] = __shfl_sync(~0u, value, 5);
    mine[1 * 32] = __shfl_up_sync(~0u, value, 3);
    mine[2 * 32] = __shfl_down_sync(~0u, value, 7, 16);
    mine[3 * 32] = __shfl_xor_sync(~0u, value, 9);
    mine[4 * 32] = __ballot_sync(~0u, value > 3);
    mine[5 * 32] = __any_sync(~0u, value > 8) + 2 * __all_sync(~0u, value >= 0);
    mine[6 * 32] = __match_any_sync(~0u, value);
    int same;
    mine[7 * 32] = __match_all_sync(~0u, value / 100, &same) + same;
    mine[8 * 32] = __reduce_add_sync(~0u, value);
    mine[9 * 32] = __reduce_max_sync(~0u, value);
    mine[10 * 32] = __reduce_xor_sync(~0u, (unsigned)value);
    mine[11 * 32] = 0;
    if (lane % 3 == 1) mine[11 * 32] = __activemask();
    mine[12 * 32] = __shfl_sync(~0u, (double)value * 1e10, 31 - lane) / 1e10;
    if (lane < 20) mine[13 * 32] = __reduce_min_sync(0xfffffu, value);
    else mine[13 * 32] = __shfl_sync(0xfff00000u, value, 25);
}
