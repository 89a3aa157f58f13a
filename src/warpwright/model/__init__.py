"""The model: DeepSeek-V3's architecture as torch modules whose hot operations come from `warpwright.kernels.ops`."""
