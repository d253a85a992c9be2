"""Tests of benchmarks.flops: model FLOPs computed by hand, and the paper's speedup."""

import dataclasses
import re

from absl.testing import absltest, parameterized

import helpers
from benchmarks import flops
from txl_tf.configs import presets


class PageTest(absltest.TestCase):
    def test_docs_agree(self):
        page = (helpers.ROOT / "docs" / "performance.md").read_text()
        table = page.partition("## Estimates for accelerators")[2]
        rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", table, re.MULTILINE)
        self.assertLen(rows, 6)
        for name, *printed in rows:
            config = presets.preset(name)
            batch_size, segment_len = config.train.batch_size, config.train.segment_len
            token = flops.training(config.model, batch_size, segment_len)
            step = token * batch_size * segment_len / 1e12
            self.assertEqual(printed, [f"{token / 1e9:.2f}", f"{step:.{int(step < 10)}f}"], name)


class InferenceTest(parameterized.TestCase):
    def test_equals_a_count_by_hand(self):
        """V 11, L 2, D 8, H K 8, F 16, M 4, T 5, S 9: products of [1, D] with [D, N] and so on."""
        projections = 4 * (2 * 8 * 8)  # 512
        scores = 2 * 9 * 8 + 2 * 9 * 8  # 288, by content and by position
        values = 2 * 9 * 8  # 144
        feed_forward = 2 * (2 * 8 * 16)  # 512
        layer = projections + scores + values + feed_forward  # 1456
        self.assertEqual(flops.inference(helpers.tiny_config(), 5), 2 * layer + 2 * 8 * 11)

    @parameterized.parameters(
        (dict(clamp_len=3), 2 * -5 * 8),  # 4 distances that differ, not 9
        (dict(clamp_len=8), 0),
        (dict(mem_len=5), 6 * 8),  # one key more, met three times
        (dict(d_embed=6), -2 * 2 * 11 + 2 * 2 * 8 * 6),
        (dict(cutoffs=(3, 7)), 2 * 8 * (3 + 2 - 11)),
        (dict(num_layers=2), 1456),
    )
    def test_depends_on_lengths_and_sizes(self, changes, difference):
        before = helpers.tiny_config(num_layers=1)
        after = dataclasses.replace(before, **changes)
        self.assertEqual(flops.inference(after, 5) - flops.inference(before, 5), difference)

    @parameterized.parameters((800, 723), (1800, 1660), (2800, 2617), (3800, 3586))
    def test_speedup_over_recomputed_windows(self, attention_len, expected):
        """Layers only: 12 of width 512, clamped at 820; a window is computed for each token."""
        base = presets.preset("enwik8_base").model
        ours = dataclasses.replace(base, mem_len=attention_len - 1, clamp_len=820)
        softmax = 2 * 512 * base.vocab_size
        token = flops.inference(ours, 1) - softmax
        by_position = 12 * 2 * min(attention_len, 821) * 512
        self.assertAlmostEqual(attention_len * (token - by_position) / token, expected, delta=3)


class TrainingTest(parameterized.TestCase):
    def test_equals_a_count_by_hand(self):
        """Two rows of 5: memory and distances are shared by all 10 tokens and get no gradient."""
        forward = flops.inference(helpers.tiny_config(), 5)
        memory = 2 * 2 * (2 * 2 * 4 * 8 * 8)  # value and weights' gradient of 2 projections, 2 rows
        distances = 2 * (2 * 9 * 8 * 8)
        found = flops.training(helpers.tiny_config(), batch_size=2, segment_len=5)
        self.assertAlmostEqual(found * 10, 3 * 10 * forward + 2 * (memory + distances))

    def test_without_memory_costs_three_forward_passes(self):
        config = helpers.tiny_config(mem_len=0, clamp_len=1)
        distances = 2 * 2 * (2 * 2 * 8 * 8)
        expected = 3 * flops.inference(config, 5) + distances / 5
        self.assertAlmostEqual(flops.training(config, batch_size=1, segment_len=5), expected)


if __name__ == "__main__":
    absltest.main()
