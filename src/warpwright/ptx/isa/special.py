"""Special registers, read-only: name → type. `%tid.x` and its like are one name each; `%tid` alone is the vector of four."""

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
