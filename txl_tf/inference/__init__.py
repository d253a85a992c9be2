"""A trained model at work: evaluating, scoring and generating."""
