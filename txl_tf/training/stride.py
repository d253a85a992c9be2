"""How many steps the next call of the device makes."""

from txl_tf.configs.run import TrainConfig


def stride(done: int, train: TrainConfig, profile_steps: tuple[int, int] | None) -> int:
    """`steps_per_loop`, or 1 where something is to be done in between.

    It follows from the number of steps done alone: so a run that goes on makes the calls of one
    that was never stopped, and all workers make the same.
    """
    whole = train.steps_per_loop
    first, last = profile_steps or (1, train.train_steps)
    periods = (whole, train.log_every, train.checkpoint_every, train.eval_every or whole)
    stops = [(done // period + 1) * period for period in periods]
    stops += [stop for stop in (first - 1, last, train.train_steps) if stop > done]
    return whole if done + whole <= min(stops) else 1
