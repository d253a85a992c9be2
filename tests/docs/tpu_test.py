"""docs/tpu.md is correct: its arithmetic, and the flags of its commands."""

import pathlib
import re
import shlex

import numpy as np
from absl.testing import absltest, parameterized
from models_test import count

import helpers
import lowering
from txl_tf.configs import presets
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops import cross_entropy

PAGE = (helpers.ROOT / "docs" / "tpu.md").read_text("utf-8")
_HELPERS = ("config_flags", "model_flags")  # modules that define flags of several programs
GB, MB = 2**30, 2**20
DEVICES = {"v3": 16 * GB, "v4": 32 * GB}
OF_A_HOST = {"v3": 8, "v4": 4}
BATCHES = {"wt103_base": 64}  # where that of the preset does not divide by a host's devices
USABLE = 0.8
CHUNK = 256  # tokens of a tail cluster at a time; see ops/cluster_loss.py
FLOAT = 4


class Needs:
    """Bytes that a training step needs on one device, by the formulas of the page."""

    def __init__(self, config):
        model, self.tokens = config.model, config.train.segment_len
        width, heads = model.d_model, model.num_heads * model.head_dim
        tokens, keys = self.tokens, self.tokens + model.mem_len
        scores = model.num_heads * tokens * keys
        edges = [*model.cutoffs, model.vocab_size]
        head = edges[0] + len(model.cutoffs)
        self.tail = int(max(np.diff(edges), default=0))
        layer = 2 * keys * heads + 2 * tokens * heads + 4 * tokens * width
        layer += 2 * tokens * model.d_inner + (2 if model.attention_dropout else 1) * scores
        self.state = 4 * FLOAT * count(model)
        self.memory = FLOAT * model.num_layers * model.mem_len * width
        self.activations = FLOAT * (model.num_layers * layer + 3 * scores + 2 * tokens * head)

    def total(self, rows):
        chunk = 2 * FLOAT * min(CHUNK, rows * self.tokens) * self.tail
        return self.state + chunk + rows * (2 * self.memory + self.activations)

    def most_rows(self, kind):
        """How many fit on one device."""
        rows = 0
        while self.total(rows + 1) <= USABLE * DEVICES[kind]:
            rows += 1
        return rows

    def fewest_devices(self, kind, batch):
        """How many whole hosts' devices share `batch` rows evenly and have room for them."""
        step, most = OF_A_HOST[kind], self.most_rows(kind)
        fits = (n for n in range(step, batch + 1, step) if batch % n == 0 and batch // n <= most)
        return next(fits)


def expected_row(name):
    """The cells of a preset's row."""
    needs = Needs(presets.preset(name))
    batch = BATCHES.get(name, presets.preset(name).train.batch_size)
    cells = [f"{needs.state / GB:.1f}", f"{needs.memory / MB:.0f}", f"{needs.activations / MB:.0f}"]
    cells += [needs.most_rows(kind) for kind in DEVICES]
    cells.append(batch)
    for kind in DEVICES:
        devices = needs.fewest_devices(kind, batch)
        cells += [devices, devices // OF_A_HOST[kind]]
    return [f"`{name}`", *map(str, cells)]


def commands():
    """The words of each command of the page's examples, without settings of the environment."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for b in blocks for line in b.replace("\\\n", " ").splitlines()]
    return [[word for word in shlex.split(line) if not re.match("[A-Z]", word)] for line in lines]


class MemoryTest(parameterized.TestCase):
    def test_table(self):
        (text,) = (t for t in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE) if "v3 cores" in t)
        lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()]
        listed = [name for name in presets.names() if not name.startswith("tiny")]
        self.assertEqual(lines[2:], [expected_row(name) for name in listed])

    @parameterized.parameters(*lowering.CORES.items())
    def test_what_is_lowered_fits(self, name, cores):
        """The paper's large models are known to have fitted on cores of v3 with these rows."""
        config = presets.preset(name)
        self.assertLessEqual(
            Needs(config).total(config.train.batch_size // cores), USABLE * DEVICES["v3"]
        )

    def test_of_a_tiny_model_by_hand(self):
        """V 11, L 2, D 8, H 2, K 4, F 16, M 4, T 3: S 7, no clusters."""
        config = Config(model=helpers.tiny_config(), train=TrainConfig(segment_len=3))
        needs = Needs(config)
        layer = 2 * 7 * 8 + 2 * 3 * 8 + 4 * 3 * 8 + 2 * 3 * 16 + 2 * 3 * 7
        self.assertEqual(needs.activations, 4 * (2 * layer + 3 * 2 * 3 * 7 + 2 * 3 * 11))
        model = TransformerXL(config.model)
        self.assertEqual(needs.state, 16 * model.count_params())
        self.assertEqual(needs.memory, sum(s.numpy().nbytes for s in model.initial_mems(1).states))

    def test_more_does_not_fit(self):
        needs = Needs(presets.preset("enwik8_large"))
        self.assertEqual(needs.most_rows("v3"), 2)
        self.assertGreater(needs.total(3), USABLE * DEVICES["v3"])

    def test_of_a_chunk(self):
        self.assertEqual(cross_entropy._CHUNK, CHUNK)
        self.assertIn(f"min({CHUNK}, B T)", PAGE)

    def test_numbers_of_the_text(self):
        for name in ("enwik8_large", "text8_large", "wt103_large", "lm1b_large"):
            self.assertRegex(PAGE, rf"\b{lowering.CORES[name]}\b[^.:]* `{name}`")
        self.assertIn(f"{USABLE} of the memory", PAGE)
        self.assertIn(f"K is small or odd: {presets.preset('wt103_base').model.head_dim}", PAGE)
        self.assertNotEqual(presets.preset("wt103_base").train.batch_size % OF_A_HOST["v3"], 0)
        small = Needs(presets.preset("small"))
        row = (2 * small.memory + small.activations) / MB
        self.assertIn(f"this formula gives {row:.0f}.", PAGE)
        self.assertIn(f"`--batch_size={BATCHES['wt103_base']}`", PAGE)


class CommandsTest(absltest.TestCase):
    def test_programs_and_their_flags_exist(self):
        seen = 0
        for _, program, *rest in (c for c in commands() if c[0] == "python"):
            names = (pathlib.Path(program).stem, *_HELPERS)
            sources = [helpers.ROOT / "txl_tf" / "cli" / f"{name}.py" for name in names]
            known = set(re.findall(r'"(\w+)"', "".join(path.read_text() for path in sources)))
            known |= {"train", "valid", "test"} if "prepare_data" in program else set()
            for flag in rest:
                self.assertIn(flag[2:].partition("=")[0], known, program)
                seen += 1
        self.assertGreater(seen, 20)

    def test_presets_exist(self):
        named = re.findall(r"--(?:eval_)?preset=(\w+)", PAGE)
        self.assertContainsSubset(named, presets.names())


class VersionsTest(absltest.TestCase):
    def test_ranges_are_those_of_the_requirements(self):
        required = (helpers.ROOT / "requirements.txt").read_text("utf-8")
        ((first, beyond),) = re.findall(r"^tensorflow>=2\.(\d+),<2\.(\d+)$", required, re.M)
        versions = ", ".join(f"2.{minor}" for minor in range(int(first), int(beyond)))
        self.assertIn(f"| `tensorflow` | {versions} |", PAGE)
        self.assertRegex(required, rf"(?m)^tensorflow-text>=2\.{first},<2\.{beyond}$")
        project = (helpers.ROOT / "pyproject.toml").read_text("utf-8")
        self.assertIn(f"tensorflow-serving-api>=2.{first},<2.{beyond}", project)
        (keras,) = re.findall(r"^keras>=([\d.]+),", required, re.M)
        self.assertIn(f"| `keras` | {keras} |", PAGE)


if __name__ == "__main__":
    absltest.main()
