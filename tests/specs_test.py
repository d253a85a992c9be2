from absl.testing import absltest, parameterized

from txl_tf import specs


class Kind:
    OPTIONS = ("k", "name")

    def __init__(self, width, k=1, name=""):
        self.fields = (width, k, name)


class SpecsTest(parameterized.TestCase):
    def test_reads_names_and_literal_options(self):
        self.assertEqual(specs.parse("dense"), ("dense", {}))
        self.assertEqual(specs.parse(" dense() "), ("dense", {}))
        self.assertEqual(
            specs.parse("local(window=128, dilation=(1, 2))"),
            ("local", {"window": 128, "dilation": (1, 2)}),
        )

    @parameterized.parameters(
        "", "a b", "local(128)", "local(window=n)", "a.b", "local(**{'k': 1})", "f(g(k=1))"
    )
    def test_refuses_other_text(self, spec):
        with self.assertRaisesRegex(ValueError, "a spec must read name or .* texts in quotes"):
            specs.parse(spec)

    def test_builds_from_the_table(self):
        made = specs.build({"kind": Kind}, "kind(k=8)", width=3)
        self.assertEqual(made.fields, (3, 8, ""))

    def test_names_the_choices(self):
        with self.assertRaisesRegex(ValueError, "unknown kind 'other'.*choose from kind"):
            specs.build({"kind": Kind}, "other", width=3)
        with self.assertRaisesRegex(ValueError, "unknown option 'width'.*choose from k, name"):
            specs.build({"kind": Kind}, "kind(width=8)")


if __name__ == "__main__":
    absltest.main()
