"""What the model of a run writes by now, to read along."""

from txl_tf.configs.run import Config
from txl_tf.data.tokenizers.tokenizer import Tokenizer
from txl_tf.inference.generation import Generator
from txl_tf.models.transformer_xl import TransformerXL


def check(config: Config) -> None:
    """Refuses samples of a model that, evaluated, has no memory of what it wrote.

    Raises:
      ValueError: names the length.
    """
    length = config.train.sample_length
    mem_len = config.model.mem_len if config.eval.mem_len is None else config.eval.mem_len
    if length and not mem_len:
        raise ValueError(f"sample_length must be 0 without mem_len in evaluation, got {length}")


class Samples:
    """Writes a text of its own accord, from an empty prompt; the same for the same weights.

    Args:
      model: in its lengths for evaluation, see `check`.
      tokenizer: of the run.
      length: tokens to write.
      seed: of the choices.
    """

    def __init__(self, model: TransformerXL, tokenizer: Tokenizer, length: int, seed: int) -> None:
        self._generator = Generator(model, tokenizer)
        self._length = length
        self._seed = seed

    def write(self) -> str:
        """The text under the present weights."""
        self._generator.refresh()
        ((sample,),) = self._generator.samples([""], self._length, seed=self._seed)
        return sample.text
