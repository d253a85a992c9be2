"""A client of TensorFlow Serving, by gRPC and REST: NumPy arrays in and out, no TensorFlow."""
