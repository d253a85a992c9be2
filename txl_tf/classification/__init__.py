"""Classifiers of long texts: config, training, evaluation and their model_dir."""
