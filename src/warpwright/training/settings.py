"""Everything a run is made with: the model's shape, the training hyper-parameters, the number formats. Presets, TOML files, overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from warpwright.errors import DataError
from warpwright.kernels.recipe import Recipe
from warpwright.model import config
from warpwright.model.config import ModelConfig, read_table, unknown


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of training. Defaults without a note are DeepSeek-V3's (technical report, section 4.2)."""

    batch: int = 8
    """Sequences in a step."""
    sequence: int = 256
    """Tokens in a sequence."""
    steps: int = 500
    learning_rate: float = 2.2e-4
    """The highest, after warm-up."""
    final_learning_rate: float = 0.1
    """What the cosine ends at, as a fraction of the highest."""
    warmup: int = 40
    """Steps of linear warm-up."""
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    """Largest norm of the whole gradient."""
    bias_update_speed: float = 0.001
    """γ: how far the routers' biases move in a step."""
    balance_loss: float = 1e-4
    """α: weight of the sequence-wise balance loss."""
    mtp_loss: float = 0.3
    """λ: weight of the multi-token-prediction loss."""
    eval_every: int = 50
    """Steps between two measurements of validation bits per byte; the first is before training, the last after it."""
    eval_sequences: int = 64
    """Sequences of the validation data that are measured, spread evenly over it."""
    checkpoint_every: int = 100
    keep: int = 2
    """Checkpoints that are kept."""
    sample_tokens: int = 200
    """Length of the sample at the end."""

    def __post_init__(self) -> None:
        may_be_zero = ("warmup", "weight_decay", "bias_update_speed", "balance_loss", "mtp_loss", "final_learning_rate", "beta1", "beta2")
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0 or (value == 0 and field.name not in may_be_zero):
                raise DataError(f"training: {field.name} is {value}; it must be positive")
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise DataError(f"training: {name} is {getattr(self, name)}; it must be less than 1")


@dataclass(frozen=True)
class Settings:
    """What a run is made with, but for its data and seed."""

    name: str
    model: ModelConfig
    training: Training
    recipe: Recipe

    def as_tables(self) -> dict[str, Any]:
        """Plain tables, that JSON can hold and `from_tables` reads."""
        return asdict(self)


SECTIONS = {"model": ModelConfig, "training": Training, "recipe": Recipe}

TRAINING: dict[str, Training] = {
    # γ is larger than V3's: it has some hundred steps to even out the load, not hundreds of thousands.
    "tiny": Training(batch=8, sequence=256, steps=320, learning_rate=2e-3, warmup=20, bias_update_speed=0.01),
    "small": Training(batch=16, sequence=512, steps=20_000, learning_rate=6e-4, warmup=500, eval_every=500, checkpoint_every=500),
    "deepseek-v3-671b": Training(batch=15_360, sequence=4096, steps=235_000, learning_rate=2.2e-4, warmup=2000, eval_every=1000,
                                 checkpoint_every=500),
}


def load(name: str, precision: str | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a preset's name or a TOML file's path.

    A file has the tables [model], [training] and [recipe], whose keys are the fields of ModelConfig, Training and Recipe, and on top
    `base`, the preset whose values hold where it names none (default "tiny"), and `precision`.

    precision: "fp8", "bf16" or "fp32": the recipe to start from; by default the file's, or "fp8". overrides: {"training.steps": 100, …},
    of which those that are None count for nothing. Raises DataError with what is wrong and where.
    """
    tables: dict[str, Any] = {}
    if name not in config.PRESETS:
        tables = _read_file(name)
    where = name if tables else "--config"
    base = tables.pop("base", "tiny" if tables else name)
    if base not in config.PRESETS:
        raise DataError(f"{where}: base is {base!r}; it can be {', '.join(map(repr, config.PRESETS))}")
    precision = precision or tables.pop("precision", "fp8")
    tables.pop("precision", None)
    for key, table in tables.items():
        if key not in SECTIONS:
            raise unknown(key, [*SECTIONS, "base", "precision"], where)
        if not isinstance(table, dict):
            raise DataError(f"{where}: {key} must be a table: [{key}]")
    settings = Settings(Path(name).stem if tables else name, config.PRESETS[base], TRAINING[base], Recipe.named(precision))
    for section, kind in SECTIONS.items():
        part = read_table(kind, tables.get(section, {}), f"{where}: [{section}]", getattr(settings, section))
        settings = replace(settings, **{section: part})
    return override(settings, overrides or {})


def override(settings: Settings, overrides: Mapping[str, Any]) -> Settings:
    """The settings with some values replaced: {"training.steps": 100, …}; a value of None counts for nothing."""
    for key, value in overrides.items():
        section, _, field = key.partition(".")
        if value is None:
            continue
        if section not in SECTIONS or not field:
            raise DataError(f"--set {key}: write SECTION.KEY=VALUE with a section of {', '.join(SECTIONS)}")
        part = read_table(SECTIONS[section], {field: value}, f"[{section}]", getattr(settings, section))
        settings = replace(settings, **{section: part})
    return settings


def from_tables(tables: Mapping[str, Any]) -> Settings:
    """What `Settings.as_tables` gave."""
    parts: dict[str, Any] = {section: read_table(kind, tables[section], f"[{section}]") for section, kind in SECTIONS.items()}
    return Settings(tables["name"], **parts)


def parse_value(text: str) -> Any:
    """A value as it is written on the command line: a TOML value, or a bare word for a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _read_file(name: str) -> dict[str, Any]:
    path = Path(name)
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"--config {name}: there is no such preset or file; the presets are {', '.join(config.PRESETS)}") from None
    except UnicodeDecodeError:
        raise DataError(f"{name}: is not a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{name}: is not valid TOML: {error}") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None
