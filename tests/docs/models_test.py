"""docs/models.md is correct: sizes, settings, presets, fields, and the flags of commands."""

import pathlib
import re
import shlex

import numpy as np
from absl.testing import absltest, parameterized

import helpers
from txl_tf.configs import presets
from txl_tf.conversion import formats
from txl_tf.models.transformer_xl import TransformerXL

PAGE = (helpers.ROOT / "docs" / "models.md").read_text("utf-8")
SCRIPTS = helpers.ROOT / "scripts"
PUBLISHED = [name for name in presets.names() if not name.startswith(("tiny", "small"))]
_HELPERS = ("config_flags", "model_flags")  # modules that define flags of several programs


def rows(heading):
    """The cells of the table whose head has a column of this name."""
    (table,) = (t for t in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE) if heading in t)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return cells[0], cells[2:]


def commands():
    """The words of each command of the page's examples."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for b in blocks for line in b.replace("\\\n", " ").splitlines()]


def count(config):
    """Parameters, by arithmetic on the shapes."""
    width, heads = config.d_model, config.num_heads * config.head_dim
    edges = [0, *config.cutoffs, config.vocab_size]
    sizes = np.diff(edges)
    widths = [config.embed_dim // config.div_val**i for i in range(len(sizes))]
    tables = list(zip(sizes, widths, strict=True))
    if config.div_val == 1:
        tables = [(config.vocab_size, config.embed_dim)]
    forced = config.div_val > 1 and config.project_same_dim
    total = sum(n * e for n, e in tables) + config.vocab_size  # with biases
    total += sum(e * width for _, e in tables if e != width or forced)
    if config.cutoffs:
        total += len(config.cutoffs) * (config.embed_dim + 1)
        ties = [*config.tie_projections, *[config.tie_projections[-1]] * len(sizes)]
        own = [e for e, tied in zip(widths, ties, strict=False) if not tied]
        total += sum(e * width for e in own if e != width or forced)
    if not config.tie_output_projection:
        total += config.embed_dim * width
    total += 2 * heads * (config.num_layers if config.untie_biases else 1)
    feed_forward = 2 * width * config.d_inner + config.d_inner + width
    return int(total + config.num_layers * (5 * width * heads + feed_forward + 4 * width))


class SizesTest(parameterized.TestCase):
    def test_every_published_preset_is_listed(self):
        _, cells = rows("in the paper")
        self.assertCountEqual([row[0].strip("`") for row in cells], PUBLISHED)

    @parameterized.parameters(*PUBLISHED)
    def test_parameters(self, name):
        head, cells = rows("in the paper")
        (row,) = (row for row in cells if row[0] == f"`{name}`")
        found = dict(zip(head, row, strict=True))["parameters"]
        self.assertEqual(found, f"{count(presets.preset(name).model):,}")

    @parameterized.parameters(
        {},
        dict(cutoffs=(3, 7), untie_biases=True),
        dict(cutoffs=(3, 7), div_val=2, tie_projections=(False, True)),
        dict(cutoffs=(3, 7), div_val=2, project_same_dim=False),
        dict(cutoffs=(3, 7), d_embed=4),
        dict(d_embed=4),
        dict(d_embed=4, tie_output_projection=False),
    )
    def test_the_arithmetic_is_that_of_the_model(self, **changes):
        """presets_test holds the presets themselves to it."""
        config = helpers.tiny_config(**changes)
        weights = TransformerXL(config).trainable_variables
        self.assertEqual(count(config), sum(int(np.prod(weight.shape)) for weight in weights))

    def test_bytes_that_do_not_occur(self):
        (more,) = re.findall(r"204 that occur: ([\d,]+) parameters more", PAGE)
        self.assertEqual(
            more, f"{(256 - 204) * (presets.preset('enwik8_base').model.d_model + 1):,}"
        )

    def test_nats_are_the_bits(self):
        found = re.findall(r"expected `nats_per_token` ([\d.]+), which is ([\d.]+) bits", PAGE)
        self.assertLen(found, 2)
        for nats, bits in found:
            self.assertAlmostEqual(float(nats), float(bits) * np.log(2), places=3)
            self.assertIn(f"| {bits} bits per ", PAGE)


class EvaluationTest(absltest.TestCase):
    def test_settings_are_those_of_the_presets(self):
        head, cells = rows("`--attention_span`")
        fields = [cell.strip("`-") for cell in head[1:]]
        listed = []
        for row in cells:
            for name in re.findall(r"`(\w+)`", row[0]):
                listed.append(name)
                settings = presets.preset(name).eval
                self.assertEqual(row[1:], [str(getattr(settings, f)).lower() for f in fields], name)
        self.assertCountEqual(listed, PUBLISHED)


class CommandsTest(absltest.TestCase):
    def test_programs_and_their_flags_exist(self):
        flags = 0
        for _, program, *rest in (c for c in commands() if c[0] == "python"):
            names = (pathlib.Path(program).stem, *_HELPERS)
            sources = [helpers.ROOT / "txl_tf" / "cli" / f"{name}.py" for name in names]
            known = set(re.findall(r'"(\w+)"', "".join(path.read_text() for path in sources)))
            known |= {"train", "valid", "test"} if "prepare_data" in program else set()
            for flag in rest:
                self.assertStartsWith(flag, "--")
                self.assertIn(flag[2:].partition("=")[0], known, program)
                flags += 1
        self.assertGreater(flags, 50)

    def test_presets_and_formats_exist(self):
        named = re.findall(r"--(?:eval_)?preset=(\w+)", PAGE)
        self.assertContainsSubset(set(named) - {"NAME"}, presets.names())
        self.assertContainsSubset(re.findall(r"--format=(\w+)", PAGE), formats.FORMATS)

    def test_each_evaluation_is_of_the_model_before(self):
        """Import, preparation and evaluation of a block speak of the same folders and preset."""
        model = preset = data = None
        for _, program, *rest in (c for c in commands() if c[0] == "python"):
            given = dict(flag[2:].partition("=")[::2] for flag in rest)
            if "import_checkpoint" in program or "train.py" in program:
                model, preset = given["model_dir"], given.get("preset")
                data = given.get("data_dir")
            elif "prepare_data" in program and "output_dir" in given:
                data = given["output_dir"]
            elif "evaluate" in program:
                self.assertEqual((given["model_dir"], given["data_dir"]), (model, data))
                self.assertIn(preset, (given["eval_preset"], None))

    def test_corpora_exist(self):
        script = (SCRIPTS / "getdata.sh").read_text()
        (known,) = re.findall(r'^NAMES="(.*)"$', script, re.MULTILINE)
        fetched = [
            name for c in commands() if c[:2] == ["bash", "scripts/getdata.sh"] for name in c[2:]
        ]
        self.assertContainsSubset(fetched, known.split(", "))
        self.assertContainsSubset(
            set(re.findall(r"data/([\w-]+)/\w+\.txt", PAGE)), known.split(", ")
        )


if __name__ == "__main__":
    absltest.main()
