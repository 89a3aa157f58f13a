"""One entry of a schedule's table: what a rank does next.

Actions print as, and are read from, the words of `torch.distributed.pipelining`'s tables: `2F0` is the forward of stage 2 for micro-batch 0,
`(0F3;7B1)OVERLAP_F_B` an overlapped pair, `3SEND_F1` sends stage 3's output of micro-batch 1 to the rank of stage 4, `3RECV_B1` receives its gradient
from there, `1REDUCE_GRAD` sums stage 1's gradient over its replicas.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from warpwright.errors import ScheduleError

F = "F"  # forward
I = "I"  # backward for the input: what the stage before waits for
W = "W"  # backward for the weights: nobody waits for it
B = "B"  # full backward: I and W in one
PAIR = "OVERLAP_F_B"  # a forward and a full backward whose communication and compute overlap
SEND_F, RECV_F = "SEND_F", "RECV_F"  # activations, to the next stage and from the one before
SEND_B, RECV_B = "SEND_B", "RECV_B"  # gradients, to the stage before and from the next
REDUCE = "REDUCE_GRAD"  # a stage's gradient is complete on this rank: sum it over the stage's replicas

COMPUTE = (F, I, W, B, PAIR)
TRANSFERS = {SEND_F: RECV_F, SEND_B: RECV_B}
WORDS = re.compile(r"(\d+)(SEND_F|RECV_F|SEND_B|RECV_B|REDUCE_GRAD|F|I|W|B)(\d*)")


class Action(NamedTuple):
    """kind: one of this module's names; stage and microbatch count from 0 (REDUCE has no microbatch, PAIR neither: its two parts do)."""

    kind: str
    stage: int = -1
    microbatch: int = -1
    parts: tuple[Action, ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return f"({';'.join(map(str, self.parts))}){self.kind}"
        return f"{self.stage}{self.kind}{self.microbatch if self.microbatch >= 0 else ''}"

    @property
    def simple(self) -> tuple[Action, ...]:
        """The parts of a pair; any other action alone."""
        return self.parts or (self,)


def pair(forward: Action, backward: Action) -> Action:
    """The overlapped pair of a forward and a full backward."""
    return Action(PAIR, parts=(forward, backward))


def parse(text: str) -> Action:
    """The action that prints as `text`. Raises ScheduleError."""
    text = text.strip()
    if text.startswith("(") and text.endswith(f"){PAIR}"):
        parts = tuple(parse(part) for part in text[1 : -len(PAIR) - 1].split(";"))
        if [part.kind for part in parts] != [F, B]:
            raise ScheduleError(f"the pair '{text}' must be a forward and a full backward, as in (0F3;7B1){PAIR}")
        return Action(PAIR, parts=parts)
    found = WORDS.fullmatch(text)
    if not found or (found[2] == REDUCE) == bool(found[3]):
        raise ScheduleError(f"'{text}' is not an action; actions are written stage, kind, micro-batch, as in 2F0, 2I0, 2W0, 2B0, 2SEND_F0, "
                            f"2REDUCE_GRAD or (0F3;7B1){PAIR}")
    return Action(found[2], int(found[1]), int(found[3]) if found[3] else -1)
