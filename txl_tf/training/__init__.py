"""Training: schedule, optimizer, one compiled step, checkpoints, and the loop around them."""
