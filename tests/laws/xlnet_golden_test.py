"""XLNet against what transformers' XLNetLMHeadModel computed: states, logits and memories."""

import numpy as np
from absl.testing import absltest, parameterized

import rounding
from golden_xlnet import load, make, memory_of


class XLNetGoldenTest(parameterized.TestCase):
    def assert_close(self, found, expected, model, tokens, scores=False):
        scale = rounding.of_scores if scores else rounding.of_states
        atol = scale(model.config, tokens)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        self.assertLess(np.abs(found - expected).max(), 1e-5 * np.abs(expected).max())

    @parameterized.parameters("plain_bi", "plain_uni", "plain_uni_opts", "plain_bi_pad_seg")
    def test_segments_with_memory(self, case):
        data, hparams = load(f"xlnet_{case}")
        half = hparams["B"] // 2
        parts = [slice(0, half), slice(half, None)] if hparams["bi_data"] else [slice(None)]
        for backward, rows in enumerate(parts):
            before = None
            for n, ids in enumerate(data["in.input_ids"]):
                tokens = ids.shape[1]
                slots = hparams["mem_len"]
                filled = 0 if before is None else before.shape[1]
                model = make(data, hparams, filled, bool(backward))
                visible = segments = None
                if hparams["padding"]:  # the reference's is on the left, and enters the memory
                    real = data["in.attention_mask"][n, rows]
                    visible = np.broadcast_to(real[:, np.newaxis], [len(real), tokens, tokens])
                if hparams["segment_ids"]:
                    segments = data["in.token_type_ids"][n, rows]
                mems = None if before is None else memory_of(before[:, :, rows], slots)
                inputs = dict(mems=mems, segments=segments, visible=visible)
                content, query, after = model.hidden_states(ids[rows], **inputs)
                self.assertEmpty(query)
                self.assert_close(np.array(content), data["out.hidden"][n, :, rows], model, 16)
                logits, _ = model(ids[rows], **inputs)
                self.assert_close(logits, data["out.logits"][n, rows], model, 16, scores=True)
                before = data[f"out.mems_{n}"]
                expected = memory_of(before[:, :, rows], slots)
                np.testing.assert_array_equal(after.length, expected.length)
                first = slots - int(expected.length[0])
                found = np.array(after.states)[:, :, first:]
                self.assert_close(found, np.array(expected.states)[:, :, first:], model, 16)

    @parameterized.product(
        case=("two_stream", "two_stream_mems", "two_stream_all_targets"), empty=(False, True)
    )
    def test_two_streams(self, case, empty):
        data, hparams = load(f"xlnet_{case}")
        slots, ids = hparams["mem_len"], data["in.input_ids"]
        model = make(data, hparams)
        visible = data["in.perm_mask"] == 0
        if hparams["padding"]:
            visible &= data["in.attention_mask"][:, np.newaxis]
        mems = memory_of(data.get("in.mems"), slots)
        if mems is None and empty:
            mems = model.initial_mems(len(ids))
        inputs = dict(
            mems=mems,
            segments=data["in.token_type_ids"],
            visible=visible,
            target_positions=data["in.target_mapping"].argmax(axis=-1),
        )
        content, query, after = model.hidden_states(ids, **inputs)
        self.assert_close(np.array(content), data["out.hidden_h"], model, 16)
        self.assert_close(np.array(query), data["out.hidden_g"], model, 16)
        logits, _ = model(ids, **inputs)
        self.assert_close(logits, data["out.logits"], model, 16, scores=True)
        newest = data["out.mems"].transpose(0, 2, 1, 3)
        found = np.array(after.states)[:, :, slots - newest.shape[2] :]
        self.assert_close(found, newest, model, 16)


if __name__ == "__main__":
    absltest.main()
