"""The reference interpreter of PTX, written from the words of the ISA: slow, plain, and the oracle the compiler is tested against.

It shares no arithmetic with the compiler. Where the ISA leaves a result open, the module concerned says what is done here.
"""

from __future__ import annotations

from warpwright.cpu.interpreter import (  # noqa: F401  each registers its instructions
    barrier,
    cluster,
    mbarrier,
    memory_access,
    opcodes,
    wgmma,
)
from warpwright.cpu.interpreter.machine import Launch, Settings
from warpwright.cpu.interpreter.memory import GlobalMemory
from warpwright.cpu.interpreter.program import Program, size_of
from warpwright.cpu.shape import Shape
from warpwright.errors import LaunchError
from warpwright.ptx import tree


def run(module: tree.Module, kernel: str, shape: Shape, params: bytes, memory, time_limit: float, settings: Settings) -> None:
    """Run a kernel to its end.

    params: the parameter block, each parameter aligned to its size. memory: an object with `ranges`, (start, size in bytes, name) of the host
    memory the kernel may touch, and `symbols`, the host address of each .global and .const variable of the module by name. time_limit: seconds.

    Raises MemoryFault, KernelTrap or KernelTimeout; PtxError, naming instruction and line, for what the interpreter does not know.
    """
    symbols = dict(getattr(memory, "symbols", {}))
    program = Program(module, kernel, symbols)
    if len(params) < program.parameter_bytes:
        raise LaunchError(f"kernel {kernel} takes {program.parameter_bytes} bytes of parameters; {len(params)} were given")
    own = [(symbols[variable.name], size_of(variable), f"variable {variable.name}", variable.space == "const")
           for variable in program.variables.values() if variable.name in symbols]
    launch = Launch(program, shape, params, GlobalMemory([*memory.ranges, *(place[:3] for place in own)]), time_limit, settings)
    launch.constants = [(start, start + size) for start, size, _, constant in own if constant]
    try:
        launch.run()
    finally:
        if launch.printed:
            settings.device.printf("".join(launch.printed))


__all__ = ["Settings", "run"]
