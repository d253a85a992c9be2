"""Imports follow the dependencies declared in BUILD."""

import ast
import fnmatch
import pathlib
import re

from absl.testing import absltest

import helpers

ROOT = helpers.ROOT


class Build:
    """BUILD, read as Python, which Starlark's subset allows."""

    def __init__(self, root=ROOT):
        self.root = root
        self.sources = {}  # target -> its files
        self.deps = {}  # target -> the targets it may import
        self.binaries, self.tests = {}, {}  # target -> its main file
        rules = dict(
            load=lambda *_: None,
            glob=self._glob,
            py_library=self._py_library,
            py_binary=self._runnable(self.binaries),
            py_test=self._runnable(self.tests),
        )
        exec((root / "BUILD").read_text(), rules)

    def _py_library(self, name, srcs, deps=(), **_):
        self.sources[name] = list(srcs)
        self._add(name, deps)

    def _runnable(self, found):
        def rule(name, main, deps=(), **_):
            found[name] = main
            self._add(name, deps)

        return rule

    def _add(self, name, deps):
        if name in self.deps:
            raise ValueError(f"two targets are named {name}")
        self.deps[name] = {dep.lstrip(":") for dep in deps}

    def _glob(self, patterns, exclude=()):
        files = {path for pattern in patterns for path in self.root.glob(pattern)}
        names = {path.relative_to(self.root).as_posix() for path in files if path.is_file()}
        return sorted(n for n in names if not any(fnmatch.fnmatch(n, e) for e in exclude))

    def owners(self):
        """Module name -> the library that holds it. A module in two libraries is an error."""
        found = {}
        for library, files in self.sources.items():
            for file in files:
                module = module_name(file)
                if module in found:
                    raise ValueError(f"{module} is in {found[module]} and in {library}")
                found[module] = library
        return found


def module_name(file):
    """Of "txl_tf/ops/__init__.py": "txl_tf.ops"; of "scripts/timing.py": "timing"."""
    dotted = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted.removeprefix("scripts.")


def imported_modules(tree, known):
    """The modules among `known` that the source imports, at the top or inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"line {node.lineno}: imports must be absolute")
            for alias in node.names:
                names = (f"{node.module}.{alias.name}", node.module)
                yield from [name for name in names if name in known][:1]


def violations(build):
    """Imports that BUILD does not allow, each as "file imports module, which is in library"."""
    owners = build.owners()
    targets = {library: build.sources[library] for library in build.sources}
    targets |= {name: [main] for name, main in build.binaries.items()}
    for target, files in targets.items():
        for file in files:
            tree = ast.parse((build.root / file).read_text())
            for module in imported_modules(tree, owners):
                if owners[module] not in may_import(build.deps, target):
                    yield f"{file} imports {module}, which is in {owners[module]}"


def may_import(deps, target):
    """Itself and its deps; who depends on txl_tf, the whole, may import every part."""
    whole = transitive(deps, "txl_tf") if "txl_tf" in deps[target] else set()
    return {target} | deps[target] | whole


def transitive(deps, target):
    """All that `target` depends on, itself included, and raises on a cycle."""
    seen, path = set(), []

    def visit(name):
        if name in path:
            raise ValueError(f"cycle: {' -> '.join([*path, name])}")
        path.append(name)
        for dep in deps[name]:
            visit(dep)
        seen.add(path.pop())

    visit(target)
    return seen


class BuildFileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.build = Build()

    def test_there_is_one_build_file(self):
        """A second one would silently cut its folder out of every glob."""
        files = [
            path.relative_to(ROOT).as_posix()
            for name in ("BUILD", "BUILD.bazel")
            for path in ROOT.rglob(name)
            if not path.relative_to(ROOT).parts[0].startswith((".", "bazel-"))
        ]
        self.assertEqual(files, ["BUILD"])

    def test_every_module_is_in_one_library(self):
        modules = {module_name(file) for file in self.build._glob(["txl_tf/**/*.py"])}
        self.assertEqual({m for m in self.build.owners() if m.startswith("txl_tf")}, modules)

    def test_every_program_and_test_has_a_target(self):
        scripts = self.build._glob(["scripts/*.py"])
        programs = {
            f for f in scripts if re.search(r"^    \w+\.run\(", (ROOT / f).read_text(), re.M)
        }
        self.assertContainsSubset(
            {f"scripts/{name}.py" for name in helpers.program_names()}, programs
        )
        self.assertEqual(programs, set(scripts))
        self.assertEqual(set(self.build.binaries.values()), programs)
        tests = set(self.build._glob(["tests/**/*_test.py"]))
        self.assertEqual(set(self.build.tests.values()), tests)

    def test_imports_obey_deps(self):
        self.assertEqual(list(violations(self.build)), [])

    def test_arrows_point_one_way(self):
        for target in self.build.deps:
            transitive(self.build.deps, target)
        self.assertEqual(transitive(self.build.deps, "configs"), {"configs"})
        self.assertEqual(transitive(self.build.deps, "ops"), {"ops"})
        self.assertNotIn("models", transitive(self.build.deps, "data"))
        self.assertNotIn("data", transitive(self.build.deps, "models"))
        self.assertNotIn("training", transitive(self.build.deps, "inference"))

    def test_nothing_imports_the_programs(self):
        for target in self.build.sources:
            self.assertNotIn("benchmarks", self.build.deps[target])
            if target != "benchmarks":
                self.assertNotIn("cli", self.build.deps[target])

    def test_a_script_only_starts_its_program(self):
        for name in helpers.program_names():
            text = (ROOT / "scripts" / f"{name}.py").read_text()
            self.assertEqual(ast.unparse(ast.parse(text).body[1]), f"from txl_tf.cli import {name}")
            self.assertEndsWith(text, f'\n\nif __name__ == "__main__":\n    {name}.run()\n')


class BrokenTreeTest(absltest.TestCase):
    """The checks above can fail."""

    def tree(self, **files):
        root = pathlib.Path(self.create_tempdir().full_path)
        for name, text in files.items():
            path = root / name.replace("__", "/")
            path = path if name == "BUILD" else path.with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    def test_an_upward_import_is_found_wherever_it_stands(self):
        build_file = """
py_library(name = "low", srcs = ["txl_tf/low.py"])
py_library(name = "high", srcs = ["txl_tf/high.py"], deps = [":low"])
"""
        upward = "def f():\n    from txl_tf import high\n"
        root = self.tree(BUILD=build_file, txl_tf__low=upward, txl_tf__high="import txl_tf.low\n")
        self.assertEqual(
            list(violations(Build(root))),
            ["txl_tf/low.py imports txl_tf.high, which is in high"],
        )

    def test_a_module_in_two_libraries_is_refused(self):
        build_file = """
py_library(name = "one", srcs = ["txl_tf/low.py"])
py_library(name = "two", srcs = glob(["txl_tf/*.py"]))
"""
        root = self.tree(BUILD=build_file, txl_tf__low="")
        with self.assertRaisesRegex(ValueError, "txl_tf.low is in one and in two"):
            Build(root).owners()

    def test_two_targets_of_one_name_are_refused(self):
        build_file = """
py_library(name = "one", srcs = ["txl_tf/low.py"])
py_binary(name = "one", srcs = ["scripts/one.py"], main = "scripts/one.py")
"""
        with self.assertRaisesRegex(ValueError, "two targets are named one"):
            Build(self.tree(BUILD=build_file, txl_tf__low=""))

    def test_a_cycle_is_refused(self):
        with self.assertRaisesRegex(ValueError, "cycle: a -> b -> a"):
            transitive({"a": {"b"}, "b": {"a"}}, "a")

    def test_relative_imports_are_refused(self):
        with self.assertRaisesRegex(ValueError, "line 1: imports must be absolute"):
            list(imported_modules(ast.parse("from . import ops"), {"txl_tf.ops"}))


if __name__ == "__main__":
    absltest.main()
