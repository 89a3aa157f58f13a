"""DeepSeek-V3's gate: sigmoid affinities, group-limited top-k by bias-corrected scores, normalised weights; and its logits' gradient.

s = sigmoid(logits). Experts are chosen by s + bias, of equals the lower index; a NaN counts as largest, so that it comes to light.
w = s / (sum of the chosen s + 1e-20) · scale.  (V3 technical report, equations 13-16; group score: section 4.2.)
With c = scale / (sum + 1e-20) and the chosen i:  ds_i = grad_s_i + c·(grad_w_i - Σ grad_w·s / (sum + 1e-20)),  dlogit = ds·s·(1 - s).

A token has a power of two of neighbouring lanes, and each lane one position or more. Experts stand at positions so that a group begins at a
multiple of a power of two: then all reductions are butterflies.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from warpwright import ptx
from warpwright.errors import LaunchError
from warpwright.kernels.lanes import ALL, BLOCK, WARP, WARPS, lane_sum, launch, neighbour, sigmoid
from warpwright.kernels.registry import LibraryKernel, register
from warpwright.ptx import Pointer, b32, f32, s32, u32

TINY = 1e-20


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


@dataclass(frozen=True)
class Gate:
    """The shape of a gate: experts in `groups` equal groups, of which `groups_kept` compete for top_k places."""

    experts: int
    top_k: int
    groups: int
    groups_kept: int

    def __post_init__(self) -> None:
        if self.experts < 1 or self.groups < 1 or self.experts % self.groups:
            raise LaunchError(f"the router needs experts in equal groups; {self.experts} experts do not divide into {self.groups}")
        if not 1 <= self.groups_kept <= self.groups:
            raise LaunchError(f"the router keeps 1 to {self.groups} groups, not {self.groups_kept}")
        if not 1 <= self.top_k <= min(WARP, self.groups_kept * self.size):
            raise LaunchError(f"the router chooses 1 to {min(WARP, self.groups_kept * self.size)} experts (at most {WARP}) from "
                              f"{self.groups_kept} groups of {self.size}, not {self.top_k}")

    @property
    def size(self) -> int:
        """Experts of a group."""
        return self.experts // self.groups

    @property
    def room(self) -> int:
        """Positions of a group."""
        return power_of_two(self.size)

    @property
    def lanes(self) -> int:
        """Lanes of a token."""
        return min(WARP, power_of_two(self.groups * self.room))

    @property
    def steps(self) -> int:
        """Positions of a lane: `lanes` apart."""
        return -(-self.groups * self.room // self.lanes)

    @property
    def counted(self) -> int:
        """How many of a group's best make its score."""
        return min(self.size, max(1, self.top_k // self.groups_kept))


class Place:
    """Where a lane stands: its token, and the experts and groups at its positions."""

    def __init__(self, gate: Gate, tokens: u32):
        lanes = gate.lanes
        warp = ptx.ctaid.x * WARPS + ptx.warpid()
        self.lane = ptx.laneid() & (lanes - 1)
        self.token = warp * (WARP // lanes) + ptx.laneid() // lanes
        self.there = self.token < tokens
        self.positions = [self.lane + lanes * step for step in range(gate.steps)]
        if gate.room <= lanes:
            self.groups = [self.lane // gate.room + step * (lanes // gate.room) for step in range(gate.steps)]
        else:
            self.groups = [ptx.var(u32, step * lanes // gate.room) for step in range(gate.steps)]
        self.experts = [position if gate.size == gate.room else group * gate.size + (position & (gate.room - 1))
                        for position, group in zip(self.positions, self.groups, strict=True)]
        self.inside = [self.there] * gate.steps  # whether a token and an expert are there
        if gate.size != gate.room:
            self.inside = [self.there & ((position & (gate.room - 1)) < gate.size) for position in self.positions]
        if gate.steps * lanes != gate.groups * gate.room:
            self.inside = [inside & (group < gate.groups) for inside, group in zip(self.inside, self.groups, strict=True)]


GONE = 0  # the key of what cannot be chosen (any more): less than any number's


def key_of(x: f32) -> u32:
    """An unsigned integer in the order of the numbers; NaN is the largest."""
    bits = x.as_(s32)
    key = (bits ^ (bits >> 31 | -0x80000000)).as_(u32)
    return ptx.select(x != x, 0xFFFFFFFF, key)


def number_of(key: u32) -> f32:
    """The number that has the key."""
    bits = key.as_(s32)
    return (bits ^ (~(bits >> 31) | -0x80000000)).as_(f32)


def best(keys: list[u32], names: list[u32], lanes: int) -> tuple[u32, u32]:
    """The largest key and its name, the lowest if several have it, over a lane's own (whose names ascend) and `lanes` lanes."""
    key, name = keys[0], names[0]
    for other, its_name in zip(keys[1:], names[1:], strict=True):
        better = other > key
        key, name = ptx.select(better, other, key), ptx.select(better, its_name, name)
    while lanes > 1:
        lanes //= 2
        other, its_name = neighbour(key, lanes), neighbour(name, lanes)
        better = (other > key) | ((other == key) & (its_name < name))
        key, name = ptx.select(better, other, key), ptx.select(better, its_name, name)
    return key, name


def from_lane(value: Any, lane: Any, lanes: int) -> Any:
    """The value of the given lane of this token."""
    return ptx.shfl.sync.idx.b32(value, lane, (WARP - lanes) << 8 | 31, ALL).as_(type(value))


@lru_cache
def forward_kernel(gate: Gate) -> ptx.Kernel:
    @ptx.kernel(block=BLOCK, name=f"router_{gate.experts}_{gate.top_k}_{gate.groups}_{gate.groups_kept}")
    def router(logits: Pointer[f32], bias: Pointer[f32], experts: Pointer[s32], weights: Pointer[f32], scores: Pointer[f32], tokens: u32,
               scale: f32):
        place = Place(gate, tokens)
        row = place.token * gate.experts
        affinities, keys = [], []
        for expert, inside in zip(place.experts, place.inside, strict=True):
            logit, shift = ptx.var(f32, 0.0), ptx.var(f32, 0.0)
            ptx.ld.global_.nc.f32(logits + (row + expert), out=logit, guard=inside)
            ptx.ld.global_.nc.f32(bias + expert, out=shift, guard=inside)
            affinity = sigmoid(logit)
            ptx.st.global_.f32(scores + (row + expert), affinity, guard=inside)
            affinities.append(affinity)
            keys.append(ptx.select(inside, key_of(affinity + shift), GONE))
        if gate.groups_kept < gate.groups:
            keys = keep_best_groups(gate, place, keys)
        mine = ptx.var(u32, 0)
        for choice in range(gate.top_k):
            _, winner = best(keys, place.positions, gate.lanes)
            keys = without(keys, place.positions, winner)
            ptx.assign(mine, winner, guard=place.lane == choice)
        chosen = ptx.var(f32, 0.0)
        for step, affinity in enumerate(affinities):
            there = from_lane(affinity, mine & (gate.lanes - 1), gate.lanes)
            ptx.assign(chosen, there, guard=mine // gate.lanes == step)
        chooses = place.lane < gate.top_k
        chosen = ptx.select(chooses, chosen, 0.0)
        weight = chosen / (lane_sum(chosen, gate.lanes) + TINY) * scale
        expert = mine if gate.size == gate.room else mine // gate.room * gate.size + (mine & (gate.room - 1))
        with ptx.when(chooses & place.there):
            slot = place.token * gate.top_k + place.lane
            ptx.st.global_.b32(experts + slot, expert)
            ptx.st.global_.f32(weights + slot, weight)

    return router


def without(keys: list[u32], names: list[u32], gone: u32) -> list[u32]:
    """The keys, but for the one of a name."""
    return [ptx.select(name == gone, GONE, key) for key, name in zip(keys, names, strict=True)]


def keep_best_groups(gate: Gate, place: Place, keys: list[u32]) -> list[u32]:
    """The keys of experts in the best groups."""
    run = max(1, gate.room // gate.lanes)  # positions of a lane in a group
    reach = min(gate.room, gate.lanes)  # lanes of a group
    group_keys: list[u32] = []
    for first in range(0, gate.steps, run):
        members, names = keys[first:first + run], place.positions[first:first + run]
        total: Any = None
        for taken in range(gate.counted):
            key, winner = best(members, names, reach)
            total = number_of(key) if total is None else total + number_of(key)
            if taken + 1 < gate.counted:
                members = without(members, names, winner)
        group_keys += [key_of(total)] * run
    group_keys = [ptx.select(group < gate.groups, key, GONE) for key, group in zip(group_keys, place.groups, strict=True)]
    kept = [ptx.var(u32, GONE) for _ in keys]
    for _ in range(gate.groups_kept):
        _, winner = best(group_keys, place.groups, gate.lanes)
        for key, group, into in zip(keys, place.groups, kept, strict=True):
            ptx.assign(into, key, guard=group == winner)
        group_keys = without(group_keys, place.groups, winner)
    return kept


@lru_cache
def backward_kernel(experts: int, top_k: int, with_scores: bool) -> ptx.Kernel:
    lanes = min(WARP, power_of_two(max(experts, top_k)))
    steps = -(-experts // lanes)

    @ptx.kernel(block=BLOCK, name=f"router_backward_{experts}_{top_k}" + "_scores" * with_scores)
    def router_backward(grad_weights: Pointer[f32], grad_scores: Pointer[f32], chosen: Pointer[b32], scores: Pointer[f32],
                        grad: Pointer[f32], tokens: u32, scale: f32):
        lane = ptx.laneid() & (lanes - 1)
        token = (ptx.ctaid.x * WARPS + ptx.warpid()) * (WARP // lanes) + ptx.laneid() // lanes
        there = token < tokens
        row = token * experts
        expert, gradient, score = ptx.var(u32, ALL), ptx.var(f32, 0.0), ptx.var(f32, 0.0)
        with ptx.when(there & (lane < top_k)):
            slot = token * top_k + lane
            ptx.ld.global_.nc.b32(chosen + slot, out=expert)
            ptx.ld.global_.nc.f32(grad_weights + slot, out=gradient)
            ptx.ld.global_.nc.f32(scores + (row + expert), out=score)
        total = lane_sum(score, lanes) + TINY
        share = (gradient - lane_sum(gradient * score, lanes) / total) * (scale / total)
        shares = [(from_lane(expert, choice, lanes), from_lane(share, choice, lanes)) for choice in range(top_k)]
        for step in range(steps):
            own = lane + step * lanes
            inside = there if experts == steps * lanes else there & (own < experts)
            with ptx.when(inside):
                slope = ptx.ld.global_.nc.f32(scores + (row + own))
                sum_ = ptx.var(f32, ptx.ld.global_.nc.f32(grad_scores + (row + own)) if with_scores else 0.0)
                for expert_of, share_of in shares:
                    ptx.add.rn.f32(sum_, share_of, out=sum_, guard=expert_of == own)
                ptx.st.global_.f32(grad + (row + own), sum_ * slope * (1.0 - slope))

    return router_backward


# ── launching ────────────────────────────────────────────────────────────────────────────────────────────────────


def forward(logits: Tensor, bias: Tensor, top_k: int, groups: int, groups_kept: int, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """logits FP32[T, E], bias FP32[E] → experts int32[T, k], by descending biased score; weights FP32[T, k]; scores FP32[T, E]."""
    tokens, experts = logits.shape
    gate = Gate(experts, top_k, groups, groups_kept)
    chosen, weights = torch.empty(tokens, top_k, dtype=torch.int32), torch.empty(tokens, top_k)
    scores = torch.empty(tokens, experts)
    warps = -(-tokens // (WARP // gate.lanes))
    launch(forward_kernel(gate), warps, logits.contiguous(), bias.contiguous(), chosen, weights, scores, tokens, scale)
    return chosen, weights, scores


def backward(grad_weights: Tensor, grad_scores: Tensor | None, experts: Tensor, scores: Tensor, scale: float) -> Tensor:
    """Gradients of weights FP32[T, k] and, if any, of scores FP32[T, E]; what the forward returned → gradient of the logits FP32[T, E]."""
    tokens, count = scores.shape
    top_k = experts.shape[1]
    grad = torch.empty(tokens, count)
    kernel = backward_kernel(count, top_k, grad_scores is not None)
    warps = -(-tokens // (WARP // min(WARP, power_of_two(max(count, top_k)))))
    launch(kernel, warps, grad_weights.contiguous(), None if grad_scores is None else grad_scores.contiguous(), experts, scores, grad,
           tokens, scale)
    return grad


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────


def select_experts(biased: Tensor, top_k: int, groups: int, groups_kept: int) -> Tensor:
    """int64[T, k]: the experts with the largest biased scores FP32[T, E] in the best groups, descending, ties to the lower index."""
    tokens, experts = biased.shape
    if groups_kept < groups:
        by_group = biased.view(tokens, groups, experts // groups)
        counted = min(experts // groups, max(1, top_k // groups_kept))
        kept = by_group.topk(counted, dim=2).values.sum(2).sort(dim=1, descending=True, stable=True).indices[:, :groups_kept]
        dropped = torch.ones(tokens, groups, dtype=torch.bool).scatter_(1, kept, False)
        biased = by_group.masked_fill(dropped[:, :, None], -torch.inf).view(tokens, experts)
    return biased.sort(dim=1, descending=True, stable=True).indices[:, :top_k]


def forward_reference(logits: Tensor, bias: Tensor, top_k: int, groups: int, groups_kept: int,
                      scale: float) -> tuple[Tensor, Tensor, Tensor]:
    scores = torch.sigmoid(logits)
    experts = select_experts(scores + bias, top_k, groups, groups_kept)
    chosen = scores.gather(1, experts)
    return experts.int(), chosen / (chosen.sum(1, keepdim=True) + TINY) * scale, scores


def backward_reference(grad_weights: Tensor, grad_scores: Tensor | None, experts: Tensor, scores: Tensor, scale: float) -> Tensor:
    chosen = scores.gather(1, experts.long())
    total = chosen.sum(1, keepdim=True) + TINY
    share = (grad_weights - (grad_weights * chosen).sum(1, keepdim=True) / total) * (scale / total)
    slope = torch.zeros_like(scores) if grad_scores is None else grad_scores.clone()
    return slope.scatter_add_(1, experts.long(), share) * scores * (1 - scores)


def _example(generator: torch.Generator) -> tuple:
    return torch.randn(2048, 16, generator=generator), torch.randn(16, generator=generator) * 0.1, 2, 4, 2, 2.5


def _backward_example(generator: torch.Generator) -> tuple:
    experts, weights, scores = forward_reference(*_example(generator))
    return torch.randn(weights.shape, generator=generator), torch.randn(scores.shape, generator=generator), experts, scores, 2.5


_GATES = {"16 experts, 2 of 4 groups": Gate(16, 2, 4, 2), "256 experts, 4 of 8 groups (DeepSeek-V3)": Gate(256, 8, 8, 4)}

register(LibraryKernel(
    "router", "DeepSeek-V3's gate: affinities, experts, weights", lambda: {name: forward_kernel(gate) for name, gate in _GATES.items()},
    forward, forward_reference, example=_example, tolerance=1e-5, traffic=lambda logits, *rest: 2 * logits.nbytes))
register(LibraryKernel(
    "router_backward", "the gate's gradient for its logits",
    lambda: {name: backward_kernel(gate.experts, gate.top_k, True) for name, gate in _GATES.items()},
    backward, backward_reference, example=_backward_example, tolerance=1e-5, traffic=lambda weights, scores, *rest: 3 * scores.nbytes))
