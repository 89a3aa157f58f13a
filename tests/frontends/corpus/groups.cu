// Cooperative groups: tiles of a warp, coalesced lanes, the block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void grouped(const int *x, int *out) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int i = block.thread_rank(), n = block.size();
    out[0 * n + i] = cg::reduce(tile, x[i], cg::plus<int>());
    out[1 * n + i] = tile.shfl_xor(x[i], 3) + 100 * tile.thread_rank() + 10000 * tile.meta_group_rank();
    out[2 * n + i] = -1;
    if (x[i] % 2) {
        cg::coalesced_group odd = cg::coalesced_threads();
        out[2 * n + i] = 100 * odd.size() + odd.thread_rank();
    }
    out[3 * n + i] = cg::inclusive_scan(tile, x[i]);
    out[4 * n + i] = cg::exclusive_scan(tile, x[i], cg::greater<int>());
    block.sync();
    out[5 * n + i] = out[n - 1 - i];
    auto labeled = cg::labeled_partition(cg::coalesced_threads(), x[i] % 3);
    out[6 * n + i] = labeled.size();
}
