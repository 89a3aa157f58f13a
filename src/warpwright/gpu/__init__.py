"""The NVIDIA side: assemble PTX with ptxas and say what it says. No GPU or driver is needed."""

from warpwright.gpu.assemble import Assembled, Ptxas, Resources, assemble, find_ptxas

__all__ = ["Assembled", "Ptxas", "Resources", "assemble", "find_ptxas"]
