"""Tests of scripts/generate.py, run as a user runs it."""

import json
import pathlib

import pytest
from absl.testing import absltest, parameterized

import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.inference.generation import Conversation, Generator
from txl_tf.inference.sampling import Sampling


@pytest.mark.slow
class GenerateProgramTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        data_dir = trained.prepare_data(cls.folder, "char")
        cls.model_dir = trained.describe(cls.folder, data_dir, num_layers=1)
        cls.loaded = model_dirs.load(cls.model_dir)

    def run_program(self, *flags, stdin="", code=0):
        flags = (f"--model_dir={self.model_dir}", *flags)
        return trained.run("generate", *flags, stdin=stdin, code=code)

    def generator(self, **sampling):
        model, tokenizer = self.loaded.model, self.loaded.tokenizer
        return Generator(model, tokenizer, sampling=Sampling(**sampling), segment_len=8)

    def test_stdout_is_prompt_and_continuation(self):
        flags = ("--prompt=kaka", "--length=70", "--temperature=0.9", "--top_k=5", "--seed=3")
        stdout, stderr = self.run_program(*flags)
        generator = self.generator(temperature=0.9, top_k=5)
        ((expected,),) = generator.samples(["kaka"], 70, seed=3)
        self.assertEqual(stdout, f"kaka{expected.text}\n")
        self.assertIn("seed=3", stderr)

    def test_an_unset_seed_is_drawn_and_logged(self):
        stdout, stderr = self.run_program("--length=10")
        (seed,) = [line.split("seed=")[1] for line in stderr.splitlines() if "seed=" in line]
        again, _ = self.run_program("--length=10", f"--seed={seed}")
        self.assertEqual(again, stdout)

    def test_several(self):
        path = self.folder / "prompt.txt"
        path.write_text("lo mi\n", "utf-8")
        flags = ("--prompt=ka", f"--prompt_file={path}", "--num_samples=2", "--length=9")
        stdout, _ = self.run_program(*flags, "--seed=1")
        expected = self.generator().samples(["ka", "lo mi\n"], 9, num_samples=2, seed=1)
        for prompt, samples in enumerate(expected, start=1):
            for sample, each in enumerate(samples, start=1):
                head = f"=== prompt {prompt}, sample {sample}, log_prob {each.log_prob:.3f} ==="
                self.assertIn(f"{head}\n{each.prompt}{each.text}\n", stdout)
        lines = self.run_program(*flags, "--seed=1", "--json")[0].splitlines()
        found = [json.loads(line) for line in lines]
        flat = [each for samples in expected for each in samples]
        self.assertEqual([each["text"] for each in found], [each.text for each in flat])
        self.assertEqual([each["sample"] for each in found], [1, 2, 1, 2])
        self.assertEqual(found[2]["prompt"], "lo mi\n")

    def test_beams(self):
        flags = ("--prompt=ka", "--num_beams=3", "--num_samples=2", "--length=6", "--json")
        found = [json.loads(line) for line in self.run_program(*flags)[0].splitlines()]
        ((best, second),) = self.generator().beams(["ka"], 6, num_beams=3, num_samples=2)
        self.assertEqual([each["text"] for each in found], [best.text, second.text])
        atol = 6 * rounding.of_scores(self.loaded.model.config)
        self.assertAlmostEqual(found[0]["log_prob"], best.log_prob, delta=atol)

    def test_interactive_turns_keep_the_memory_until_reset(self):
        flags = ("--interactive", "--length=5", "--temperature=0")
        stdout, _ = self.run_program(*flags, stdin="kaka\nlo\n\n/reset\nlo\n")
        conversation, expected = Conversation(self.generator(temperature=0.0)), ""
        for line in ("kaka", "lo", ""):
            conversation.read(line)
            expected += "".join(conversation.write(5)) + "\n"
        conversation = Conversation(self.generator(temperature=0.0))
        conversation.read("lo")
        fresh = "".join(conversation.write(5)) + "\n"
        self.assertEqual(stdout, expected + fresh)

    @parameterized.parameters(
        (("--temperature=-1",), 1, "temperature must be at least 0 and finite, got -1.0"),
        (("--top_p=0",), 1, "top_p must be above 0 and at most 1, got 0.0"),
        (("--top_k=0",), 2, "flag --top_k=0"),
        (("--length=0",), 2, "--length=0"),
        (("--length=2147483648",), 2, "flag --length=2147483648"),
        (("--num_beams=0",), 2, "flag --num_beams=0"),
        (("--num_beams=2", "--temperature=0"), 2, "--temperature has no effect with num_beams"),
        (("--num_beams=2", "--temperature=0.5"), 2, "--temperature has no effect with num_beams"),
        (("--length_penalty=1",), 2, "--length_penalty has no effect with sampling"),
        (("--interactive", "--json"), 2, "--json has no effect with interactive"),
        (("--num_beams=2", "--num_samples=3"), 1, "num_samples must be at most num_beams 2"),
        (("--prompt_file=missing",), 1, "missing must be a file, got no such file"),
        (("--prompt=a\udcff",), 1, "prompt must be UTF-8, got byte 0xff at offset 1"),
        (("--mem_len=0",), 1, "mem_len must be at least 1 to generate, got 0"),
        (("--seed=-1",), 2, "flag --seed=-1"),
    )
    def test_wrong_flags(self, flags, code, message):
        stdout, stderr = self.run_program(*flags, code=code)
        self.assertEmpty(stdout)
        self.assertIn(message, stderr.splitlines()[-1])
        self.assertNotIn("Traceback", stderr)


if __name__ == "__main__":
    absltest.main()
