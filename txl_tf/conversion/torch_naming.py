"""Conversion of names between PyTorch codes (the original's and its descendants') and TensorFlow.

State dicts are in the PyTorch original's layout. Linear weights and projections are transposed
there, q, k and v may be two matrices, and tied tables and projections appear twice.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from txl_tf.conversion.tensors import Tensor

BLOCK = {
    "dec_attn.qkv_net.weight": "rel_attn/qkv/kernel",
    "dec_attn.r_net.weight": "rel_attn/r/kernel",
    "dec_attn.o_net.weight": "rel_attn/o/kernel",
    "dec_attn.layer_norm.weight": "rel_attn/LayerNorm/gamma",
    "dec_attn.layer_norm.bias": "rel_attn/LayerNorm/beta",
    "pos_ff.CoreNet.0.weight": "ff/layer_1/kernel",
    "pos_ff.CoreNet.0.bias": "ff/layer_1/bias",
    "pos_ff.CoreNet.3.weight": "ff/layer_2/kernel",
    "pos_ff.CoreNet.3.bias": "ff/layer_2/bias",
    "pos_ff.layer_norm.weight": "ff/LayerNorm/gamma",
    "pos_ff.layer_norm.bias": "ff/LayerNorm/beta",
}
_RECOMPUTED = "pos_emb.inv_freq"
_Q, _KV = "dec_attn.q_net.weight", "dec_attn.kv_net.weight"


def to_original(
    state: Mapping[str, Tensor], given: Mapping[str, Any], *, reverse_clusters: bool
) -> dict[str, Tensor]:
    """Converts a state dict to the TensorFlow original's layout, `original_layout.parameters`.

    Unknown names stay. An output table or projection equal to the input's is tied, unless `given`
    implies otherwise. Identity projections are left out.

    Args:
      state: the state dict.
      given: flags; `cutoffs`, `tie_weight` and `tie_projs` are used where tensors are ambiguous.
      reverse_clusters: whether the columns of tail clusters are in reverse order.

    Raises:
      ValueError: a tensor flagged as tied differs, or cut-offs are needed and not given.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.startswith("layers."):
            _add_layer(name, tensor, state, found)
        elif name.startswith("word_emb."):
            _add_embedding(name, tensor, state, found)
        elif not name.startswith("crit.") and name != _RECOMPUTED:
            found[name] = tensor
    _Softmax(state, given, reverse_clusters, found).add_all()
    _drop_identities(found)
    return found


def _transposed(tensor: Tensor) -> Tensor:
    return tensor._replace(value=tensor.value.T)


def _add_layer(name, tensor, state, found):
    _, layer, part = name.split(".", 2)
    if part == _KV:
        if f"layers.{layer}.{_Q}" not in state:
            raise ValueError(f"checkpoint must hold layers.{layer}.{_Q} beside {name}, got none")
        return  # added with q
    if part == _Q:
        tensor = _with_keys_and_values(tensor, state.get(f"layers.{layer}.{_KV}"))
        part = "dec_attn.qkv_net.weight"
    if part not in BLOCK:
        found[name] = tensor
    else:
        tensor = _transposed(tensor) if tensor.value.ndim == 2 else tensor
        found[f"layer_{layer}/{BLOCK[part]}"] = tensor


def _with_keys_and_values(query, others):
    name = query.sources[0]
    if others is None:
        other = name.replace("q_net", "kv_net")
        raise ValueError(f"checkpoint must hold {other} beside {name}, got none")
    shapes = [query.value.shape, others.value.shape]
    if [2 * shapes[0][0], *shapes[0][1:]] != list(shapes[1]):
        rule = f"must have twice the rows of {name} {list(shapes[0])}"
        raise ValueError(f"{others.sources[0]} {rule}, got {list(shapes[1])}")
    value = np.concatenate([query.value, others.value])
    return Tensor(value, (*query.sources, *others.sources))


def _is_split(state) -> bool:
    """Whether each cluster has its own table."""
    return any(re.match(r"word_emb\.emb_(layers|projs)\.[1-9]", name) for name in state)


def _add_embedding(name, tensor, state, found):
    parts = re.fullmatch(r"word_emb\.(emb_layers|emb_projs)\.(\d+)(\.weight)?", name)
    if parts is None:
        found[name] = tensor
        return
    scope = f"adaptive_embed/cutoff_{parts[2]}" if _is_split(state) else "adaptive_embed"
    if parts[1] == "emb_layers":
        found[f"{scope}/lookup_table"] = tensor
    else:
        found[f"{scope}/proj_W"] = _transposed(tensor)


class _Softmax:
    """Converter of the entries under "crit."."""

    def __init__(self, state, given, reverse_clusters, found):
        self.state = state
        self.given = given
        self.order = slice(None, None, -1 if reverse_clusters else None)
        self.found = found
        self.split = _is_split(state)
        clusters = ("crit.cluster_weight", "crit.cluster_bias")
        self.num_tails = max(len(state[n].value) if n in state else 0 for n in clusters)
        self.has_clusters = self.num_tails > 0 or "crit.out_layers.1.bias" in state

    def add_all(self):
        self._check_own_projection()
        for name, tensor in self.state.items():
            if not name.startswith("crit."):
                continue
            parts = re.fullmatch(r"(out_layers|out_projs)\.(\d+)(?:\.(weight|bias))?", name[5:])
            if name == "crit.cluster_weight":
                self._add("cutoff_0/cluster_W", tensor._replace(value=tensor.value[self.order]))
            elif name == "crit.cluster_bias":
                self._add("cutoff_0/cluster_b", tensor._replace(value=tensor.value[self.order]))
            elif parts is None:
                self.found[name] = tensor
            elif parts[1] == "out_projs":
                self._add_projection(name, int(parts[2]), tensor)
            elif parts[3] == "weight":
                self._add_table(name, parts[2], tensor)
            else:
                self._add_bias(parts[2], tensor)

    def _check_own_projection(self):
        """Raises if tie_projs unties the projection but there is none, without cut-offs."""
        flags = self.given.get("tie_projs")
        table = self.state.get("word_emb.emb_projs.0")
        is_present = self.has_clusters or "crit.out_projs.0" in self.state
        if table is not None and flags and not flags[0] and not is_present:
            raise ValueError(
                f"checkpoint must hold crit.out_projs.0 beside {table.sources[0]}, as tie_projs "
                f"{list(flags)} requires, got none"
            )

    def _add(self, name, tensor):
        self.found[f"adaptive_softmax/{name}"] = tensor

    def _add_table(self, name, i, tensor):
        if not self._is_tied(name, f"word_emb.emb_layers.{i}.weight", self.given.get("tie_weight")):
            self._add(f"cutoff_{i}/lookup_table" if self.split else "lookup_table", tensor)

    def _add_projection(self, name, i, tensor):
        flags = self.given.get("tie_projs")
        is_flagged = flags[min(i, len(flags) - 1)] if flags else None
        if not self.has_clusters:  # Hugging Face files repeat a tied one
            is_flagged = is_flagged or None
        other = f"word_emb.emb_projs.{i if self.split else 0}"
        if not self._is_tied(name, other, is_flagged):
            self._add(f"cutoff_{i}/proj" if self.has_clusters else "proj", _transposed(tensor))

    def _is_tied(self, name, other, is_flagged):
        """Whether a tensor is an alias of `other`: by flag if given, else by equal values."""
        table = self.state.get(other)
        if table is None or is_flagged is False:
            return False
        same = np.array_equal(self.state[name].value, table.value)
        if is_flagged and not same:
            raise ValueError(
                f"{self.state[name].sources[0]} must equal {table.sources[0]}, to which it is "
                "tied, got other values"
            )
        return same

    def _add_bias(self, i, tensor):
        if not self.has_clusters:
            self._add("bias", tensor)
        elif self.split:
            self._add(f"cutoff_{i}/b", tensor)
        else:  # one bias over the whole vocabulary
            for cluster, (start, end) in enumerate(self._bounds(len(tensor.value))):
                part = Tensor(tensor.value[start:end], tensor.sources)
                self._add(f"cutoff_{cluster}/b", part)

    def _bounds(self, num_words):
        cutoffs = self.given.get("cutoffs")
        if cutoffs is None:
            raise ValueError(
                f"cutoffs must be given, by a config or a preset: a single table does not "
                f"determine the starts of its {self.num_tails} tail clusters"
            )
        if len(cutoffs) != self.num_tails:
            raise ValueError(
                f"cutoffs must be {self.num_tails}, one per row of crit.cluster_weight, "
                f"got {cutoffs}"
            )
        return zip([0, *cutoffs], [*cutoffs, num_words], strict=True)


def _drop_identities(found: dict[str, Tensor]) -> None:
    """Removes identity projections: absent ones, in a layout with one for every cluster."""
    pairs = []
    for name, tensor in found.items():
        parts = re.fullmatch(r"adaptive_embed/(cutoff_\d+)/proj_W", name)
        if parts and tensor.value.shape[0] == tensor.value.shape[1]:
            pairs.append((name, f"adaptive_softmax/{parts[1]}/proj"))
    present = [name for pair in pairs for name in pair if name in found]
    if all(_is_identity(found[name].value) for name in present):
        for name in present:
            del found[name]


def _is_identity(value: np.ndarray) -> bool:
    return value.shape[0] == value.shape[1] and np.array_equal(value, np.eye(len(value)))


def source_name(name: str) -> str:
    """Returns the name of a TensorFlow original's parameter in a state dict."""
    scope, _, rest = name.partition("/")
    cluster = re.search(r"cutoff_(\d+)", name)
    i = cluster[1] if cluster else "0"
    if scope.startswith("layer_"):
        return f"layers.{scope.removeprefix('layer_')}.{_PARTS.get(rest, rest)}"
    if scope not in ("adaptive_embed", "adaptive_softmax"):
        return name
    kind = rest.rpartition("/")[2]
    if kind in _CLUSTERS:
        return _CLUSTERS[kind]
    tables, projections = ("emb_layers", "emb_projs"), ("out_layers", "out_projs")
    owner, kinds = ("word_emb", tables) if scope == "adaptive_embed" else ("crit", projections)
    if kind in ("proj_W", "proj"):
        return f"{owner}.{kinds[1]}.{i}"
    return f"{owner}.{kinds[0]}.{i}.{'weight' if kind == 'lookup_table' else 'bias'}"


_PARTS = {theirs: ours for ours, theirs in BLOCK.items()}
_CLUSTERS = {"cluster_W": "crit.cluster_weight", "cluster_b": "crit.cluster_bias"}


def to_state(values: Mapping[str, np.ndarray], num_clusters: int) -> dict[str, np.ndarray]:
    """Returns a state dict without aliases; inverse of `to_original`, in the order of `values`.

    With several tables each cluster gets projections, identities if it has none.
    """
    split = "adaptive_embed/cutoff_0/lookup_table" in values
    state: dict[str, np.ndarray] = {}
    for name, value in values.items():
        is_transposed = name.startswith("layer_") and value.ndim == 2
        is_transposed = is_transposed or name.endswith(("/proj_W", "/proj"))
        state[source_name(name)] = value.T if is_transposed else value
    if not split and num_clusters > 1:  # one bias over the whole vocabulary
        biases = [state.pop(f"crit.out_layers.{i}.bias") for i in range(num_clusters)]
        state["crit.out_layers.0.bias"] = np.concatenate(biases)
    if num_clusters == 1 and "word_emb.emb_projs.0" in state:  # equal if tied
        state.setdefault("crit.out_projs.0", state["word_emb.emb_projs.0"])
    for i in range(num_clusters if split else 0):
        if f"word_emb.emb_projs.{i}" not in state:
            width = state[f"word_emb.emb_layers.{i}.weight"].shape[1]
            for kind in ("word_emb.emb_projs", "crit.out_projs"):
                state[f"{kind}.{i}"] = np.eye(width, dtype=np.float32)
    return state
