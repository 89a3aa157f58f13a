"""`VirtualCluster`: nodes of virtual GPUs in one process, that reach each other by pointer in a node and by a network between nodes.

    cluster = VirtualCluster(nodes=2, gpus_per_node=8, like="h800")
    a, b = cluster.gpus[0], cluster.gpus[9]
    inbox = b.allocate_shared(4096, "inbox")                     # kernels of GPUs 8 to 15 may touch it
    cluster.network.send(0, 9, source, inbox, 4096, flag=flag)   # flag: its 64-bit word becomes 1 once the bytes are there

Each GPU is a `Device` with a rank, so kernels, streams and partitions are those of any device. Time is modelled beside: `cluster.clock` keeps
what each row (a link, an SM, a stream) is busy with in seconds of a real cluster, from the bandwidths and latencies in `parts`.

Across processes (`torchrun`, a rank a process) `shared_buffer` gives memory that all processes of this host map under one name.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import queue
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np

from warpwright.cpu.device import Device, LegalMemory
from warpwright.cpu.memory import DeviceBuffer, locate
from warpwright.cpu.parts import INFINIBAND, NVLINK, PCIE, Link
from warpwright.cpu.stream import Event
from warpwright.errors import LaunchError


class ClusterGpu(Device):
    """A GPU of a cluster. rank: its number. node: its node's. peers: all GPUs of its node, itself included."""

    def __init__(self, cluster: VirtualCluster, rank: int, kind: str, like: str, threads: int, **options):
        super().__init__(kind, like, threads, **options)
        self.rank, self.node, self.local_rank = rank, rank // cluster.gpus_per_node, rank % cluster.gpus_per_node
        self._cluster = weakref.ref(cluster)
        self._shared: weakref.WeakSet[DeviceBuffer] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<GPU {self.rank} ({self.kind}, {self.part.name}) of node {self.node}>"

    @property
    def peers(self) -> list[ClusterGpu]:
        cluster = self._cluster()
        if cluster is None:
            raise LaunchError(f"the cluster of GPU {self.rank} is gone: keep the VirtualCluster")
        first = self.node * cluster.gpus_per_node
        return cluster.gpus[first:first + cluster.gpus_per_node]

    def allocate_shared(self, nbytes: int, name: str = "shared buffer") -> DeviceBuffer:
        """Memory of this GPU, zeroed, that kernels of every GPU of its node may touch by its address, and that the network may write to."""
        return self.share(self.alloc(nbytes, f"{name} of GPU {self.rank}"), clear=True)

    def share(self, buffer: DeviceBuffer, clear: bool = False) -> DeviceBuffer:
        """Let the node's other GPUs, and the network, touch a buffer."""
        if clear:
            buffer.numpy()[:] = 0
        with self.lock:
            self._buffers.add(buffer)
            self._shared.add(buffer)
        return buffer

    def shared_buffers(self) -> list[DeviceBuffer]:
        """What has been shared and not freed."""
        with self.lock:
            return [buffer for buffer in self._shared if not buffer.freed]

    def legal_memory(self, module, extents) -> LegalMemory:
        legal = super().legal_memory(module, extents)
        for peer in self.peers:
            if peer is not self:
                legal.ranges.extend((buffer.address, buffer.nbytes, buffer.name) for buffer in peer.shared_buffers())
        return legal


class Clock:
    """Modelled time. A row (a link's side, an SM, a stream) does one thing after another; `events` are (row, start, end, name), in seconds."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float, float, str]] = []
        self._free: dict[str, float] = {}
        self._lock = threading.Lock()

    def now(self, row: str) -> float:
        """When a row is free again."""
        return self._free.get(row, 0.0)

    def spend(self, rows: str | list[str], seconds: float, name: str, after: float = 0.0) -> tuple[float, float]:
        """Keep one or several rows busy together, from when all are free and `after` has come. (start, end)"""
        rows = [rows] if isinstance(rows, str) else rows
        with self._lock:
            start = max(after, *(self.now(row) for row in rows))
            for row in rows:
                self._free[row] = start + seconds
                self.events.append((row, start, start + seconds, name))
        return start, start + seconds

    def trace(self) -> dict:
        """The events as a Chrome trace (JSON object format), which Perfetto shows: a row a thread, times in microseconds."""
        with self._lock:
            events = list(self.events)
        numbers = {row: number for number, row in enumerate(dict.fromkeys(event[0] for event in events))}
        names = [{"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": row}} for row, number in numbers.items()]
        return {"displayTimeUnit": "ns", "traceEvents": names + [
            {"ph": "X", "pid": 0, "tid": numbers[row], "name": name, "ts": start * 1e6, "dur": (end - start) * 1e6}
            for row, start, end, name in events]}

    def write_trace(self, path: str | Path) -> None:
        """Write `trace` to a file."""
        Path(path).write_text(json.dumps(self.trace()))


class Transfer(Event):
    """A message on its way. `arrives`: the modelled time of its arrival, in seconds, once it is done."""

    arrives = 0.0


class SendQueue:
    """A ring in a GPU's memory from which a proxy thread sends what kernels ask for.

    buffer: 64 bytes whose first 64-bit word counts the requests done, then `entries` requests of eight 64-bit words: number, destination's rank,
    source address, destination address, bytes, flag address (0: none), flag value, unused. Request n = 0, 1, 2 … goes to entry n % entries
    when at least n - entries + 1 are done: a kernel writes words 1 to 6, then word 0 as n + 1 with st.release.sys.
    """

    WORDS = 8

    def __init__(self, gpu: ClusterGpu, entries: int):
        if entries < 1:
            raise LaunchError(f"a send queue of {entries} entries was asked for; it takes at least 1")
        self.gpu, self.entries = gpu, entries
        self.buffer = gpu.allocate_shared(64 * (entries + 1), "send queue")
        self.words = self.buffer.numpy(np.uint64).reshape(entries + 1, self.WORDS)
        self.taken = 0

    def take(self) -> tuple[int, ...] | None:
        """The next request's words 1 to 6, if it is there."""
        entry = self.words[1 + self.taken % self.entries]
        if int(entry[0]) != self.taken + 1:
            return None
        self.taken += 1
        return tuple(int(word) for word in entry[1:7])


class Network:
    """Between nodes: each GPU has one adapter. Messages of a sender arrive in order; a flag is set when its message's bytes are there.

    sent: (source, destination) → bytes.
    """

    def __init__(self, cluster: VirtualCluster, link: Link):
        self.link, self.sent = link, dict[tuple[int, int], int]()
        self._cluster = weakref.ref(cluster)
        self._lock = threading.Lock()
        self._proxies: dict[int, queue.SimpleQueue] = {}
        self._queues: list[tuple[threading.Event, threading.Thread]] = []
        self.failure: LaunchError | None = None

    def send(self, source: int, destination: int, src, dst, nbytes: int, *, flag=None, value: int = 1, after: float = 0.0) -> Transfer:
        """Send bytes from a GPU's memory to another's, and set a flag there; returns at once.

        src, dst: a buffer, an array, or an address in one. dst and flag lie in what the destination has shared; the flag is 64 bits.
        after: modelled time before which it does not start. Raises LaunchError where an address or a rank is not legal.
        """
        cluster = self._cluster()
        assert cluster is not None
        for rank in (source, destination):
            if not 0 <= rank < len(cluster.gpus):
                raise LaunchError(f"send from {source} to {destination}: the cluster has ranks 0 to {len(cluster.gpus) - 1}")
        start = _address(src, nbytes, None, f"the source on GPU {source}")
        target = _address(dst, nbytes, cluster.gpus[destination], f"the destination on GPU {destination}")
        mark = _address(flag, 8, cluster.gpus[destination], f"the flag on GPU {destination}") if flag is not None else 0
        transfer = Transfer(f"{nbytes} bytes {source} to {destination}", (src, dst, flag))
        link = cluster.link(source, destination)

        def work() -> None:
            ctypes.memmove(target, start, nbytes)
            if mark:
                with self._lock:  # a fence between the bytes and the flag on any host
                    ctypes.c_uint64.from_address(mark).value = value
            rows = [f"GPU {source} {link.name} out", f"GPU {destination} {link.name} in"]
            end = cluster.clock.spend(rows, link.seconds(nbytes), transfer.name, after)[1]
            transfer.arrives = end + link.latency
            with self._lock:
                self.sent[source, destination] = self.sent.get((source, destination), 0) + nbytes

        with self._lock:
            proxy = self._proxies.get(source)
            if proxy is None:
                proxy = self._proxies[source] = queue.SimpleQueue()
                threading.Thread(target=_drain, args=(proxy,), name=f"warpwright proxy {source}", daemon=True).start()
                weakref.finalize(self, proxy.put, None)
            proxy.put((transfer, work))
        return transfer

    def send_queue(self, rank: int, entries: int = 64) -> SendQueue:
        """A queue in a GPU's memory that a proxy thread drains until `close`: see `SendQueue`."""
        cluster = self._cluster()
        assert cluster is not None
        requests, closed = SendQueue(cluster.gpus[rank], entries), threading.Event()
        thread = threading.Thread(target=_serve, args=(weakref.ref(self), requests, closed), name=f"warpwright queue {rank}", daemon=True)
        self._queues.append((closed, thread))
        weakref.finalize(self, closed.set)
        thread.start()
        return requests

    def close(self) -> None:
        """Stop the send queues' threads; raises the error of a request that was not legal."""
        for closed, thread in self._queues:
            closed.set()
            thread.join()
        self._queues.clear()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def _drain(proxy: queue.SimpleQueue) -> None:
    """A proxy's thread."""
    while (item := proxy.get()) is not None:
        transfer, work = item
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:  # told to whoever waits
            error = raised
        del item, work
        transfer._come(error)


def _serve(network_of: Callable[[], Network | None], requests: SendQueue, closed: threading.Event) -> None:
    """The thread of a send queue. It ends at the first request that is not legal, which `Network.close` raises."""
    pause = 1e-5
    while not closed.is_set():
        request = requests.take()
        if request is None:
            closed.wait(pause)
            pause = min(2 * pause, 1e-3)
            continue
        pause = 1e-5
        network = network_of()
        if network is None:
            return
        destination, source, target, nbytes, flag, value = request
        try:
            network.send(requests.gpu.rank, destination, source, target, nbytes, flag=flag or None, value=value).wait()
        except LaunchError as error:
            network.failure = error
            return
        requests.words[0, 0] = requests.taken
        del network


def _address(place, nbytes: int, owner: ClusterGpu | None, what: str) -> int:
    """The address of `nbytes` bytes. owner: whose shared memory they must lie in, if given."""
    extent = None if isinstance(place, int) else locate(place)
    if extent is None and not isinstance(place, int):
        raise LaunchError(f"{what}: {type(place).__name__} was given; send takes a buffer, an array or an address")
    address = extent.address if extent is not None else place
    if nbytes < 0 or (extent is not None and address + nbytes > extent.end):
        raise LaunchError(f"{what}: {nbytes} bytes at {address:#x} are not within its buffer")
    if owner is not None and not any(b.address <= address and address + nbytes <= b.address + b.nbytes for b in owner.shared_buffers()):
        raise LaunchError(f"{what}: {nbytes} bytes at {address:#x} lie in nothing that this GPU has shared (allocate_shared)")
    return address


class VirtualCluster:
    """`nodes` times `gpus_per_node` GPUs; rank = node · gpus_per_node + index in the node.

    like: the part. kind: "cpu" or "interpreter". threads: host threads a stream. options: others of `Device`. gpus: by rank.
    """

    def __init__(self, nodes: int = 1, gpus_per_node: int = 8, like: str = "h800", kind: str = "cpu", threads: int = 1, **options):
        if nodes < 1 or gpus_per_node < 1 or nodes * gpus_per_node > 4096:
            raise LaunchError(f"{nodes} nodes of {gpus_per_node} GPUs were asked for; a cluster has at least 1 of each and at most 4096 GPUs")
        self.nodes, self.gpus_per_node = nodes, gpus_per_node
        self.gpus = [ClusterGpu(self, rank, kind, like, threads, **options) for rank in range(nodes * gpus_per_node)]
        self.clock = Clock()
        self.nvlink = NVLINK.get(like, PCIE)
        self.network = Network(self, INFINIBAND)

    def __repr__(self) -> str:
        return f"<VirtualCluster of {self.nodes} × {self.gpus_per_node} {self.gpus[0].part.name}>"

    def link(self, source: int, destination: int) -> Link:
        """What joins two GPUs: NVLink (PCIe where the part has none) inside a node, the network between nodes."""
        return self.nvlink if self.gpus[source].node == self.gpus[destination].node else self.network.link

    def synchronize(self) -> None:
        """Wait until all streams of all GPUs are idle."""
        for gpu in self.gpus:
            gpu.synchronize()


class SharedBuffer(DeviceBuffer):
    """Memory that several processes of this host map, zero at first: see `shared_buffer`."""

    def __init__(self, name: str, nbytes: int):
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name) or nbytes < 1:
            raise LaunchError(f"shared_buffer({name!r}, {nbytes}): give a name of letters, digits, '.', '_' and '-', and at least 1 byte")
        folder = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(os.environ.get("TMPDIR", "/tmp"))
        self.nbytes, self.name, self.path = nbytes, name, folder / f"warpwright-{os.getuid()}-{name}"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size not in (0, nbytes):
                raise LaunchError(f"shared_buffer({name!r}, {nbytes}): another process made it with {size} bytes; all must agree")
            os.ftruncate(descriptor, nbytes)
            self._storage = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
        finally:
            os.close(descriptor)
        self.address = self._storage.ctypes.data

    def unlink(self) -> None:
        """Take the name away, once every process has mapped it; the memory lasts until the last of them frees it."""
        self.path.unlink(missing_ok=True)


def shared_buffer(device: Device, name: str, nbytes: int) -> SharedBuffer:
    """Memory that every process of this user on this host maps which asks for it by the same name; legal for the kernels of `device`.

    Its address differs between processes. Have the name tell runs apart, and `unlink` it when all have it: what a crashed run left under a name
    is found as it was.
    """
    buffer = SharedBuffer(name, nbytes)
    with device.lock:
        device._buffers.add(buffer)
    return buffer
