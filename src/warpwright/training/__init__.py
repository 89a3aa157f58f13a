"""Training: data, tokenizer, loop, optimizer, precision policy, checkpoints, report."""
