"""Generates text that continues a prompt.

    txl-generate --model_dir=RUN --prompt='Once upon' --length=300 --temperature=0.8
    txl-generate --model_dir=RUN --prompt=A --prompt=B --num_samples=3 --seed=1 --json
    txl-generate --model_dir=RUN --prompt='Once upon' --num_beams=8
    txl-generate --model_dir=RUN --interactive

Streams the prompt and its continuation to stdout; several continuations are printed at the end,
each below a heading. --json prints one JSON object per continuation instead. Tokens are sampled
from the model's distribution unless --temperature, --top_k or --top_p change it; --temperature=0 is
greedy.

--interactive continues each line that you enter and remembers all turns; an empty line lets the
model continue, "/reset" clears the memory. Prompts precede the first turn.
"""

import dataclasses
import json
import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from absl import app, flags, logging

from txl_tf.cli import entry_point, model_flags, repl
from txl_tf.configs.validation import LONGEST
from txl_tf.data import text
from txl_tf.inference.metrics import plain
from txl_tf.progress import Progress

if TYPE_CHECKING:
    from txl_tf.inference.generation import Continuation, Generator

_PROMPT = flags.DEFINE_multi_string("prompt", [], "Text to continue")
_PROMPT_FILE = flags.DEFINE_string("prompt_file", None, "File whose whole text is a prompt.")
_LENGTH = flags.DEFINE_integer("length", 200, "Number of tokens to generate.", 1, LONGEST)
_STOP = flags.DEFINE_bool("stop_at_line_end", False, "Stop at the first line end.")
_NUM_SAMPLES = flags.DEFINE_integer(
    "num_samples", 1, "Continuations per prompt; with --num_beams, the best ones.", lower_bound=1
)
_TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "Divisor of the logits; 0 is greedy.")
_TOP_K = flags.DEFINE_integer(
    "top_k", None, "Sample from the k most likely tokens; default: all.", lower_bound=1
)
_TOP_P = flags.DEFINE_float(
    "top_p", 1.0, "Sample from the most likely tokens with this total probability."
)
_SEED = flags.DEFINE_integer(
    "seed", None, "Seed of the samples; default: random, and logged.", 0, 2**31 - 1
)
_NUM_BEAMS = flags.DEFINE_integer(
    "num_beams", None, "Use beam search with this number of beams.", lower_bound=1
)
_LENGTH_PENALTY = flags.DEFINE_float(
    "length_penalty", 0.0, "Rank beams by log-probability / length ** length_penalty."
)
_INTERACTIVE = flags.DEFINE_bool("interactive", False, "Read lines from stdin and continue each.")
_JSON = flags.DEFINE_bool("json", False, "Print JSON lines with prompt, sample, text and log_prob.")
model_flags.define({"segment_len": "eval.segment_len"})


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    _check_flags()
    prompts = _prompts()
    from txl_tf.inference.generation import Generator
    from txl_tf.inference.sampling import Sampling

    sampling = Sampling(temperature=_TEMPERATURE.value, top_k=_TOP_K.value, top_p=_TOP_P.value)
    entry_point.log_devices()
    loaded = model_flags.load()
    generator = Generator(
        loaded.model,
        loaded.tokenizer,
        sampling=sampling,
        stop_at_line_end=_STOP.value,
        segment_len=model_flags.segment_len(loaded.config),
        state=model_flags.state(),
    )
    if _INTERACTIVE.value:
        _converse(generator, "".join(prompts))
    elif len(prompts) == _NUM_SAMPLES.value == 1 and _NUM_BEAMS.value is None and not _JSON.value:
        _stream(generator, *prompts)
    else:
        with Progress("generate"):
            found = _continue(generator, prompts)
        _print_all(found)


def _check_flags() -> None:
    """Refuses flags that would have no effect beside others."""
    if _NUM_BEAMS.value is not None:
        _refuse_beside("num_beams", "temperature", "top_k", "top_p", "seed", "interactive")
    else:
        _refuse_beside("sampling (set num_beams)", "length_penalty")
    if _INTERACTIVE.value:
        _refuse_beside("interactive", "num_samples", "json")


def _refuse_beside(owner: str, *names: str) -> None:
    for name in names:
        if flags.FLAGS[name].present and flags.FLAGS[name].value is not False:
            raise app.UsageError(f"--{name} has no effect with {owner}; leave it out")


def _prompts() -> list[str]:
    prompts = list(_PROMPT.value)
    for prompt in prompts:
        text.decode(text.Piece(prompt.encode("utf-8", "surrogateescape"), "prompt"))
    if _PROMPT_FILE.value is not None:
        with text.Reader(text.Source.from_path(_PROMPT_FILE.value)) as reader:
            data = reader.whole()
        prompts.append(text.decode(text.Piece(data, _PROMPT_FILE.value)))
    return prompts or [""]


def _seed() -> int:
    seed = secrets.randbelow(2**31) if _SEED.value is None else _SEED.value
    logging.info("seed=%d", seed)
    return seed


def _stream(generator: "Generator", prompt: str) -> None:
    from txl_tf.inference.generation import Conversation

    conversation = Conversation(generator, _seed())
    conversation.read(prompt)
    written = conversation.write(_LENGTH.value)  # refused before the prompt is printed
    print(prompt, end="")
    _print_as_it_comes(written)


def _print_as_it_comes(written: Iterator[str]) -> None:
    start = time.monotonic()
    for new in written:
        print(new, end="", flush=True)
    print(flush=True)
    logging.info("seconds=%.1f", time.monotonic() - start)


def _converse(generator: "Generator", before: str) -> None:
    from txl_tf.inference.generation import Conversation

    seed = _seed()
    conversation = None
    for line in repl.lines():
        if line is None:
            conversation = None
            continue
        if conversation is None:
            conversation = Conversation(generator, seed)
            line = before + line
        conversation.read(line)
        _print_as_it_comes(conversation.write(_LENGTH.value))


def _continue(generator: "Generator", prompts: list[str]) -> "list[list[Continuation]]":
    length, num_samples = _LENGTH.value, _NUM_SAMPLES.value
    if _NUM_BEAMS.value is None:
        return generator.samples(prompts, length, num_samples=num_samples, seed=_seed())
    return generator.beams(
        prompts,
        length,
        num_beams=_NUM_BEAMS.value,
        num_samples=num_samples,
        length_penalty=_LENGTH_PENALTY.value,
    )


def _print_all(found: "list[list[Continuation]]") -> None:
    alone = sum(map(len, found)) == 1
    for prompt, samples in enumerate(found, start=1):
        for sample, continuation in enumerate(samples, start=1):
            if _JSON.value:
                result = {"prompt": continuation.prompt, "sample": sample}
                result |= dataclasses.asdict(continuation)
                print(json.dumps(plain(result)))
                continue
            if not alone:
                log_prob = continuation.log_prob
                print(f"=== prompt {prompt}, sample {sample}, log_prob {log_prob:.3f} ===")
            print(continuation.prompt + continuation.text)


def run() -> NoReturn:
    entry_point.run(main, texts=["prompt"])


if __name__ == "__main__":
    run()
