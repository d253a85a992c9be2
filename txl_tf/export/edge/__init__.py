"""TFLite files for devices, and their runtime, which needs no TensorFlow."""
