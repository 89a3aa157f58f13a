"""Every exception that Warpwright raises on purpose. Each message says what is wrong, where, and what to do."""

from __future__ import annotations


class WarpwrightError(Exception):
    """Base of all errors that are the input's fault, not the program's. The CLI prints them in one line and exits 2."""


class PtxError(WarpwrightError):
    """A PTX module is malformed or illegal.

    Attributes: message (no position), file (or None), line and column (1-based; None where there is no source).
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None, file: str | None = None):
        self.message, self.line, self.column, self.file = message, line, column, file
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)


class LaunchError(WarpwrightError):
    """A launch was asked for that the device or the kernel cannot take (grid, block, arguments, shared memory)."""


class KernelError(WarpwrightError):
    """A kernel went wrong while it ran. The device stays usable.

    Attributes: kernel, instruction (its text), line (in the PTX), cta and thread ((x, y, z) each, or None).
    """

    def __init__(self, message: str, *, kernel: str, instruction: str = "", line: int | None = None,
                 cta: tuple[int, int, int] | None = None, thread: tuple[int, int, int] | None = None):
        self.kernel, self.instruction, self.line, self.cta, self.thread = kernel, instruction, line, cta, thread
        super().__init__(message)


class MemoryFault(KernelError):
    """An access outside every allocation, or a misaligned one. `address` is the first faulting lane's."""

    def __init__(self, message: str, *, address: int, **where):
        super().__init__(message, **where)
        self.address = address


class KernelTrap(KernelError):
    """A thread executed `trap`, or a device-side assertion failed."""


class KernelTimeout(KernelError):
    """A launch ran longer than its time limit (an endless loop, or a deadlock)."""


class KernelDeadlock(KernelTimeout):
    """Every thread that has not ended waits for threads that cannot come. `waiting` says who waits where for what, a line each."""

    def __init__(self, message: str, *, waiting: list[str], **where):
        self.waiting = waiting
        super().__init__("\n".join([message, *(f"  {line}" for line in waiting)]), **where)


class DataError(WarpwrightError):
    """Training data, a configuration or a checkpoint cannot be used as asked."""


class ScheduleError(WarpwrightError):
    """A pipeline schedule cannot be built for this layout, or its table of actions is illegal (a dependency, a deadlock, memory)."""
