"""Classifiers of long texts: their config, training, evaluation and the folder that keeps them."""
