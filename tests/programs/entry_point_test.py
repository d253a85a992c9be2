"""Tests of starting, failing and ending programs, on one that loads no TensorFlow."""

import ast
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys

import keras
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
from txl_tf.cli import entry_point

_DEMO = '''"""Shows a thing.

    python demo.py --data_dir=DATA
"""
import sys
import time

from txl_tf.cli import entry_point
from absl import app, flags, logging

_DATA = flags.DEFINE_string("data_dir", None, "Folder of shards.", required=True)
_SIZE = flags.DEFINE_integer("size", 1, "How much.")
_TEXT = flags.DEFINE_string("text", "", "No path.")
_MANY = flags.DEFINE_multi_string("many", [], "Paths.")


def main(argv):
    logging.info("size=%d", _SIZE.value)
    logging.warning("careful")
    {body}
    print("result")


if __name__ == "__main__":
    entry_point.run(main, texts=["text"])
'''
_ENVIRONMENT = os.environ | {"PYTHONPATH": str(helpers.ROOT)}


class RunTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def command(self, *arguments, body="pass"):
        path = self.folder / "demo.py"
        path.write_text(_DEMO.replace("{body}", body))
        return [sys.executable, str(path), *arguments]

    def run_demo(self, *arguments, body="pass", **options):
        return subprocess.run(
            self.command(*arguments, body=body),
            env=_ENVIRONMENT | options.pop("env", {}),
            capture_output=True,
            text=True,
            timeout=60,
            **options,
        )

    def test_a_failure_waits_for_no_thread(self):
        """Whoever they belong to: Python itself would wait for them."""
        body = (
            "import threading\n"
            "    threading.Thread(target=time.sleep, args=(1e4,)).start()\n"
            "    print('partial')\n"
            "    raise ValueError('size must be odd, got 2')"
        )
        done = self.run_demo("--data_dir=x", body=body)
        self.assertEqual((done.returncode, done.stdout), (1, "partial\n"))
        self.assertEqual(done.stderr.splitlines()[-1], "demo: error: size must be odd, got 2")

    def test_results_go_to_stdout_and_logs_to_stderr(self):
        done = self.run_demo("--data_dir=x", "--size=3")
        self.assertEqual((done.returncode, done.stdout), (0, "result\n"))
        clock = r"\d\d:\d\d:\d\d"
        self.assertRegex(done.stderr, rf"\A{clock} size=3\n{clock} warning: careful\n\Z")

    def test_home(self):
        """The shell expands ~ alone, and not in --flag=~."""
        body = "print(_DATA.value, _TEXT.value)"
        done = self.run_demo("--data_dir=~/a", "--text=~/b", body=body, env={"HOME": "/home/me"})
        self.assertEqual(done.stdout, "/home/me/a ~/b\nresult\n")

    @parameterized.parameters(
        ([], "flag --data_dir is required; see --help"),
        (["--data_dir=x", "--size=big"], "flag --size=big: .*'big'; see --help"),
        (["--data_dir=x", "--siz=1"], "Unknown command line flag 'siz'.*size.*; see --help"),
        (["--data_dir=x", "a", "b"], "unexpected arguments: a b; see --help"),
        (["--data_dir="], "flag --data_dir must have a value, got none; see --help"),
        (["--data_dir=x", "--many=a", "--many="], "flag --many must have a value, .*--help"),
    )
    def test_a_mistake_in_the_flags_is_one_line_and_exit_code_2(self, arguments, message):
        done = self.run_demo(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, rf"\Ademo: error: {message}\n\Z")

    def test_a_usage_error_of_main_is_one_line_and_exit_code_2(self):
        done = self.run_demo("--data_dir=x", body='raise app.UsageError("a and b exclude")')
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.splitlines()[-1], "demo: error: a and b exclude; see --help")

    @parameterized.parameters(
        ('raise ValueError("size must be even, got 3")', "size must be even, got 3"),
        ('open("/nowhere/x")', "/nowhere/x: No such file or directory"),
    )
    def test_an_error_that_users_cause_is_one_line_and_exit_code_1(self, body, message):
        done = self.run_demo("--data_dir=x", body=body)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.splitlines()[2:], [f"demo: error: {message}"])

    def test_traceback_is_shown_when_asked_for(self):
        done = self.run_demo("--data_dir=x", "--traceback", body='raise ValueError("odd")')
        self.assertEqual(done.returncode, 1)
        self.assertIn("Traceback (most recent call last)", done.stderr)

    def test_a_bug_keeps_its_traceback(self):
        done = self.run_demo("--data_dir=x", body='{}["lost"]')
        self.assertEqual(done.returncode, 1)
        self.assertIn("Traceback (most recent call last)", done.stderr)
        self.assertIn("KeyError: 'lost'", done.stderr)

    def test_an_exit_code_of_main_is_the_programs(self):
        self.assertEqual(self.run_demo("--data_dir=x", body="return 75").returncode, 75)

    def signalled(self, number, body):
        """Sends a signal once the program is ready -> its exit code, stdout since then, stderr."""
        command = self.command("--data_dir=x", body=body)
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with subprocess.Popen(command, env=_ENVIRONMENT, **pipes) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=60)
        return process.returncode, stdout, stderr

    def test_interrupting_is_one_line(self):
        helpers.usual_signals(self)
        body = 'print("ready", flush=True); time.sleep(60)'
        code, _, stderr = self.signalled(signal.SIGINT, body)
        self.assertEqual(code, 130)
        self.assertEqual(stderr.splitlines()[2:], ["demo: interrupted"])

    def test_interrupting_an_import_is_one_line(self):
        helpers.usual_signals(self)
        imports = 'import txl_tf.cli; print("ready", flush=True); import time; time.sleep(60)'
        (self.folder / "demo.py").write_text(imports)
        command = [sys.executable, str(self.folder / "demo.py")]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with subprocess.Popen(command, env=_ENVIRONMENT, **pipes) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        self.assertEqual((process.returncode, stderr), (130, "demo: interrupted\n"))

    def test_sigterm_is_one_line_and_clears_up(self):
        body = (
            "import contextlib\n"
            "    with contextlib.ExitStack() as stack:\n"
            "        stack.callback(print, 'cleared', flush=True)\n"
            "        print('ready', flush=True); time.sleep(60)"
        )
        code, stdout, stderr = self.signalled(signal.SIGTERM, body)
        self.assertEqual((code, stdout), (143, "cleared\n"))
        self.assertEqual(stderr.splitlines()[2:], ["demo: terminated"])

    def test_sigterm_ends_what_does_not_end(self):
        body = (
            "entry_point._GRACE_SECONDS = 0.1\n"
            "    try:\n"
            "        print('ready', flush=True); time.sleep(60)\n"
            "    except BaseException: time.sleep(60)"
        )
        code, _, stderr = self.signalled(signal.SIGTERM, body)
        self.assertEqual(code, 143)
        self.assertEqual(stderr.splitlines()[2:], ["demo: terminated"])

    def test_closed_streams_are_the_null_device(self):
        body = (
            "number = open(sys.argv[0]).fileno()\n"
            "    logging.info('read %r from %d', sys.stdin.read(), number)"
        )
        command = ["sh", "-c", 'exec "$@" <&- >&-', "sh", *self.command("--data_dir=x", body=body)]
        done = subprocess.run(
            command, env=_ENVIRONMENT, stderr=subprocess.PIPE, text=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], r"read '' from ([3-9]|\d\d)$")
        command[2] = 'exec "$@" 2>&-'
        done = subprocess.run(
            command, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60
        )
        self.assertEqual((done.returncode, done.stdout), (0, b"result\n"))

    def test_stdout_takes_every_letter_whatever_the_locale(self):
        done = subprocess.run(
            self.command("--data_dir=x", body=r"print('é日\udcff')"),
            env=_ENVIRONMENT | {"PYTHONIOENCODING": "ascii"},
            capture_output=True,
            timeout=60,
        )
        self.assertEqual(done.stdout.decode(), "é日\\udcff\nresult\n", done.stderr)

    def test_a_closed_pipe_is_quiet(self):
        body = "[print(i) for i in range(100_000)]"
        command = self.command("--data_dir=x", body=body)
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with subprocess.Popen(command, env=_ENVIRONMENT, **pipes) as process:
            self.assertEqual(process.stdout.readline(), "0\n")
            process.stdout.close()
            stderr = process.stderr.read()
        self.assertEqual(process.returncode, 141)
        self.assertLen(stderr.splitlines(), 2)  # the two log lines

    def test_a_full_stdout_is_named(self):
        for arguments in (["--data_dir=x", "--text="], ["--help"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    self.command(*arguments),
                    env=_ENVIRONMENT,
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=60,
                )
            self.assertEqual(done.returncode, 1)
            told = "demo: error: standard output: No space left on device"
            self.assertEqual(done.stderr.splitlines()[-1], told)

    def test_help_shows_the_docstring_and_the_flags(self):
        done = self.run_demo("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in ("Shows a thing.", "--data_dir: Folder of shards.", "--size", "--traceback"):
            self.assertIn(text, done.stdout)
        self.assertNotIn("--pdb", done.stdout)  # absl's own, which --helpfull shows

    def test_a_module_is_the_program_however_it_is_started(self):
        """By a script, by `python -m`, by an installed command; errors name what was typed."""
        for name in ("average_checkpoints", "prepare_data"):
            module = f"txl_tf.cli.{name}"
            imported = f"import sys; from txl_tf.cli import {name}; sys.argv[0] = '/bin/txl-x'; "
            ways = {
                name: [str(helpers.ROOT / "scripts" / f"{name}.py")],
                f"{name} ": ["-m", module],
                "txl-x": ["-c", f"{imported}{name}.run()"],
            }
            helps = set()
            for program, command in ways.items():
                command = [sys.executable, *command]
                run = functools.partial(
                    subprocess.run, env=_ENVIRONMENT, capture_output=True, text=True, timeout=120
                )
                done = run([*command, "--help"])
                self.assertEqual(done.returncode, 0, done.stderr)
                helps.add(done.stdout)
                done = run([*command, "--no_such_flag"])
                self.assertStartsWith(
                    done.stderr, f"{program.strip()}: error: Unknown command line"
                )
            (text,) = helps
            source = (helpers.ROOT / "txl_tf" / "cli" / f"{name}.py").read_text()
            self.assertStartsWith(text, ast.get_docstring(ast.parse(source), clean=False).rstrip())
            self.assertIn("--output_dir: ", text)

    def test_chatter_of_tensorflow_is_dropped_and_the_rest_is_not(self):
        (self.folder / "tensorflow.py").write_text(
            "import os\n"
            'os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called\\n")\n'
            'os.write(2, b"I0000 00:00:17.1 1 cudart_stub.cc:31] Could not find cuda drivers\\n")\n'
            'os.write(2, b"E0000 00:00:17.1 1 memory.cc:1] something is wrong\\n")\n'
            "class errors: OpError = ArithmeticError\n"
            "class get_logger: setLevel = print\n"
            "class config:\n"
            "  def list_physical_devices(): os.write(2, b'E0000 failed call to cuInit: (303)\\n')\n"
        )
        done = self.run_demo("--data_dir=x", body="import tensorflow")
        self.assertEqual((done.returncode, done.stdout), (0, "WARNING\nresult\n"))
        told = "E0000 00:00:17.1 1 memory.cc:1] something is wrong"
        self.assertEqual(done.stderr.splitlines()[2:], [told])


class DescribeTest(absltest.TestCase):
    """The line of an error that tells what is wrong, from how the libraries wrap it."""

    def line(self, function):
        try:
            function()
        except Exception as error:
            return entry_point.describe(error)
        return self.fail("raised nothing")

    def test_operations(self):
        def look_up(i):
            return tf.gather(tf.zeros([3]), i)

        self.assertEqual(self.line(lambda: look_up(12)), "indices = 12 is not in [0, 3)")
        compiled = tf.function(look_up)
        self.assertEqual(
            self.line(lambda: compiled(tf.constant(12))), "indices = 12 is not in [0, 3)"
        )

    def test_files(self):
        told = "/nowhere; No such file or directory"
        self.assertEqual(self.line(lambda: tf.io.gfile.GFile("/nowhere").read()), told)
        self.assertEqual(self.line(lambda: list(tf.data.TFRecordDataset("/nowhere"))), told)
        self.assertEqual(
            self.line(lambda: os.stat("/nowhere/x")), "/nowhere/x: No such file or directory"
        )

    def test_a_scheme(self):
        line = self.line(lambda: tf.io.gfile.exists("s3://bucket/x"))
        self.assertStartsWith(line, "File system scheme 's3' not implemented")

    def test_values_refused_while_tracing(self):
        @tf.function
        def trace():
            raise ValueError("size must be even, got 3")

        self.assertEqual(self.line(trace), "size must be even, got 3")

    def test_values_refused_inside_a_layer(self):
        class Refuses(keras.layers.Layer):
            def call(self, x):
                raise ValueError("size must be even, got 3")

        self.assertEqual(self.line(lambda: Refuses()(tf.zeros([2]))), "size must be even, got 3")

    def test_errors_inside_fit(self):
        model = keras.Sequential([keras.layers.Embedding(3, 4)])
        model.compile(loss="mse")
        data = tf.constant([[7]]), tf.zeros([1, 1, 4])
        line = self.line(lambda: model.fit(*data, verbose=0))
        self.assertEqual(line, "indices[0,0] = 7 is not in [0, 3)")

    def test_an_empty_message(self):
        self.assertEqual(entry_point.describe(ValueError()), "ValueError")


class LibraryTest(absltest.TestCase):
    def test_it_names_no_flags(self):
        """A message of the library comes from several programs; few have the flag that it names."""
        paths = set((helpers.ROOT / "txl_tf").rglob("*.py"))
        for path in sorted(paths - set((helpers.ROOT / "txl_tf" / "cli").iterdir())):
            tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    named = re.findall(r"(?<!_data )(?<!train )--[a-z]\w+", node.value)
                    self.assertEmpty(named, f"{path}:{node.lineno}")


if __name__ == "__main__":
    absltest.main()
