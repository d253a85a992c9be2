"""Pure tensor functions: no weights, no state."""
