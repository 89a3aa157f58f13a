"""Special registers, read-only: name → type, and what the newer ones need. `%tid.x` and its like are one name each; `%tid` alone is the
vector of four."""

from warpwright.ptx.isa.table import Need

SPECIAL: dict[str, str] = {
    "%laneid": "u32", "%warpid": "u32", "%nwarpid": "u32", "%smid": "u32", "%nsmid": "u32", "%gridid": "u64",
    "%is_explicit_cluster": "pred", "%cluster_ctarank": "u32", "%cluster_nctarank": "u32",
    "%lanemask_eq": "u32", "%lanemask_le": "u32", "%lanemask_lt": "u32", "%lanemask_ge": "u32", "%lanemask_gt": "u32",
    "%clock": "u32", "%clock_hi": "u32", "%clock64": "u64", "%globaltimer": "u64", "%globaltimer_lo": "u32", "%globaltimer_hi": "u32",
    "%reserved_smem_offset_begin": "b32", "%reserved_smem_offset_end": "b32", "%reserved_smem_offset_cap": "b32",
    "%total_smem_size": "u32", "%aggr_smem_size": "u32", "%dynamic_smem_size": "u32", "%current_graph_exec": "u64",
    **{f"%reserved_smem_offset_{i}": "b32" for i in range(2)},
    **{f"%envreg{i}": "b32" for i in range(32)},
    **{f"%pm{i}": "u32" for i in range(8)},
    **{f"%pm{i}_64": "u64" for i in range(8)},
}

# Vectors of four: the whole under the bare name, and a part under each component's.
VECTORS = ("%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid")
for _name in VECTORS:
    SPECIAL.update({f"{_name}.{part}": "u32" for part in "xyzw"})

_CLUSTER = Need((7, 8), 90)
NEEDS: dict[str, Need] = {
    **{name: _CLUSTER for name in SPECIAL if "cluster" in name}, **{name: _CLUSTER for name in VECTORS if "cluster" in name},
    "%aggr_smem_size": Need((8, 1), 90), "%total_smem_size": Need((4, 1), 20), "%dynamic_smem_size": Need((4, 1), 20),
    "%current_graph_exec": Need((8, 0), 50), **{name: Need((7, 6), 80) for name in SPECIAL if name.startswith("%reserved_smem")},
    **{name: Need((3, 0), 20) for name in SPECIAL if name.startswith("%globaltimer_")}, "%globaltimer": Need((3, 1), 30),
    **{f"%pm{i}_64": Need((4, 0), 50) for i in range(8)},
}
