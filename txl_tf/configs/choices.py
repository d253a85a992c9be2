"""Choices of the programs' flags, without TensorFlow.

Each tuple lists the names of a table, in its order:

    STRATEGIES      txl_tf.training.distribution.STRATEGIES
    STATES          txl_tf.inference.decode_state.STATES
    QUANTIZATIONS   txl_tf.export.edge.quantization.QUANTIZATIONS
    IMPORT_FORMATS  txl_tf.conversion.import_checkpoint.IMPORTERS
    EXPORT_FORMATS  txl_tf.conversion.export_checkpoint.EXPORTERS
    POOLINGS        txl_tf.models.pooling.POOLING
"""

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
STATES = ("kv", "hidden")
STATE_DTYPES = ("float32", "float16")
QUANTIZATIONS = ("none", "float16", "dynamic", "int8")
IMPORT_FORMATS = ("tf1", "pytorch", "nvidia", "huggingface", "xlnet")
EXPORT_FORMATS = ("tf1", "huggingface", "xlnet")
POOLINGS = ("mean", "max", "first", "last")
