"""Hyperparameters of the originals under their names: from JSON, and from a config."""

from collections.abc import Mapping
from typing import Any

from txl_tf.configs import validation
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.data import files

# Flags of a model in a JSON file, with their types; other entries are ignored.
FLAGS: dict[str, Any] = dict(
    n_token=int,
    n_layer=int,
    d_model=int,
    n_head=int,
    d_head=int,
    d_inner=int,
    d_embed=int,
    cutoffs=list,
    div_val=int,
    tie_weight=bool,
    tie_projs=list,
    untie_r=bool,
    proj_same_dim=bool,
    attn_type=int,
    pre_lnorm=bool,
    tgt_len=int,
    ext_len=int,
    mem_len=int,
    clamp_len=int,
    same_length=bool,
    dropout=float,
    dropatt=float,
    layer_norm_epsilon=float,
    init_std=float,
    proj_init_std=float,
)
XLNET_FLAGS: dict[str, Any] = dict(
    n_token=int,
    n_layer=int,
    d_model=int,
    n_head=int,
    d_head=int,
    d_inner=int,
    ff_activation=str,
    attn_type=str,
    mem_len=int,
    reuse_len=int,
    clamp_len=int,
    same_length=bool,
    dropout=float,
    dropatt=float,
    layer_norm_epsilon=float,
)
_SYNONYMS = {
    "vocab_size": "n_token",
    "tie_word_embeddings": "tie_weight",
    "layer_norm_eps": "layer_norm_epsilon",
}


def read(path: str, kinds: Mapping[str, Any] = FLAGS) -> dict[str, Any]:
    """Returns the flags in a JSON file: an object of flags, or one with them under "hparams".

    Args:
      path: of the file.
      kinds: the flags, with their types.

    Raises:
      ValueError: the file is not such JSON, or a flag has the wrong type; names both.
    """
    tree = validation.parse_json(files.read_text(path), path)
    if not isinstance(tree, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(tree).__name__}")
    if isinstance(tree.get("hparams"), dict):
        tree = tree["hparams"]
    flags = known(tree, path, kinds)
    if not flags:
        raise ValueError(f"{path} must hold n_layer, mem_len or other flags of a model, got none")
    return flags


def known(tree: Mapping[str, Any], owner: str, kinds: Mapping[str, Any] = FLAGS) -> dict[str, Any]:
    """Returns the entries of `tree` that are flags of a model, without null ones and synonyms."""
    flags = {}
    for name, value in tree.items():
        name = _SYNONYMS.get(name, name)
        if name not in kinds or value is None:
            continue
        kind = kinds[name]
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{owner}: {name} must be of type {kind.__name__}, got {value!r}")
        flags[name] = value
    return flags


def from_config(config: TransformerXLConfig) -> dict[str, Any]:
    """Returns the flags of `config`; inverse of `config_from_hparams` of a format."""
    last = len(config.tie_projections) - 1
    ties = [config.tie_projections[min(i, last)] for i in range(len(config.cutoffs) + 1)]
    return dict(
        n_token=config.vocab_size,
        n_layer=config.num_layers,
        d_model=config.d_model,
        n_head=config.num_heads,
        d_head=config.head_dim,
        d_inner=config.d_inner,
        d_embed=config.embed_dim,
        cutoffs=list(config.cutoffs),
        div_val=config.div_val,
        tie_weight=config.tie_embeddings,
        tie_projs=ties if config.cutoffs else [config.tie_output_projection],
        untie_r=config.untie_biases,
        proj_same_dim=config.project_same_dim,
        pre_lnorm=config.pre_norm,
        mem_len=config.mem_len,
        clamp_len=config.clamp_len or -1,
        same_length=config.attention_span is not None,
        dropout=config.dropout,
        dropatt=config.attention_dropout,
        layer_norm_epsilon=config.layer_norm_epsilon,
        init_std=config.init_std,
        proj_init_std=config.proj_init_std,
    )
