"""Copies what tests of the variants need from ../shared/golden/variants into this folder.

Usage: python tests/golden/collect_variants.py ../shared/golden/variants

Each file holds `hparams` (JSON) and, under their own names, inputs, weights, results and gradients,
computed by the packages that the collection's manifest names; arrays in between are left out.
"""

import json
import pathlib
import sys

import numpy as np

_KINDS = (
    "topk_",
    "localxl_",
    "longformer_",
    "bigbird_",
    "switch_",
    "linformer_",
    "xlnet_",
    "shaw_",
    "star_",
    "routing_",
)
_PREFIXES = ("in.", "w.", "out.", "grad.")
_ALSO = ("aux.kept",)
_TOO_LARGE = ("bigbird_t1024_oldplan",)  # read from the collection, where it is there


def main() -> None:
    """Writes all cases."""
    source, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
    manifest = json.loads((source / "manifest.json").read_text())
    for name, case in manifest["cases"].items():
        if name.startswith(_KINDS) and name not in _TOO_LARGE:
            arrays = np.load(source / f"{name}.npz")
            kept = {k: v for k, v in arrays.items() if k.startswith(_PREFIXES) or k in _ALSO}
            np.savez_compressed(
                here / f"{name}.npz", hparams=json.dumps(case["hyperparameters"]), **kept
            )


if __name__ == "__main__":
    main()
