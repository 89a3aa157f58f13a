"""What the virtual GPU's limits are: one row a part.

Sources: CUDA C++ Programming Guide, table "Technical specifications per compute capability" (8.0, 8.9, 9.0); NVIDIA A100, H100, H200 and
L40-class datasheets for SM counts and memory; the H800 differs from the H100 SXM in its NVLink only (DeepSeek-V3 report, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Part:
    """Limits of one GPU. Sizes in bytes; `capability` is the compute capability."""

    name: str
    capability: tuple[int, int]
    sms: int
    memory: int
    shared_per_sm: int
    shared_per_cta: int
    threads_per_sm: int = 2048
    threads_per_cta: int = 1024
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    static_shared_per_cta: int = 48 * KIB
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    warp: int = 32
    ctas_per_sm: int = 32
    shared_reserved_per_cta: int = KIB
    cluster: int = 0  # CTAs that a cluster may have anywhere, and where the launch asks for more than is portable
    cluster_non_portable: int = 0


PARTS = {part.name: part for part in (
    Part("a100", (8, 0), 108, 80 * KIB**3, 164 * KIB, 163 * KIB),
    Part("rtx4090", (8, 9), 128, 24 * KIB**3, 100 * KIB, 99 * KIB, threads_per_sm=1536, ctas_per_sm=24),
    Part("h100", (9, 0), 132, 80 * KIB**3, 228 * KIB, 227 * KIB, cluster=8, cluster_non_portable=16),
    Part("h800", (9, 0), 132, 80 * KIB**3, 228 * KIB, 227 * KIB, cluster=8, cluster_non_portable=16),
    Part("h20", (9, 0), 78, 96 * KIB**3, 228 * KIB, 227 * KIB, cluster=8, cluster_non_portable=16),
    Part("h200", (9, 0), 132, 141 * KIB**3, 228 * KIB, 227 * KIB, cluster=8, cluster_non_portable=16),
)}
