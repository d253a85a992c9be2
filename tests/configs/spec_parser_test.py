"""Tests of txl_tf.configs.spec_parser: any text parses or raises a ValueError."""

import dataclasses
import random

from absl.testing import absltest, parameterized

import helpers
from txl_tf.configs import layer_specs, spec_parser, validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind(layer_specs.LayerSpec):
    name = "kind"

    k: int = 1
    label: str = ""


class SpecsTest(parameterized.TestCase):
    def test_reads_names_and_literal_options(self):
        self.assertEqual(spec_parser.parse("dense"), ("dense", {}))
        self.assertEqual(spec_parser.parse(" dense() "), ("dense", {}))
        self.assertEqual(
            spec_parser.parse("local(window=128, dilation=(1, 2))"),
            ("local", {"window": 128, "dilation": (1, 2)}),
        )

    @parameterized.parameters(
        ("a(b=-1.5e3, c=+2)", dict(b=-1500.0, c=2)),
        ("a(b='x y', c=\"(,\", d=True, e=None,)", dict(b="x y", c="(,", d=True, e=None)),
        (
            "a(b=(), c=(1), d=(1,), e=((1, 2), (3.0,),))",
            dict(b=(), c=1, d=(1,), e=((1, 2), (3.0,))),
        ),
        ("a(\n b = .5 )", dict(b=0.5)),
    )
    def test_values_are_those_of_python(self, spec, options):
        self.assertEqual(spec_parser.parse(spec), ("a", options))

    @parameterized.parameters(
        "a(b=1, b=2)",
        "a(b=1",
        "a(b=1))",
        "a(,)",
        "a(b=(,))",
        "a(b='x)",
        "a(b=1 c=2)",
        "a(b=1-1)",
        "a(b=--1)",
        "a(b=[1])",
        "a(b=inf)",
        "a(b=1)a",
        "a(=1)",
        "a\0",
        "\u212a(k=1)",
        "",
        "a b",
        "local(128)",
        "local(window=n)",
        "a.b",
        "local(**{'k': 1})",
        "f(g(k=1))",
    )
    def test_refuses_other_text(self, spec):
        with self.assertRaisesRegex(ValueError, "a spec must read name or .* texts in quotes"):
            spec_parser.parse(spec)

    @parameterized.parameters("kind", "kind(k=8)", "kind(k=8, label='a b')")
    def test_there_and_back(self, text):
        made = layer_specs.parse({"kind": Kind}, text)
        self.assertEqual(str(made), text)
        self.assertEqual(made, layer_specs.parse({"kind": Kind}, str(made)))

    def test_names_the_choices(self):
        with self.assertRaisesRegex(ValueError, "unknown kind 'other'.*choose from kind"):
            layer_specs.parse({"kind": Kind}, "other")
        with self.assertRaisesRegex(ValueError, "unknown option 'width'.*choose from k, label"):
            layer_specs.parse({"kind": Kind}, "kind(width=8)")


class AnyTextTest(parameterized.TestCase):
    """Whatever a spec says, it is taken, or refused in one line that names it."""

    @parameterized.parameters(
        "topk(k=" + "-" * 10_000 + "1)",
        "topk(k=" + "(" * 10_000 + ")" * 10_000 + ")",
        "topk(k=" + "not " * 10_000 + "1)",
        "topk(k=" + "9" * 10_000 + ")",
        "topk(k=1" + "0" * 400 + ")",
        "topk(k=" + "'" * 9_999 + ")",
        "topk(" + "k=1," * 10_000 + ")",
        "(" * 30_000,
        "x" * 30_000,
        "topk" + " " * 30_000 + "x",
        "local(window=2, dilations=" + "(1," * 10_000,
        "local(window=2, dilations=(" + "0," * 10_000 + "))",
    )
    def test_long_texts_are_refused_at_once(self, spec):
        with self.assertRaises(ValueError) as refused:
            helpers.tiny_config(attention=(spec,))
        self.assertStartsWith(str(refused.exception), f"attention {validation.shown(spec)}: ")
        self.assertLess(len(str(refused.exception)), 1000)

    def test_random_texts(self):
        """Made of pieces of specs, numbers at both ends of all ranges among them."""
        draw = random.Random(5)
        names = [*layer_specs.ATTENTION, *layer_specs.FEED_FORWARD, "None", "True", "inf", "\u00e9"]
        options = ["k", "window", "dilations", "block", "random", "seed", "table", "experts"]
        options += ["capacity_factor", "jitter"]
        numbers = ["0", "1", "-1", "2", "1.5", "1e6", "1e7", "1e400", "-1e400", ".5", "2147483648"]
        numbers += ["9" * 30, "1" + "0" * 400, "(1, 2)", "()", "(1,)", "((1,),)", "'row'", '""']
        marks = ["(", ")", ",", "=", "-", "'", '"', "\\", "\0", " ", "\n", "[", "*", "#", ":"]
        taken = 0
        for _ in range(1500):
            field = draw.choice(("attention", "feed_forward"))
            if draw.random() < 0.5:  # a spec as it should be, but for what it says
                chosen = draw.sample(options, draw.randint(0, 3))
                inside = ", ".join(f"{option}={draw.choice(numbers)}" for option in chosen)
                spec = f"{draw.choice(names)}({inside})"
            else:
                pieces = draw.choices([*names, *options, *numbers, *marks, *marks], k=9)
                spec = "".join(pieces[: draw.randint(0, 9)])
            try:
                helpers.tiny_config(**{field: (spec,)})
                taken += 1
            except ValueError as error:
                self.assertStartsWith(str(error), f"{field} {validation.shown(spec)}: ")
        self.assertBetween(taken, 15, 750)  # neither all nor none


if __name__ == "__main__":
    absltest.main()
