"""Named configurations: small ones to start from and compare, and one for each published model.

The published ones follow the scripts of the original TensorFlow code (base: its GPU scripts,
large: its TPU scripts). Results are the test figures of arXiv 1901.02860.
"""

import dataclasses
from typing import Any

from txl_tf.configs.model import TransformerXLConfig, XLNetConfig
from txl_tf.configs.run import Config, DataConfig, EvalConfig, TrainConfig


def names() -> list[str]:
    """Returns the names of all presets, smallest first."""
    return list(_PRESETS)


def preset(name: str) -> Config:
    """Returns the configuration of that name.

    >>> txl_tf.preset("enwik8_base").model.num_layers
    12

    Raises:
      ValueError: the name is unknown; lists the choices.
    """
    if name not in _PRESETS:
        raise ValueError(f"unknown preset {name!r}; choose from {', '.join(_PRESETS)}")
    return _PRESETS[name]


def _change(base: Config, **sections: dict[str, Any]) -> Config:
    """Returns `base` with some fields of some sections changed."""
    return dataclasses.replace(
        base,
        **{s: dataclasses.replace(getattr(base, s), **fields) for s, fields in sections.items()},
    )


# About 0.9M parameters: learns bytes in minutes on two CPU cores.
_TINY = Config(
    model=TransformerXLConfig(
        vocab_size=256,
        num_layers=4,
        d_model=128,
        num_heads=4,
        head_dim=32,
        d_inner=512,
        mem_len=64,
        dropout=0.0,
    ),
    data=DataConfig(),
    train=TrainConfig(
        batch_size=16,
        segment_len=64,
        train_steps=950,
        learning_rate=2e-3,
        warmup_steps=100,
        min_lr_ratio=0.02,
        clip_norm=0.25,
        eval_every=1000,
        checkpoint_every=500,
        log_every=50,
    ),
    eval=EvalConfig(batch_size=8),
)

# Variants of tiny: another attention, or another feed-forward net in every second layer.
_TINY_VARIANTS: dict[str, dict[str, Any]] = {
    "topk": dict(attention=("topk(k=8)",)),
    "local": dict(attention=("local(window=32)",)),
    "dilated": dict(attention=("local(window=32)", "local(window=32, dilations=(1, 2))")),
    "routing": dict(attention=("routing(clusters=8, local_heads=2, window=16, local_window=32)",)),
    "switch": dict(feed_forward=("dense", "switch(experts=4)")),
}

# Permutation language modelling of the same size.
_TINY_XLNET = dataclasses.replace(
    _TINY,
    model=XLNetConfig(
        vocab_size=256,
        num_layers=4,
        d_model=128,
        num_heads=4,
        head_dim=32,
        d_inner=512,
        mem_len=64,
        dropout=0.0,
    ),
    train=dataclasses.replace(_TINY.train, objective="permutation"),
)

# About 7M parameters: hours on a CPU.
_SMALL = _change(
    _TINY,
    model=dict(num_layers=8, d_model=256, head_dim=64, d_inner=1024, mem_len=256, dropout=0.1),
    train=dict(
        segment_len=256,
        train_steps=20_000,
        learning_rate=5e-4,
        warmup_steps=1000,
        checkpoint_every=1000,
        log_every=100,
    ),
)

# enwik8: 41,055,436 parameters, 1.06 bits per byte. Trained on 4 GPUs.
_ENWIK8_BASE = Config(
    model=TransformerXLConfig(
        vocab_size=204,
        num_layers=12,
        d_model=512,
        num_heads=8,
        head_dim=64,
        d_inner=2048,
        mem_len=512,
        dropout=0.1,
        layer_norm_epsilon=1e-12,
    ),
    train=TrainConfig(
        batch_size=24,
        segment_len=512,
        train_steps=400_000,
        learning_rate=2.5e-4,
        min_lr_ratio=0.004,
        clip_norm=0.25,
        eval_every=4000,
        checkpoint_every=4000,
        log_every=200,
    ),
    eval=EvalConfig(
        batch_size=10,
        segment_len=80,
        mem_len=2100,
        clamp_len=820,
        attention_span=2101,
        layout="reference",
    ),
)

# Training settings that all large models share.
_LARGE: dict[str, Any] = dict(min_lr_ratio=0.01, eval_every=10_000, checkpoint_every=10_000)

# enwik8: 277,231,820 parameters, 0.99 bits per byte. Trained on 32 TPU cores.
_ENWIK8_LARGE = _change(
    _ENWIK8_BASE,
    model=dict(
        num_layers=24,
        d_model=1024,
        head_dim=128,
        d_inner=3072,
        mem_len=768,
        dropout=0.15,
        attention_dropout=0.15,
    ),
    train=dict(batch_size=64, segment_len=768, warmup_steps=4000) | _LARGE,
    eval=dict(batch_size=16, segment_len=128, mem_len=3800, clamp_len=1000, attention_span=3801),
)

# text8: 40,964,635 parameters; no result was published.
_TEXT8_BASE = _change(_ENWIK8_BASE, model=dict(vocab_size=27))

# text8: 277,050,395 parameters, 1.08 bits per character.
_TEXT8_LARGE = _change(_ENWIK8_LARGE, model=dict(vocab_size=27))

# WikiText-103: 151,119,838 parameters, perplexity 24.0. Trained on 4 GPUs.
_WT103_BASE = _change(
    _ENWIK8_BASE,
    model=dict(
        vocab_size=267_735,
        num_layers=16,
        d_model=410,
        num_heads=10,
        head_dim=41,
        d_inner=2100,
        mem_len=150,
        cutoffs=(20_000, 40_000, 200_000),
        untie_biases=True,
        tie_projections=(False, True),
    ),
    train=dict(batch_size=60, segment_len=150),
    eval=dict(segment_len=64, mem_len=640, clamp_len=400, attention_span=641),
)

# WikiText-103: 285,205,322 parameters (the paper says 257M), perplexity 18.3. 64 TPU cores.
_WT103_LARGE = _change(
    _WT103_BASE,
    model=dict(
        num_layers=18,
        d_model=1024,
        num_heads=16,
        head_dim=64,
        d_inner=4096,
        mem_len=384,
        div_val=4,
        dropout=0.2,
        attention_dropout=0.2,
        init_std=0.005,
        proj_init_std=0.005,
    ),
    train=dict(batch_size=128, segment_len=384, train_steps=4_000_000, warmup_steps=16_000)
    | _LARGE,
    eval=dict(batch_size=8, segment_len=128, mem_len=1600, clamp_len=1000, attention_span=1601),
)

# One Billion Word: 355.7M parameters, as the released script has it (the paper's base has 0.46B).
_LM1B_BASE = _change(
    _WT103_BASE,
    model=dict(
        vocab_size=793_471,
        num_layers=18,
        d_model=1024,
        num_heads=8,
        head_dim=128,
        d_inner=4096,
        mem_len=256,
        cutoffs=(60_000, 100_000, 640_000),
        div_val=4,
        tie_projections=(False,),
        project_same_dim=False,
    ),
    train=dict(batch_size=256, segment_len=256),
    eval=dict(batch_size=16, segment_len=32, mem_len=128, clamp_len=None, attention_span=129),
)

# One Billion Word: 838.1M parameters, perplexity 21.8. Trained on 512 TPU cores.
_LM1B_LARGE = _change(
    _LM1B_BASE,
    model=dict(
        num_layers=24,
        d_model=1280,
        num_heads=16,
        head_dim=80,
        d_inner=8192,
        mem_len=32,
        dropout=0.05,
        attention_dropout=0.05,
        init_std=0.005,
        proj_init_std=0.005,
    ),
    train=dict(
        batch_size=512,
        segment_len=32,
        train_steps=1_200_000,
        learning_rate=1e-4,
        warmup_steps=30_000,
    )
    | _LARGE,
    eval=dict(batch_size=8),
)

_PRESETS = {
    "tiny": _TINY,
    **{f"tiny_{name}": _change(_TINY, model=change) for name, change in _TINY_VARIANTS.items()},
    "tiny_xlnet": _TINY_XLNET,
    "small": _SMALL,
    "text8_base": _TEXT8_BASE,
    "enwik8_base": _ENWIK8_BASE,
    "wt103_base": _WT103_BASE,
    "text8_large": _TEXT8_LARGE,
    "enwik8_large": _ENWIK8_LARGE,
    "wt103_large": _WT103_LARGE,
    "lm1b_base": _LM1B_BASE,
    "lm1b_large": _LM1B_LARGE,
}
