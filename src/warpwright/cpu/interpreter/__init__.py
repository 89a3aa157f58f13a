"""The reference interpreter of PTX, written from the words of the ISA: slow, plain, and the oracle the compiler is tested against.

It shares no arithmetic with the compiler. Where the ISA leaves a result open, the module concerned says what is done here.
"""

from __future__ import annotations

from warpwright.cpu.interpreter import barrier, mbarrier, memory_access, opcodes, wgmma  # noqa: F401  each registers its instructions
from warpwright.cpu.interpreter.machine import Launch
from warpwright.cpu.interpreter.memory import GlobalMemory
from warpwright.cpu.interpreter.program import Program, size_of
from warpwright.errors import LaunchError
from warpwright.ptx import tree


def run(module: tree.Module, kernel: str, grid: tuple[int, int, int], block: tuple[int, int, int], params: bytes, shared_bytes: int,
        memory, time_limit: float, *, late: bool = False, exact_mma: bool = False,
        device=None) -> None:
    """Run a kernel to its end.

    params: the parameter block, each parameter aligned to its size. shared_bytes: dynamic shared memory a CTA. memory: an object with
    `ranges`, (start, size in bytes, name) of the host memory the kernel may touch, and `symbols`, the host address of each .global and
    .const variable of the module by name. time_limit: seconds. late, exact_mma: as `Device` takes them.
    device: whose `printf` and `heap` the kernel uses.

    Raises MemoryFault, KernelTrap or KernelTimeout; PtxError, naming instruction and line, for what the interpreter does not know.
    """
    symbols = dict(getattr(memory, "symbols", {}))
    program = Program(module, kernel, symbols)
    if len(params) < program.parameter_bytes:
        raise LaunchError(f"kernel {kernel} takes {program.parameter_bytes} bytes of parameters; {len(params)} were given")
    own = [(symbols[variable.name], size_of(variable), f"variable {variable.name}", variable.space == "const")
           for variable in program.variables.values() if variable.name in symbols]
    launch = Launch(program, grid, block, params, shared_bytes, GlobalMemory([*memory.ranges, *(place[:3] for place in own)]), time_limit,
                    late, exact_mma)
    launch.constants = [(start, start + size) for start, size, _, constant in own if constant]
    launch.device = device
    try:
        launch.run()
    finally:
        if launch.printed:
            device.printf("".join(launch.printed))


__all__ = ["run"]
