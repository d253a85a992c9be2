"""Makes XLNets with torch and transformers, saves them and records their outputs.

    PYTHON tests/parity_xlnet_peer.py FOLDER < configurations.json

FOLDER/INDEX/ gets what save_pretrained writes, and io.npz: two segments read with memory, the
second also with two streams.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from transformers import XLNetConfig, XLNetLMHeadModel

ROWS, TOKENS = 2, 6
TARGETS = (1, 4)


def make_model(options, seed):
    """Returns a model with weights large enough to make errors visible."""
    torch.manual_seed(seed)
    model = XLNetLMHeadModel(XLNetConfig(**options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.1 * noise if "norm.weight" in name else 0.2 * noise)
    return model.eval()


def record(model, seed):
    draw = np.random.default_rng(seed)
    ids = draw.integers(model.config.vocab_size, size=(2, ROWS, TOKENS))
    order = np.stack([draw.permutation(TOKENS) for _ in range(ROWS)])
    visible = order[:, :, np.newaxis] > order[:, np.newaxis]
    first, second = torch.from_numpy(ids)
    mapping = torch.zeros(ROWS, len(TARGETS), TOKENS)
    for target, position in enumerate(TARGETS):
        mapping[:, target, position] = 1
    with torch.no_grad():
        before = model(first, token_type_ids=first % 2, use_mems=True)
        after = model(second, mems=before.mems, token_type_ids=second % 2, use_mems=True)
        is_causal = model.config.attn_type == "uni"  # takes no perm_mask of several rows there
        streams = model(
            second,
            mems=before.mems,
            token_type_ids=second % 2,
            perm_mask=None if is_causal else torch.from_numpy(~visible).float(),
            target_mapping=None if is_causal else mapping,
            use_mems=True,
        )
    return {
        "ids": ids.astype(np.int32),
        "visible": visible,
        "first": before.logits.numpy(),
        "second": after.logits.numpy(),
        "streams": streams.logits.numpy(),
        "mems": torch.stack(after.mems).numpy(),
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    for seed, case in enumerate(json.load(sys.stdin)):
        path = folder / str(seed)
        model = make_model(case["options"], seed)
        model.save_pretrained(path, safe_serialization=case["safe"])
        np.savez(path / "io.npz", **record(model, seed))


if __name__ == "__main__":
    main()
