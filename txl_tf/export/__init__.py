"""Export of trained models to servers and devices."""
