"""Pipeline schedules as data: built, checked, simulated, drawn, searched for. Nothing here needs torch.

A schedule (`Schedule`) says where stages are and what each rank computes in which order; its `table` has every action that a rank takes, transfers
and reductions too, ready to be executed as it stands. `KNOWN` has the published ones.

Abbreviations: F forward, B full backward, I backward for the input, W backward for the weights, F&B (FB) an overlapped pair of a forward and a full
backward; P stages, R ranks, M micro-batches.
"""

from warpwright.pipeline.actions import Action, parse
from warpwright.pipeline.check import check
from warpwright.pipeline.known import KNOWN, build, published_bubble
from warpwright.pipeline.schedule import Schedule, from_csv
from warpwright.pipeline.search import Candidate, search
from warpwright.pipeline.simulate import Simulation, Times, simulate

__all__ = ["KNOWN", "Action", "Candidate", "Schedule", "Simulation", "Times", "build", "check", "from_csv", "parse", "published_bubble", "search",
           "simulate"]
