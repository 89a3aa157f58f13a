"""How a launch is laid out: grid, block and cluster, checked against the part and the kernel's directives; how many CTAs are resident at once."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

from warpwright.cpu.parts import Part
from warpwright.errors import LaunchError
from warpwright.ptx import tree

Dimensions = int | Sequence[int]
Triple = tuple[int, int, int]


def three(value: Dimensions, what: str) -> Triple:
    """A grid, block or cluster as (x, y, z)."""
    if type(value) is int:
        return value, 1, 1
    values = (value,) if isinstance(value, numbers.Integral) else tuple(value)  # type: ignore[arg-type]
    if not 1 <= len(values) <= 3 or not all(isinstance(v, numbers.Integral) for v in values):
        raise LaunchError(f"{what}={value!r}: give one to three whole numbers")
    x, y, z = (*map(int, values), 1, 1)[:3]
    return x, y, z


class Shape:
    """A launch's layout. grid, cluster: in CTAs. named: the launch or the kernel names a cluster. shared_bytes: dynamic, a CTA.

    ctas, threads (of a CTA), warps (of a CTA), ranks (CTAs a cluster): what follows from these.
    """

    __slots__ = ("block", "cluster", "cooperative", "ctas", "grid", "named", "ranks", "shared_bytes", "threads", "warps")

    def __init__(self, grid: Triple, block: Triple, cluster: Triple = (1, 1, 1), named: bool = False, shared_bytes: int = 0,
                 cooperative: bool = False):
        self.grid, self.block, self.cluster, self.named = grid, block, cluster, named
        self.shared_bytes, self.cooperative = shared_bytes, cooperative
        self.ctas, self.threads, self.ranks = math.prod(grid), math.prod(block), math.prod(cluster)
        self.warps = -(-self.threads // 32)


class Stated:
    """What a kernel's directives say of its launches; numbers are None where nothing is said."""

    def __init__(self, function: tree.Function):
        words = {directive.name: [int(word) for word in directive.words if word.isdigit()] for directive in function.directives}

        def whole(name: str) -> Triple | None:
            return (*words[name], 1, 1)[:3] if name in words else None  # type: ignore[return-value]

        def number(name: str) -> int | None:
            return words[name][0] if words.get(name) else None

        self.block, self.cluster = whole("reqntid"), whole("reqnctapercluster")
        self.most_threads = math.prod(words["maxntid"]) if "maxntid" in words else math.prod(self.block) if self.block else None
        self.explicit_cluster, self.blocks_are_clusters = "explicitcluster" in words, "blocksareclusters" in words
        self.most_ranks, self.registers, self.ctas_per_sm = number("maxclusterrank"), number("maxnreg"), number("minnctapersm")


def check_block(name: str, stated: Stated, part: Part, block: Triple) -> None:
    """Raises LaunchError where the part or the kernel does not take a block."""
    threads = math.prod(block)
    for value, limit, axis in zip(block, part.block, "xyz", strict=True):
        if not 1 <= value <= limit:
            raise LaunchError(f"kernel {name}: block {block} has {axis}={value}; {part.name} takes 1 to {limit}")
    if threads > part.threads_per_cta:
        raise LaunchError(f"kernel {name}: block {block} has {threads} threads; {part.name} takes at most {part.threads_per_cta} a CTA")
    if stated.block is not None and stated.block != block:
        raise LaunchError(f"kernel {name} requires block {stated.block} (.reqntid); {block} was given")
    if stated.most_threads is not None and threads > stated.most_threads:
        raise LaunchError(f"kernel {name} takes at most {stated.most_threads} threads (.maxntid); block {block} has {threads}")


def check_cluster(name: str, stated: Stated, part: Part, asked: Dimensions | None, non_portable: bool) -> tuple[Triple, bool]:
    """The cluster of a launch, and whether the launch or the kernel names one. Raises LaunchError where the part or the kernel refuses it."""
    given = three(asked, "cluster") if asked is not None else None
    if given is not None and stated.cluster is not None and given != stated.cluster:
        raise LaunchError(f"kernel {name} requires cluster {stated.cluster} (.reqnctapercluster); {given} was given")
    cluster = given or stated.cluster
    if cluster is None:
        if stated.explicit_cluster:
            raise LaunchError(f"kernel {name} wants a cluster (.explicitcluster): launch(…, cluster=(x, y, z))")
        return (1, 1, 1), False
    ranks = math.prod(cluster)
    if min(cluster) < 1:
        raise LaunchError(f"kernel {name}: cluster {cluster} is not three positive numbers")
    if not part.cluster:
        raise LaunchError(f"kernel {name}: cluster {cluster} was asked for; {part.name} (compute capability "
                          f"{part.capability[0]}.{part.capability[1]}) has no clusters")
    if ranks > (part.cluster_non_portable if non_portable else part.cluster):
        more = f", {part.cluster_non_portable} with non_portable=True" if ranks <= part.cluster_non_portable else ""
        raise LaunchError(f"kernel {name}: cluster {cluster} has {ranks} CTAs; {part.name} takes at most "
                          f"{part.cluster_non_portable if non_portable else part.cluster}{more}")
    if stated.most_ranks is not None and ranks > stated.most_ranks:
        raise LaunchError(f"kernel {name} takes at most {stated.most_ranks} CTAs a cluster (.maxclusterrank); cluster {cluster} has {ranks}")
    return cluster, True


def check_grid(name: str, stated: Stated, part: Part, grid: Triple, cluster: Triple) -> Triple:
    """The grid in CTAs. Raises LaunchError where the part does not take it or the cluster does not divide it."""
    if stated.blocks_are_clusters:  # the launch counts clusters
        grid = (grid[0] * cluster[0], grid[1] * cluster[1], grid[2] * cluster[2])
    for value, limit, axis in zip(grid, part.grid, "xyz", strict=True):
        if not 1 <= value <= limit:
            raise LaunchError(f"kernel {name}: grid {grid} has {axis}={value}; {part.name} takes 1 to {limit}")
    for value, each, axis in zip(grid, cluster, "xyz", strict=True):
        if value % each:
            raise LaunchError(f"kernel {name}: grid {grid} has {axis}={value}, which is not a multiple of the cluster's {each}: "
                              f"cluster {cluster} must divide the grid")
    return grid


def resident_ctas(part: Part, stated: Stated, threads: int, shared: int, registers: int, ranks: int = 1) -> int:
    """How many CTAs the part holds at once, whole clusters of `ranks`.

    threads, shared (bytes, static and dynamic): of a CTA. registers: 32-bit ones a thread, by estimate; what the kernel states comes first.
    """
    warps = -(-threads // part.warp)
    most = part.registers_per_sm // (max(threads, stated.most_threads or 0) * max(1, stated.ctas_per_sm or 1))
    registers = stated.registers or min(registers, part.registers_per_thread, most // 8 * 8)
    warp_registers = -(-registers * part.warp // 256) * 256
    per_sm = min(part.ctas_per_sm, part.threads_per_sm // (part.warp * warps), part.registers_per_sm // max(256, warp_registers * warps),
                 part.shared_per_sm // (-(-shared // 128) * 128 + part.shared_reserved_per_cta))
    return part.sms * max(1, per_sm) // ranks * ranks
