"""Long training trials, run by hand; each prints one JSON object.

    python tests/endurance.py kills --kills=20 --seed=1 --text=FILE
    python tests/endurance.py flat --steps=3000

kills: trains a small model on the text without interruption, then again with `kill -9` at random
times and a restart after each; compares the last checkpoints bitwise. Exit code 1: they differ.

flat: trains preset tiny on the built-in corpus; compares memory and step time early and late.
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from unittest import mock

import numpy as np

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ENVIRONMENT = os.environ | {"PYTHONPATH": _ROOT, "CUDA_VISIBLE_DEVICES": ""}
_AT_START = 0.25  # the share of kills that fall before the first step
_OF_TENSORFLOW = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter")  # counts the saves of a process
_SMALL = {  # saves at every other step, so that many kills fall into saves
    "model.num_layers": 2,
    "model.d_model": 32,
    "model.num_heads": 2,
    "model.head_dim": 16,
    "model.d_inner": 64,
    "model.mem_len": 16,
    "model.dropout": 0.1,
    "train.batch_size": 8,
    "train.segment_len": 16,
    "train.warmup_steps": 10,
    "train.log_every": 1,
    "train.eval_every": 25,
    "train.eval_batches": 20,
    "train.checkpoint_every": 2,
}


def kills(text, folder, *, kills, seed, steps, jit=False):
    """Trains on a text file with and without kills; returns the outcome as a dict.

    One kill in four falls into the start of the program. The others are due at steps drawn from
    all of the run, and come up to a tenth of a second after that step, or after the first one that
    a new start logs where that is later.
    """
    draw = random.Random(seed)
    data = os.path.join(folder, "data")
    _call("prepare_data", f"--train={text}", f"--valid={text}", f"--output_dir={data}")
    whole, killed = (os.path.join(folder, name) for name in ("whole", "killed"))
    changes = {"train.train_steps": steps, "train.jit": jit}
    begun = time.monotonic()
    first_step = _train(data, whole, changes) - begun
    undisturbed = time.monotonic() - begun

    at_start = math.ceil(kills * _AT_START)
    moments = [None] * at_start + [draw.randrange(1, steps) for _ in range(kills - at_start)]
    order = sorted(moments[at_start:])
    for _ in range(at_start):
        order.insert(draw.randrange(kills), None)
    survived = []  # kills that came too late: the run was done
    for moment in order:
        after = draw.uniform(0.0, first_step if moment is None else 0.1)
        if not _train_and_kill(data, killed, changes, moment, after):
            survived.append(moment)
    _train(data, killed, changes)
    compared, differing = compare(killed, whole, steps)
    return {
        "kills": kills - len(survived),
        "seed": seed,
        "steps": steps,
        "jit": jit,
        "due_at_steps": order,
        "arrays": compared,
        "differing": differing,
        "bit_equal": not differing,
        "undisturbed_s": round(undisturbed, 1),
        "all_s": round(time.monotonic() - begun, 1),
    }


def compare(found, expected, step):
    """Compares two model_dirs: the checkpoint of a step, and the best with its validation.

    Returns the number of arrays, and the names of those that differ in a bit.
    """
    ours, theirs = (_state(path, step) for path in (found, expected))
    names = ours.keys() | theirs.keys()
    return len(names), sorted(name for name in names if ours.get(name) != theirs.get(name))


def _state(path, step):
    """Returns {name: (type, shape, bytes)} of the arrays in both checkpoints of a model_dir."""
    import tensorflow as tf  # takes seconds to import

    from txl_tf import model_dir as model_dirs

    newest = os.path.join(path, model_dirs.CHECKPOINTS, f"ckpt-{step}")
    (best,) = model_dirs.checkpoints(os.path.join(path, model_dirs.BEST))
    state = {}
    for prefix in (newest, best):
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            if not name.startswith(_OF_TENSORFLOW):
                array = np.asarray(reader.get_tensor(name))
                key = f"{os.path.relpath(prefix, path)}: {name}"
                state[key] = (array.dtype.str, array.shape, array.tobytes())
    return state


def flat(folder, *, steps, jit):
    """Trains tiny on the built-in corpus in this process; returns memory, times and traces."""
    import keras

    from txl_tf.configs import presets
    from txl_tf.configs.run import override_all
    from txl_tf.training import loop

    data = os.path.join(folder, "data")
    _call("prepare_data", "--builtin_corpus", f"--output_dir={data}")
    periods = [f"train.{name}_every=100" for name in ("eval", "checkpoint")]
    changes = [f"train.train_steps={steps}", f"train.jit={str(jit).lower()}", *periods]
    config = override_all(presets.preset("tiny"), changes)
    keras.utils.set_random_seed(config.train.seed)
    watch = _Watch(loop.make_train_step)
    with mock.patch.object(loop, "make_train_step", watch.make):
        loop.train(config, data_dir=data, model_dir=os.path.join(folder, "run"))
    part = max(steps // 3, 1)
    early, late = watch.seconds[1 : part + 1], watch.seconds[-part:]
    times = [1000 * statistics.median(seconds) for seconds in (early, late)]
    memory = [watch.memory[min(300, steps) - 1], watch.memory[-1]]
    return {
        "steps": steps,
        "jit": jit,
        "mb_at_300": round(memory[0] / 1e6, 1),
        "mb_at_end": round(memory[1] / 1e6, 1),
        "memory_ratio": round(memory[1] / memory[0], 4),
        "step_ms_first_third": round(times[0], 2),
        "step_ms_last_third": round(times[1], 2),
        "time_ratio": round(times[1] / times[0], 4),
        "traces": watch.step.experimental_get_tracing_count(),
    }


class _Watch:
    """Wraps the train step and measures each call: its seconds, and the memory after it."""

    def __init__(self, make):
        self._make = make
        self.step, self.seconds, self.memory = None, [], []

    def make(self, *args):
        self.step = self._make(*args)
        return self._measured

    def _measured(self, batch, memory):
        begun = time.monotonic()
        metrics, memory = self.step(batch, memory)
        float(metrics.loss)  # waits for the step
        self.seconds.append(time.monotonic() - begun)
        self.memory.append(resident_bytes())
        return metrics, memory


def resident_bytes():
    """Returns the resident memory of this process; Linux only."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _train(data, model_dir, changes):
    """Runs the program to its end; returns the time of its first logged step."""
    process = _start(data, model_dir, changes)
    lines, first = [], None
    for line in process.stderr:
        lines.append(line)
        if first is None and _step_of(line):
            first = time.monotonic()
    if process.wait():
        raise RuntimeError("".join(lines[-20:]))
    return first or time.monotonic()


def _train_and_kill(data, model_dir, changes, step, after):
    """Kills the program `after` seconds from its start, or from where it logs `step` or a later.

    Returns whether it was still running.
    """
    process = _start(data, model_dir, changes)
    if step is not None:
        next((line for line in process.stderr if _step_of(line) >= step), None)
    time.sleep(after)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def _start(data, model_dir, changes):
    flags = [f"--set={name}={value}" for name, value in (_SMALL | changes).items()]
    command = _command("train", f"--data_dir={data}", f"--model_dir={model_dir}", *flags)
    pipes = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=_ENVIRONMENT, **pipes)


def _step_of(line):
    """Returns the step in a log line, or 0 without one."""
    step = line.partition(" step=")[2].partition(" ")[0]
    return int(step) if step.isdigit() else 0


def _call(program, *flags):
    subprocess.run(
        _command(program, *flags), env=_ENVIRONMENT, check=True, stdout=subprocess.DEVNULL
    )


def _command(program, *flags):
    return [sys.executable, os.path.join(_ROOT, "scripts", f"{program}.py"), *flags]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    trials = parser.add_subparsers(dest="trial", required=True)
    trial = trials.add_parser("kills")
    trial.add_argument("--kills", type=int, default=20)
    trial.add_argument("--seed", type=int, default=1)
    trial.add_argument("--steps", type=int, default=1000)
    trial.add_argument("--jit", action=argparse.BooleanOptionalAction, default=False)
    trial.add_argument("--text", required=True, help="the text file to train on")
    trial = trials.add_parser("flat")
    trial.add_argument("--steps", type=int, default=3000)
    trial.add_argument("--jit", action=argparse.BooleanOptionalAction, default=True)
    options = vars(parser.parse_args())
    name = options.pop("trial")
    with tempfile.TemporaryDirectory() as folder:
        if name == "kills":
            result = kills(options.pop("text"), folder, **options)
        else:
            result = flat(folder, **options)
    print(json.dumps({"trial": name} | result))
    return 0 if result.get("bit_equal", True) else 1


if __name__ == "__main__":
    sys.path[:0] = [_ROOT]
    sys.exit(main())
