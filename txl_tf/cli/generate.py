"""Continues text with a model.

    txl-generate --model_dir=RUN --prompt='Once upon' --length=300 --temperature=0.8
    txl-generate --model_dir=RUN --prompt=A --prompt=B --num_samples=3 --seed=1 --json
    txl-generate --model_dir=RUN --prompt='Once upon' --num_beams=8
    txl-generate --model_dir=RUN --interactive

stdout has the prompt and its continuation, as it comes; of several, each under a line that says
which it is. --json prints one object a continuation instead. The continuation is as likely as the
model has it unless --temperature, --top_k or --top_p change that; --temperature=0 is greedy.

--interactive reads lines and continues each, and remembers all turns; an empty line lets the model
go on, "/reset" makes it forget. Prompts come before the first turn.
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

_PROMPT = flags.DEFINE_multi_string("prompt", [], "Text to continue. Repeatable.")
_PROMPT_FILE = flags.DEFINE_string("prompt_file", None, "A file whose whole text is a prompt.")
_LENGTH = flags.DEFINE_integer("length", 200, "Tokens to write.", 1, LONGEST)
_STOP = flags.DEFINE_bool("stop_at_line_end", False, "Write no more once a line has ended.")
_NUM_SAMPLES = flags.DEFINE_integer(
    "num_samples", 1, "Continuations of each prompt; of a beam search, the best.", lower_bound=1
)
_TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "Below 1 is safer, above 1 is bolder.")
_TOP_K = flags.DEFINE_integer(
    "top_k", None, "Only the k likeliest tokens may come; unset is all.", lower_bound=1
)
_TOP_P = flags.DEFINE_float("top_p", 1.0, "Only the likeliest that together have this probability.")
_SEED = flags.DEFINE_integer(
    "seed", None, "Of the samples; unset draws one, and logs it.", 0, 2**31 - 1
)
_NUM_BEAMS = flags.DEFINE_integer(
    "num_beams", None, "Search for the likeliest by so many beams.", lower_bound=1
)
_LENGTH_PENALTY = flags.DEFINE_float(
    "length_penalty", 0.0, "Beams are ranked by log-probability / length ** this."
)
_INTERACTIVE = flags.DEFINE_bool("interactive", False, "Take turns with the user.")
_JSON = flags.DEFINE_bool("json", False, "Print JSON lines: prompt, sample, text, log_prob.")
model_flags.define({"segment_len": "eval.segment_len"})


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses arguments that are no flags
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
                told = {"prompt": continuation.prompt, "sample": sample}
                told |= dataclasses.asdict(continuation)
                print(json.dumps(plain(told)))
                continue
            if not alone:
                log_prob = continuation.log_prob
                print(f"=== prompt {prompt}, sample {sample}, log_prob {log_prob:.3f} ===")
            print(continuation.prompt + continuation.text)


def run() -> NoReturn:
    entry_point.run(main, texts=["prompt"])


if __name__ == "__main__":
    run()
