"""A model that trains in milliseconds a step, and text for it."""

TOY = """
[model]
vocab_size = 300
hidden = 32
layers = 2
heads = 2
q_lora = 16
kv_lora = 16
qk_nope = 8
qk_rope = 8
v_head = 8
dense_width = 64
experts = 4
expert_width = 16
groups = 2
groups_kept = 1
[training]
batch = 2
sequence = 32
steps = 12
warmup = 3
learning_rate = 0.01
eval_every = 5
eval_sequences = 4
checkpoint_every = 4
sample_tokens = 8
"""

TEXT = "".join(f"def f{i}(x, y={i % 7}):\n    return x * {i} + y\n\n\n" for i in range(400))


def write_toy(folder, **training):
    """toy.toml and text.py in the folder; returns the paths of both."""
    config = TOY
    for name, value in training.items():
        lines = [line if not line.startswith(f"{name} =") else f"{name} = {value}" for line in config.splitlines()]
        config = "\n".join(lines)
    (folder / "toy.toml").write_text(config)
    (folder / "text.py").write_text(TEXT)
    return folder / "toy.toml", folder / "text.py"
