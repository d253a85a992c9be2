"""Copies token streams and the batches that the originals made of them into D1_batches.npz.

Usage: python tests/golden/collect_batches.py ../shared/golden/D1_data

SETTING/SPLIT are the ids of a split; lm1b/train_shard_K_sentences and _lengths are lines before
they are shuffled. SETTING/CODE/FILE.bB.tT.inputs and .labels [B, time] are all segments side by
side, and .seg_lens their lengths; CODE is tf or pytorch.
"""

import pathlib
import sys

import numpy as np


def pytorch_batches(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The ordered batches of the PyTorch code, in the form of those of the TensorFlow code."""
    found = np.load(folder / "pytorch_batches.npz")
    arrays = {}
    for name in sorted({key.rsplit(".e0.", 1)[0] for key in found if ".e0." in key}):
        for ours, theirs in (("inputs", "data"), ("labels", "target")):
            count = sum(key.startswith(f"{name}.e0.{theirs}_") for key in found)
            segments = [found[f"{name}.e0.{theirs}_{k}"].T for k in range(count)]
            arrays[f"{name}.{ours}"] = np.concatenate(segments, axis=1)
            arrays[f"{name}.seg_lens"] = np.array([segment.shape[1] for segment in segments])
    return arrays


def collect(source: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a setting with one stream a split, and of the one with shuffled sentences."""
    arrays = {}
    for setting in ("wt103", "lm1b"):
        for name, value in np.load(source / setting / "io.npz").items():
            arrays[f"{setting}/tf/{name}" if "." in name else f"{setting}/{name}"] = value
    for name, value in pytorch_batches(source / "wt103").items():
        arrays[f"wt103/pytorch/{name}"] = value
    return {name: value.astype(np.int16) for name, value in arrays.items()}


def main() -> None:
    """Writes the file."""
    arrays = collect(pathlib.Path(sys.argv[1]))
    np.savez_compressed(pathlib.Path(__file__).with_name("D1_batches.npz"), **arrays)


if __name__ == "__main__":
    main()
