"""Copies what the golden tests need from ../shared/golden into small .npz files beside this one.

Usage: python tests/golden/collect.py ../shared/golden

Each file holds `hparams` (JSON), the weights as `weights/NAME` under the original's own names, and
its recorded arrays as `io/NAME`, all computed by the original implementations.
"""

import json
import pathlib
import sys

import numpy as np
import safetensors.numpy
import tensorflow as tf

TENSORFLOW = (
    "T1_char_tied_r",
    "T2_char_eval_same_length_clamp",
    "T3_word_div2_tied_projs",
    "T4_base_div1",
    "T5_lm1b_div4_untied_projs",
    "T7_gradients",
    "T8_div1_embed_proj",
    "T9_nocutoff_embed_proj",
)
TRAINING = "T6_training_12_steps"
PYTORCH = (
    "P1_attn0_adaptive",
    "P1n_attn0_adaptive_prelnorm",
    "P2_attn1_learned_relative",
    "P3n_attn2_absolute_sinusoid_prelnorm",
    "P4_attn3_absolute_learned",
)


def collect(case: pathlib.Path, target: pathlib.Path) -> None:
    """Writes one case."""
    config = json.loads((case / "config.json").read_text())
    arrays = {f"io/{k}": v for k, v in np.load(case / "io.npz").items() if "cluster_order" not in k}
    if config["implementation"] == "tf":
        reader = tf.train.load_checkpoint(str(case / config["checkpoint"]["prefix"]))
        weights = {
            name.removeprefix("transformer/"): reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
            if name.startswith("transformer/") and "/Adam" not in name
        }
    else:
        weights = safetensors.numpy.load_file(case / "model.safetensors")
        if not config["hparams"]["cutoffs"]:  # once is enough: the table is tied
            del weights["crit.out_layers.0.weight"]
    arrays |= {f"weights/{name}": value for name, value in weights.items()}
    if (case / "grads.npz").exists():
        gradients = np.load(case / "grads.npz")
        arrays |= {f"grads/{k.removeprefix('transformer/')}": gradients[k] for k in gradients}
    np.savez_compressed(target, hparams=json.dumps(config["hparams"]), **arrays)


def collect_training(case: pathlib.Path, target: pathlib.Path) -> None:
    """Writes the training run: the variant whose gradients are dense before the clip."""
    config = json.loads((case / "config.json").read_text())
    reader = tf.train.load_checkpoint(str(case / config["checkpoint"]["init"].split()[0]))
    arrays = {f"io/{name}": value for name, value in np.load(case / "io.npz").items()}
    for variable in config["checkpoint"]["variables"]:
        if variable["trainable"]:
            name = variable["name"]
            arrays[f"weights/{name.removeprefix('transformer/')}"] = reader.get_tensor(name)
    for name, value in np.load(case / "final_weights.npz").items():
        if name.startswith("dense:"):
            arrays[f"final/{name.removeprefix('dense:transformer/')}"] = value
    for name, norms in json.loads((case / "final_norms.json").read_text()).items():
        arrays[f"norms/{name.removeprefix('transformer/')}"] = np.float64(norms["l2_dense"])
    for part in ("hparams", "training"):
        arrays[part] = json.dumps(config[part])
    np.savez_compressed(target, **arrays)


def main() -> None:
    """Writes all cases."""
    source, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
    collect_training(source / TRAINING, here / f"{TRAINING}.npz")
    for name in TENSORFLOW + PYTORCH:
        collect(source / name, here / f"{name}.npz")


if __name__ == "__main__":
    main()
