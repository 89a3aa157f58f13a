"""What a model costs, from its shape alone: arithmetic without tensors."""

from warpwright.planning.models import PRESETS, Counts, count, load

__all__ = ["PRESETS", "Counts", "count", "load"]
