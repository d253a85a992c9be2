"""Training and validation data of a run."""

from txl_tf.configs.run import Config
from txl_tf.data import tokenizers
from txl_tf.data.batches import Batches
from txl_tf.training.distribution import Distribution


class RunData:
    """The training and validation splits and their tokenizer.

    Args:
      config: of the run.
      data_dir: output folder of `prepare`.
      distribution: this worker reads its rows of the training split, and all rows of the other.

    Attributes:
      tokenizer: of the text.
      train: `Batches` of the training split.
      valid: `Batches`, or None if there is no such split or no validation.

    Raises:
      ValueError: the data do not fit the config, or a split is too short.
    """

    def __init__(self, config: Config, data_dir: str, distribution: Distribution) -> None:
        self.tokenizer = tokenizers.load(data_dir)
        self.train = Batches(
            data_dir,
            "train",
            batch_size=config.train.batch_size,
            segment_len=config.train.segment_len,
            layout=config.data.layout,
            rows=distribution.rows(config.train.batch_size),
        )
        self._check_vocabulary(config.model.vocab_size, self.tokenizer.checksum)
        self.valid = None
        if config.train.eval_every and "valid" in self.train.metadata.splits:
            self.valid = Batches(
                data_dir,
                "valid",
                batch_size=config.eval.batch_size,
                segment_len=config.eval.segment_len or config.train.segment_len,
                mode="eval",
                layout=config.eval.layout,
            )
        elif config.train.stop_after_evals is not None:
            raise ValueError(
                f"stop_after_evals must be none without a valid split in {data_dir}, "
                f"got {config.train.stop_after_evals}"
            )

    def check_vocabulary(self, model_dir: str) -> None:
        """Raises if the model_dir has another vocabulary than the data."""
        tokenizer = tokenizers.load(model_dir)
        self._check_vocabulary(tokenizer.vocab_size, tokenizer.checksum)

    def _check_vocabulary(self, vocab_size: int, checksum: str) -> None:
        try:
            self.train.metadata.check_vocabulary(vocab_size, checksum)
        except ValueError as error:
            raise ValueError(f"{self.train.data_dir}: {error}") from error
