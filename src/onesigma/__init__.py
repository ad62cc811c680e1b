"""Per-pixel epistemic and aleatoric uncertainty in one forward pass."""
