"""The virtual GPU: PTX compiled to the host's processor, with a plain interpreter beside it as the oracle."""

from warpwright.cpu.cluster import VirtualCluster, shared_buffer
from warpwright.cpu.device import Device
from warpwright.cpu.stream import Event, Partitions, SmPartition, Stream

__all__ = ["Device", "Event", "Partitions", "SmPartition", "Stream", "VirtualCluster", "shared_buffer"]
