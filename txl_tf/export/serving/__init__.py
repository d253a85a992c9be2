"""SavedModels for TensorFlow Serving."""
