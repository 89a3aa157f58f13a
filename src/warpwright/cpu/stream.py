"""Streams, events and SM partitions of a virtual GPU.

A stream is a queue of launches that run one after another on a host thread of its own, with a pool of worker threads of its own: kernels on two
streams run at the same time, also where they wait for each other, and on a single core too, as the operating system shares it out. Launches on
no stream run at once, in the caller's thread, and are not ordered with those on streams.

A partition is a run of a device's SMs. Kernels on its streams are only ever on its SMs, and as many CTAs are resident as these hold. The virtual
GPU takes any split; green contexts on sm_90 take multiples of 8 SMs, at least 8.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from warpwright.errors import LaunchError

if TYPE_CHECKING:
    from warpwright.cpu.device import Device


class Event:
    """The end of what a stream was doing when it was made. `started` and `ended` are in seconds of `time.perf_counter()`; 0 until then."""

    def __init__(self, name: str, keep: Sequence = ()):
        self.name, self.started, self.ended = name, 0.0, 0.0
        self._keep: Sequence | None = keep  # the arguments' arrays, until it is done
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Event of {self.name}, {'done' if self.done else 'pending'}>"

    @property
    def done(self) -> bool:
        """Whether it has come; it may have come with an error."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has come, or for `timeout` seconds; whether it has come. Raises the kernel's error, the first time it is asked."""
        if not self._done.wait(timeout):
            return False
        error = self._take()
        if error is not None:
            raise error
        return True

    def synchronize(self) -> None:
        """`wait` without an end."""
        self.wait()

    def _take(self) -> BaseException | None:
        with self._lock:
            error, self._error = self._error, None
        return error

    def _come(self, error: BaseException | None) -> None:
        self._error, self._keep, self.ended = error, None, time.perf_counter()
        self._done.set()


class Stream:
    """A queue of launches on a partition's SMs. Made by `Device.stream`, `SmPartition.stream`.

    After a launch has failed those behind it still run, as the device stays usable.
    """

    def __init__(self, partition: SmPartition, threads: int | None = None, name: str = ""):
        self.partition, self.device = partition, partition.device
        self.name = name or f"{partition.name} stream"
        self.place = self.device.place_on(partition.first_sm, partition.sms, threads or self.device.threads)
        self._queue: queue.SimpleQueue[tuple[Stream, Event, Callable[[], object]] | None] = queue.SimpleQueue()
        self._process = os.getpid()
        self._unsettled: list[Event] = []  # not done, or done with an error that nobody has been told of
        self._last: Event | None = None
        self._lock = threading.Lock()
        threading.Thread(target=_work, args=(self._queue,), name=f"warpwright {self.name}", daemon=True).start()
        weakref.finalize(self, self._queue.put, None)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} on SMs {self.partition.first_sm} to {self.partition.first_sm + self.partition.sms - 1} of {self.device}>"

    def put(self, work: Callable[[], object], name: str = "host function", keep: Sequence = ()) -> Event:
        """Call a host function in the stream's thread when everything before it is done. keep: what must live until then."""
        if self._process != os.getpid():
            raise LaunchError(f"{self.name} was made before this process was forked; make streams in the process that uses them")
        event = Event(name, keep)
        with self._lock:
            self._unsettled.append(event)
            self._last = event
            self.device.streams.add(self)
            self._queue.put((self, event, work))
        return event

    def _settle(self) -> None:
        """Let the device forget a stream that is idle and has nothing to tell."""
        with self._lock:
            self._unsettled = [event for event in self._unsettled if not event.done or event._error is not None]
            if not self._unsettled:
                self.device.streams.discard(self)

    def record(self) -> Event:
        """An event that comes when everything put on the stream so far is done."""
        return self.put(lambda: None, "record")

    def wait(self, event: Event) -> None:
        """What is put on the stream from now on waits for an event of another stream. (An error there stays with its event.)"""
        self.put(event._done.wait, f"wait for {event.name}")

    def synchronize(self) -> None:
        """Wait until the stream is idle; raises the first error that nobody has been told of. The others are forgotten."""
        with self._lock:
            last, events = self._last, list(self._unsettled)
        if last is not None:
            last._done.wait()
        errors = [error for error in (event._take() for event in events) if error is not None]
        self._settle()
        if errors:
            raise errors[0]

    @property
    def idle(self) -> bool:
        """Whether everything put on the stream so far is done."""
        return self._last is None or self._last.done


def _work(waiting: queue.SimpleQueue) -> None:
    """A stream's thread: while it waits it holds the queue only, so that a stream nobody holds ends."""
    while (item := waiting.get()) is not None:
        stream, event, work = item
        error: BaseException | None = None
        event.started = time.perf_counter()
        try:
            work()
        except BaseException as raised:  # whatever it is, it is told to whoever waits
            error = raised
        del item, work
        event._come(error)
        stream._settle()
        del stream, event, error


class SmPartition:
    """`sms` SMs of a device, from number `first_sm` on."""

    def __init__(self, device: Device, first_sm: int, sms: int, name: str):
        self.device, self.first_sm, self.sms, self.name = device, first_sm, sms, name

    def __repr__(self) -> str:
        return f"<{self.name}: SMs {self.first_sm} to {self.first_sm + self.sms - 1} of {self.device}>"

    def stream(self, threads: int | None = None, name: str = "") -> Stream:
        """A new stream whose kernels run on these SMs. threads: host threads that run its CTAs; by default as many as the device has."""
        return Stream(self, threads, name)


class Partitions(NamedTuple):
    """A device's SMs in two: those that communicate and those that compute."""

    comm: SmPartition
    compute: SmPartition

    @classmethod
    def split(cls, device: Device, comm: int) -> Partitions:
        """The first `comm` SMs, and the rest. Raises LaunchError where one would be empty."""
        sms = device.part.sms
        if not isinstance(comm, int) or not 1 <= comm < sms:
            raise LaunchError(f"partition(comm={comm!r}): {device.part.name} has {sms} SMs; give 1 to {sms - 1}, so that some are left to compute")
        return cls(SmPartition(device, 0, comm, "comm"), SmPartition(device, comm, sms - comm, "compute"))
