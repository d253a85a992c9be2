"""Makes models with torch and transformers, saves them and records their outputs.

    PYTHON tests/parity_peer.py FOLDER < configurations.json

FOLDER/INDEX/ gets what save_pretrained writes, and io.npz.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from transformers import TransfoXLConfig, TransfoXLLMHeadModel

SEGMENTS = 5


def make_model(options, seed):
    """Returns a model with weights large enough to make errors visible."""
    options = dict(options)
    share = options.pop("share", True)
    torch.manual_seed(seed)
    model = TransfoXLLMHeadModel(TransfoXLConfig(proj_share_all_but_first=share, **options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.1 * noise if "norm.weight" in name else 0.2 * noise)
    model.crit.keep_order = True
    return model.eval()


def record(model, segment_len, rows, seed):
    ids = np.random.default_rng(seed).integers(
        model.config.vocab_size, size=(rows, SEGMENTS * segment_len)
    )
    ids = ids.astype(np.int32)
    arrays, mems = {}, None
    for k in range(SEGMENTS):
        segment = ids[:, k * segment_len : (k + 1) * segment_len]
        given = torch.from_numpy(segment).long()
        with torch.no_grad():
            out = model(given, mems=mems)
            arrays[f"input_ids_{k}"] = segment
            arrays[f"logprob_{k}"] = out.prediction_scores.numpy()
            if segment_len > 1:
                scored = model(given.clone(), mems=mems, labels=given.clone())
                arrays[f"losses_{k}"] = scored.losses.numpy()
        mems = out.mems
        arrays[f"mems_{k}"] = torch.stack(mems).numpy()
    return arrays


def main():
    folder = pathlib.Path(sys.argv[1])
    for seed, case in enumerate(json.load(sys.stdin)):
        path = folder / str(seed)
        model = make_model(case["options"], seed)
        model.save_pretrained(path, safe_serialization=case["safe"])
        np.savez(path / "io.npz", **record(model, case["segment_len"], case["rows"], seed))


if __name__ == "__main__":
    main()
