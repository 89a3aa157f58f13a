"""Shapes of models, the presets, and the strict reading of configuration tables (TOML)."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from warpwright.errors import DataError

T = TypeVar("T")


@dataclass(frozen=True)
class ModelConfig:
    """A model's shape. The field names' meanings are the DeepSeek-V3 technical report's (arXiv 2412.19437v2, section 4.2)."""

    vocab_size: int
    hidden: int
    """Width of the residual stream."""
    layers: int
    dense_layers: int
    """How many leading layers have a dense MLP instead of experts."""
    heads: int
    q_lora: int
    """Width of the compressed latent that queries are made from."""
    kv_lora: int
    """Width of the compressed latent that keys and values are made from; it and the rotated key are all that generation has to cache."""
    qk_nope: int
    """Width of a head's query and key without positions."""
    qk_rope: int
    """Width of a head's query, and of the one key that all heads share, with rotary positions."""
    v_head: int
    dense_width: int
    """Inner width of the dense layers' MLP."""
    experts: int
    """Routed experts in a layer."""
    shared_experts: int
    expert_width: int
    experts_per_token: int
    groups: int
    groups_kept: int
    route_scale: float
    mtp_depth: int = 1
    """Multi-token-prediction depths: 0 or 1."""
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    init_std: float = 0.006

    def __post_init__(self) -> None:
        def require(holds: bool, message: str) -> None:
            if not holds:
                raise DataError(f"model: {message}")

        may_be_zero = ("dense_layers", "shared_experts", "mtp_depth")
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            require(value > 0 or (name in may_be_zero and value == 0), f"{name} is {value}; it must be positive")
        require(self.dense_layers <= self.layers, f"dense_layers is {self.dense_layers} of {self.layers} layers")
        require(self.mtp_depth <= 1, f"mtp_depth is {self.mtp_depth}; it can be 0 or 1")
        require(self.qk_rope % 2 == 0, f"qk_rope is {self.qk_rope}; it must be even, since rotary positions turn pairs")
        require(self.experts % self.groups == 0, f"experts ({self.experts}) do not divide into {self.groups} groups of equal size")
        require(self.groups_kept <= self.groups, f"groups_kept ({self.groups_kept}) is more than groups ({self.groups})")
        reachable = self.groups_kept * (self.experts // self.groups)
        require(self.experts_per_token <= reachable,
                f"experts_per_token is {self.experts_per_token}, but the {self.groups_kept} groups kept have {reachable} experts")

    @property
    def qk_head(self) -> int:
        """Width of a head's whole query."""
        return self.qk_nope + self.qk_rope


PRESETS: dict[str, ModelConfig] = {
    "tiny": ModelConfig(
        vocab_size=2048, hidden=256, layers=4, dense_layers=1, heads=4, q_lora=128, kv_lora=64, qk_nope=32, qk_rope=16, v_head=32,
        dense_width=512, experts=8, shared_experts=1, expert_width=128, experts_per_token=2, groups=4, groups_kept=2, route_scale=1.0,
        init_std=0.02),
    "small": ModelConfig(
        vocab_size=8192, hidden=768, layers=12, dense_layers=1, heads=12, q_lora=384, kv_lora=192, qk_nope=64, qk_rope=32, v_head=64,
        dense_width=2048, experts=32, shared_experts=1, expert_width=384, experts_per_token=4, groups=8, groups_kept=4, route_scale=2.0,
        init_std=0.015),
    "deepseek-v3-671b": ModelConfig(
        vocab_size=129280, hidden=7168, layers=61, dense_layers=3, heads=128, q_lora=1536, kv_lora=512, qk_nope=128, qk_rope=64, v_head=128,
        dense_width=18432, experts=256, shared_experts=1, expert_width=2048, experts_per_token=8, groups=8, groups_kept=4, route_scale=2.5),
}


def read_table(kind: type[T], table: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """A dataclass from a table of its fields; those left out are `base`'s, or the defaults.

    where: names the table in messages, such as "my.toml: [model]". Raises DataError for an unknown key, a wrong type, or one left out.
    """
    hints = get_type_hints(kind)
    values = {field.name: getattr(base, field.name) for field in fields(kind)} if base is not None else {}  # type: ignore[arg-type]
    for key, value in table.items():
        if key not in hints:
            raise unknown(key, list(hints), where)
        values[key] = _converted(value, hints[key], f"{where}: {key}")
    try:
        return kind(**values)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except TypeError as error:
        missing = [field.name for field in fields(kind) if field.name not in values]  # type: ignore[arg-type]
        raise DataError(f"{where}: needs {', '.join(missing)}") from error


def unknown(key: str, known: list[str], where: str) -> DataError:
    """The error for a key that does not exist, with the nearest that does."""
    near = difflib.get_close_matches(key, known, 1, 0.5)
    return DataError(f"{where}: there is no key '{key}'; " + (f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known)}"))


def _converted(value: Any, hint: Any, where: str) -> Any:
    """The value as the annotated type, if it can be one without loss."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if choice is type(None) and value in (None, "none"):
            return None
        if get_origin(choice) is Literal and value in get_args(choice):
            return value
        if choice is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(choice, type) and isinstance(value, choice) and (choice is bool or not isinstance(value, bool)):
            return value
    raise DataError(f"{where} is {value!r}; it must be {_say(choices)}")


def _say(choices: tuple[Any, ...]) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", type(None): '"none"'}
    return " or ".join(", ".join(map(repr, get_args(c))) if get_origin(c) is Literal else names.get(c, str(c)) for c in choices)
