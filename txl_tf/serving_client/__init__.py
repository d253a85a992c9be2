"""Client of TensorFlow Serving over gRPC and REST: NumPy arrays in and out, no TensorFlow."""
