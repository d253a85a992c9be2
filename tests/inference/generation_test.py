"""Tests of txl_tf.inference.generation: prompts in, text out."""

import functools

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.data.tokenizers import ByteTokenizer, CharTokenizer, WordTokenizer
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.inference import generation
from txl_tf.inference.generation import Conversation, Generator
from txl_tf.inference.sampling import Sampling
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops import machine
from txl_tf.text_stream import TextStream

GREEDY = Sampling(temperature=0.0)
WORDS = ("<eos>", "the", "cat", "sat", "on", "mat", "<unk>", "and", "dog", "a", "ran")


def words(**options):
    return WordTokenizer(vocabulary=Vocabulary(WORDS), **options)


def chars(symbols="ab\n <unk>", **options):
    known = [*symbols.removesuffix("<unk>"), *(["<unk>"] if "<unk>" in symbols else [])]
    return CharTokenizer(vocabulary=Vocabulary(known), **options)


@functools.cache
def make_model(vocab_size=11, mem_len=64, seed=4):
    config = helpers.tiny_config(vocab_size=vocab_size, mem_len=mem_len)
    return helpers.loud(TransformerXL(config), seed=seed)


@functools.cache
def make_generator(sampling=GREEDY, **options):
    return Generator(make_model(), words(), sampling=sampling, **options)


class TextStreamTest(parameterized.TestCase):
    @parameterized.parameters(1, 2, 3, 100)
    def test_parts_join_to_the_whole(self, size):
        content = "aé日本😀\n z"
        ids = list(content.encode())
        stream = TextStream(ByteTokenizer().decode)
        parts = [stream.add(ids[i : i + size]) for i in range(0, len(ids), size)]
        self.assertNotIn("\ufffd", "".join(parts))
        self.assertEqual("".join(parts) + stream.finish(), content)

    def test_incomplete_and_wrong_bytes_are_replaced(self):
        stream = TextStream(ByteTokenizer().decode)
        self.assertEqual(stream.add(b"a\xff"), "a")  # it may yet be the start of something
        self.assertEqual(stream.add(b"b\xe6\x97"), "\ufffdb")
        self.assertEqual(stream.finish(), "\ufffd")
        self.assertEqual(stream.finish(), "")

    @parameterized.parameters("byte", "characters", "words", "sentences")
    def test_a_long_text_costs_no_more_than_its_length(self, name):
        tokenizer = {
            "byte": ByteTokenizer,
            "characters": chars,
            "words": words,
            "sentences": functools.partial(
                WordTokenizer, vocabulary=Vocabulary(["<S>", "a", "<unk>"]), end_of_line="boundary"
            ),
        }[name]()
        text = "日本é😀 \n " * 90
        ids = list(text.encode()) if name == "byte" else []
        ids += np.random.default_rng(0).integers(tokenizer.vocab_size, size=1500).tolist()
        decoded = []
        stream = TextStream(lambda ids: decoded.append(len(ids)) or tokenizer.decode(ids))
        parts = [stream.add(ids[i : i + 7]) for i in range(0, len(ids), 7)]
        self.assertEqual("".join(parts) + stream.finish(), tokenizer.decode(ids))
        self.assertLess(sum(decoded), 50 * len(ids))  # else a hundred times it, and more

    def test_context_decides_about_spaces_and_is_not_shown(self):
        stream = TextStream(words().decode, [1, 2])
        self.assertEqual(stream.add([3]), " sat")
        self.assertEqual(stream.add([-1, 0, 1, -1]), "\nthe")

    def test_unknown_character_in_context(self):
        tokenizer = chars()
        stream = TextStream(tokenizer.decode, tokenizer.encode("aq", complete=False))
        self.assertEqual(stream.add([1, 0]) + stream.finish(), "ba")


class LineEndTest(parameterized.TestCase):
    @parameterized.parameters(
        (ByteTokenizer(), 10),
        (words(), 0),
        (words(end_of_line="none"), None),
        (chars(), 2),
        (chars("ab<unk>"), None),
        (chars("ab", unknown="error"), None),
        (ByteTokenizer(drop_newlines=True), None),
    )
    def test_id(self, tokenizer, expected):
        self.assertEqual(generation.line_end_id(tokenizer), expected)


class SamplesTest(parameterized.TestCase):
    def test_greedy_words_continue_an_open_line(self):
        ((found,),) = make_generator().samples(["the cat"], 6)
        text = [1, 2]
        for _ in range(6):
            scores = np.array(make_model()(np.array([text], "int32"))[0])[0, -1]
            scores[6] = -np.inf  # <unk> never comes
            text.append(int(scores.argmax()))
        self.assertEqual(found.ids, tuple(text[2:]))
        self.assertEqual(found.prompt + found.text, words().decode(text))
        nll, _ = make_model().nll(np.array([text[:-1]]), np.array([text[1:]]))
        atol = rounding.of_scores(make_model().config)
        self.assertAlmostEqual(found.log_prob, -float(np.sum(nll[0, 1:])), delta=6 * atol)

    def test_unknown_is_never_generated(self):
        plain = make_generator(Sampling(temperature=50.0))
        (samples,) = plain.samples(["the"], 100, num_samples=5)
        written = np.concatenate([sample.ids for sample in samples])
        self.assertEqual(set(written.tolist()), set(range(11)) - {6})

    def test_prompts_and_samples_do_not_depend_on_each_other(self):
        generator = make_generator(Sampling(temperature=2.0))
        prompts = ["the cat sat", "dog", "", "the zebra\nand"]
        together = generator.samples(prompts, 9, num_samples=3, seed=5)
        for prompt, samples in zip(prompts, together, strict=True):
            ((alone,),) = generator.samples([prompt], 9, seed=5)
            self.assertEqual((alone.prompt, alone.text), (samples[0].prompt, samples[0].text))
            atol = 9 * rounding.of_scores(make_model().config)
            self.assertAlmostEqual(alone.log_prob, samples[0].log_prob, delta=atol)
            self.assertLen({sample.ids for sample in samples}, 3)
        other = generator.samples(prompts, 9, num_samples=3, seed=6)
        self.assertNotEqual(other[0][0].ids, together[0][0].ids)

    def test_empty_prompt_starts_a_line(self):
        ((empty,),) = make_generator().samples([""], 5)
        ((line_end,),) = make_generator().samples(["\n"], 5)
        self.assertEqual(empty.ids, line_end.ids)

    def test_stops_at_line_end(self):
        generator = make_generator(Sampling(temperature=8.0), stop_at_line_end=True)
        (samples,) = generator.samples(["the"], 120, num_samples=4)
        for sample in samples:
            self.assertEqual(sample.ids.index(0), len(sample.ids) - 1)
            self.assertTrue(sample.text.endswith("\n"))
        self.assertGreater(len({len(sample.ids) for sample in samples}), 1)

    def test_bytes_are_text_whatever_comes(self):
        model = make_model(256)
        ((found,),) = generation.generate(model, ByteTokenizer(), ["é"], 50, seed=3)
        self.assertEqual(found.text, bytes(found.ids).decode("utf-8", "replace"))
        again = generation.generate(model, ByteTokenizer(), ["é"], 50, seed=3)
        self.assertEqual(again, [[found]])

    def test_beams(self):
        (found,) = make_generator().beams(["the cat"], 5, num_beams=4, num_samples=3)
        self.assertLen(found, 3)
        self.assertEqual(sorted(found, key=lambda each: -each.log_prob), found)
        ((greedy,),) = make_generator().samples(["the cat"], 5)
        ((one,),) = make_generator().beams(["the cat"], 5, num_beams=1)
        self.assertEqual(one.ids, greedy.ids)
        atol = 5 * rounding.of_scores(make_model().config)
        self.assertAlmostEqual(one.log_prob, greedy.log_prob, delta=atol)
        self.assertGreaterEqual(found[0].log_prob, greedy.log_prob - atol)
        self.assertNotIn(6, np.concatenate([each.ids for each in found]))

    @parameterized.parameters(
        ({"length": 0}, "length must be at least 1, got 0"),
        ({"length": 2**31}, "length must be at most 1073741824, got 2147483648"),
        ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
        ({"prompts": []}, "prompts must hold at least one prompt, got none"),
        ({"seed": -1}, r"seed must lie in 0\.\.2147483647, got -1"),
    )
    def test_refusals(self, options, message):
        arguments = {"prompts": ["the"], "length": 3} | options
        with self.assertRaisesRegex(ValueError, message):
            make_generator().samples(**arguments)

    def test_one_generator_compiles_its_search_once(self):
        generator, traced = make_generator(), []
        extend = generator._search._extend
        generator._search._extend = lambda *args: traced.append(1) or extend(*args)
        found = [generator.beams(["the cat"], 5, num_beams=2) for _ in range(3)]
        self.assertEqual(found[0], found[2])
        self.assertLen(traced, 1)

    def test_more_samples_than_beams(self):
        with self.assertRaisesRegex(ValueError, "num_samples must be at most num_beams 2, got 3"):
            make_generator().beams(["the"], 3, num_beams=2, num_samples=3)

    def test_no_memory(self):
        with self.assertRaisesRegex(ValueError, "mem_len must be at least 1 to generate, got 0"):
            Generator(make_model(mem_len=0), words())

    def test_no_line_end_to_stop_at(self):
        with self.assertRaisesRegex(ValueError, "stop_at_line_end must be off: the word tokenizer"):
            Generator(make_model(), words(end_of_line="none"), stop_at_line_end=True)

    def test_model_of_another_vocabulary(self):  # AC16
        message = r"prompt ids must lie in 0\.\.10 \(vocabulary of 11\), got 120"
        with self.assertRaisesRegex(ValueError, message):
            generation.generate(make_model(), ByteTokenizer(), ["x"], 3)


class ConversationTest(absltest.TestCase):
    def test_turns_equal_one_text(self):
        conversation = Conversation(make_generator())
        conversation.read("the cat")
        first = "".join(conversation.write(4))
        conversation.read("and a dog")
        second = "".join(conversation.write(5))
        ((alone,),) = make_generator().samples(["the cat"], 4)
        self.assertEqual(first, alone.text)
        whole = f"the cat{first} and a dog"
        self.assertEqual(second, make_generator().samples([whole], 5)[0][0].text)

    def test_too_much_is_refused_before_anything_is_written(self):
        conversation = Conversation(make_generator())
        conversation.read("the cat")
        with (
            absltest.mock.patch.object(machine, "memory_limit", lambda: 10**6),
            self.assertRaisesRegex(ValueError, "memory must be at least .* length 1000000000"),
        ):
            conversation.write(10**9)

    def test_an_empty_turn_continues_the_text(self):
        conversation = Conversation(make_generator())
        conversation.read("the cat")
        first = list(conversation.write(4))
        conversation.read("")
        second = "".join(conversation.write(5))
        ((whole,),) = make_generator().samples(["the cat"], 9)
        self.assertEqual(("".join(first) + " " + second).split(" "), whole.text.split(" "))

    def test_new_conversation_remembers_nothing(self):
        generator = make_generator(Sampling(temperature=2.0))
        first, other = Conversation(generator, seed=1), Conversation(generator, seed=1)
        first.read("the cat sat on")
        list(first.write(3))
        other.read("dog")
        self.assertEqual("".join(other.write(5)), generator.samples(["dog"], 5, seed=1)[0][0].text)


if __name__ == "__main__":
    absltest.main()
