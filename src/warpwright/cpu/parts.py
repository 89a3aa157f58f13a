"""What the virtual GPU's limits are: one row a part.

Sources: CUDA C++ Programming Guide, table "Technical specifications per compute capability" (8.0, 8.9, 9.0); NVIDIA A100, H100, H200 and
L40-class datasheets for SM counts, memory and NVLink; the H800 differs from the H100 SXM in its NVLink only (DeepSeek-V3 report, section
3.1): 400 GB/s instead of 900, both directions together, of which kernels reach 160 GB/s one way (the report, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Link:
    """What carries bytes between GPUs. bandwidth: bytes a second, one way, for one GPU. latency: seconds until a small message is there."""

    name: str
    bandwidth: float
    latency: float

    def seconds(self, nbytes: int) -> float:
        """How long the link is busy with so many bytes; the latency comes on top, for the message and not for the link."""
        return nbytes / self.bandwidth


# Latencies of 64-byte messages, end to end: "Insights into DeepSeek-V3" (ISCA 2025), table of link-layer latencies: NVLink, and InfiniBand over
# two switches. Bandwidths: half of the datasheets' both directions; InfiniBand NDR is 400 Gbit/s, one adapter a GPU (V3 report, section 3.1).
_LATENCY = 3.33e-6
NVLINK = {name: Link(f"NVLink of {name}", bandwidth, _LATENCY) for name, bandwidth in {
    "a100": 300e9, "h100": 450e9, "h800": 160e9, "h20": 450e9, "h200": 450e9}.items()}
PCIE = Link("PCIe 4.0 x16", 32e9, _LATENCY)  # PCI-SIG: 16 GT/s a lane; the latency is taken to be NVLink's
INFINIBAND = Link("InfiniBand NDR", 50e9, 3.7e-6)


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
