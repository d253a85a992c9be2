"""Tests of txl_tf.inference.decoding and segments: ids in, ids out."""

import functools

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.inference import segments
from txl_tf.inference.decode_state import HiddenState, KeyValueState
from txl_tf.inference.decoding import Decoder, Session
from txl_tf.inference.sampling import Sampling
from txl_tf.models.transformer_xl import TransformerXL

GREEDY = Sampling(temperature=0.0)
PROMPT = np.array([3, 1, 4, 1, 5], "int32")


@functools.cache  # tracing takes most of the time here
def make_model(seed=4, **changes):
    return helpers.loud(TransformerXL(helpers.tiny_config(**changes)), seed=seed)


@functools.cache
def make_decoder(model, sampling, state=KeyValueState, **options):
    return Decoder(state(model), sampling, **options)


def write(session, length):
    """All that a session writes: ids and log-probabilities, [B, n] each."""
    chunks = list(session.write(length))
    return tuple(np.concatenate(parts, axis=1) for parts in zip(*chunks, strict=True))


def run(model, prompts, length, sampling=GREEDY, copies=1, seed=0, **options):
    session = Session(make_decoder(model, sampling, **options), len(prompts), seed=seed)
    session.read(prompts)
    session.branch(copies)
    return write(session, length)


def log_softmax(scores):
    scores = np.asarray(scores, np.float64)
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class GreedyTest(parameterized.TestCase):
    @parameterized.parameters(HiddenState, KeyValueState)
    def test_memory_equals_recomputation(self, state):  # AC17 (a) and (b)
        model = make_model(mem_len=64)
        ids, log_probs = run(model, [PROMPT], 20, state=state)
        text = list(PROMPT)
        for step in range(20):
            scores, _ = model(np.array([text], "int32"))
            expected = log_softmax(scores[0, -1])
            text.append(int(expected.argmax()))
            atol = rounding.of_scores(model.config, 25)
            self.assertAlmostEqual(log_probs[0, step], expected.max(), delta=atol)
        np.testing.assert_array_equal(ids[0], text[5:])
        self.assertGreater(len(set(text[5:])), 2)  # else anything passes

    @parameterized.parameters(HiddenState, KeyValueState)
    def test_logits_of_memory_equal_recomputation(self, kind):  # AC17, every logit
        model = make_model(mem_len=64)
        state, carried = kind(model), kind(model).initial(1)
        written = run(model, [PROMPT], 20)[0][0]
        text = np.concatenate([PROMPT, written])
        for end in range(1, len(text)):
            scores, carried = state.scores(text[np.newaxis, end - 1 : end], carried)
            whole, _ = model(text[np.newaxis, :end])
            atol = rounding.of_scores(model.config, 25)
            np.testing.assert_allclose(scores[0, -1], whole[0, -1], rtol=0, atol=atol)

    def test_short_memory_is_the_last_states(self):  # AC17, mem_len 8
        model = make_model(mem_len=8)
        ids, log_probs = run(model, [PROMPT], 20)
        long = model.with_lengths(mem_len=64)
        memory, text = long.initial_mems(1), list(PROMPT)
        for step in range(20):
            unread = text[-1:] if step else text
            scores, memory = long(np.array([unread], "int32"), memory)
            memory = memory._replace(length=np.minimum(memory.length, 8))
            expected = log_softmax(scores[0, -1])
            text.append(int(expected.argmax()))
            atol = rounding.of_scores(model.config, 25)
            self.assertAlmostEqual(log_probs[0, step], expected.max(), delta=atol)
        np.testing.assert_array_equal(ids[0], text[5:])
        far, _ = run(make_model(mem_len=64), [PROMPT], 20)
        self.assertFalse(np.array_equal(far, ids))  # else the length would not matter

    def test_no_memory_knows_only_the_newest_id(self):
        model = make_model(mem_len=0)
        ids, _ = run(model, [PROMPT], 4)
        text = [PROMPT[-1]]
        for _ in range(4):
            text.append(int(np.argmax(model(np.array([text[-1:]], "int32"))[0])))
        np.testing.assert_array_equal(ids[0], text[1:])

    def test_adaptive_softmax(self):
        model = make_model(seed=5, mem_len=16, cutoffs=(4, 7))
        ids, log_probs = run(model, [PROMPT], 4)
        text = np.concatenate([PROMPT, ids[0]])[np.newaxis]
        nll, _ = model.nll(text[:, :-1], text[:, 1:])
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(log_probs[0], -nll[0, 4:], rtol=0, atol=atol)


class SamplingTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.model = make_model(mem_len=16)

    def sample(self, seed=0, copies=1, length=40, prompts=(PROMPT,), **options):
        return run(self.model, prompts, length, Sampling(**options), copies, seed)[0]

    def test_one_candidate_is_greedy(self):
        greedy, _ = run(self.model, [PROMPT], 40)
        np.testing.assert_array_equal(self.sample(top_k=1), greedy)
        np.testing.assert_array_equal(self.sample(top_p=1e-6), greedy)
        self.assertFalse(np.array_equal(self.sample(), greedy))

    def test_seed_decides(self):
        np.testing.assert_array_equal(self.sample(seed=7), self.sample(seed=7))
        self.assertFalse(np.array_equal(self.sample(seed=7), self.sample(seed=8)))

    def test_sample_does_not_depend_on_their_number(self):
        two, five = self.sample(copies=2), self.sample(copies=5)
        np.testing.assert_array_equal(two, five[:2])
        self.assertLen({row.tobytes() for row in five}, 5)

    def test_length_of_calls_does_not_show(self):
        session = Session(make_decoder(self.model, Sampling()), 1, seed=3)
        session.read([PROMPT])
        pieces = [write(session, length)[0] for length in (1, 5, 33, 41)]
        np.testing.assert_array_equal(np.concatenate(pieces, axis=1), self.sample(3, length=80))

    def test_banned_id_never_comes(self):
        favourite = np.bincount(self.sample()[0]).argmax()
        self.assertNotIn(favourite, self.sample(banned_ids=(int(favourite),)))

    def test_first_ids_follow_the_distribution(self):
        count = 2000
        first = self.sample(copies=count, length=1)[:, 0]
        scores, _ = self.model(PROMPT[np.newaxis])
        expected = np.exp(log_softmax(scores[0, -1])) * count
        found = np.bincount(first, minlength=11)
        common = expected > 5  # the others count as one
        found = np.append(found[common], found[~common].sum())
        expected = np.append(expected[common], max(expected[~common].sum(), 1.0))
        chi_square = np.sum((found - expected) ** 2 / expected)
        self.assertLess(chi_square, 23.2)  # 1% lie above it at 10 degrees of freedom


class RowsTest(parameterized.TestCase):
    @parameterized.parameters(GREEDY, Sampling(temperature=1.5))
    def test_prompts_of_any_length_are_as_alone(self, sampling):
        model = make_model(mem_len=6)
        prompts = [PROMPT[:1], helpers.draw_ids(23), PROMPT, PROMPT[:0]]
        ids, log_probs = run(model, prompts, 12, sampling, segment_len=8)
        for row, prompt in enumerate(prompts):
            alone = run(model, [prompt], 12, sampling, segment_len=8)
            np.testing.assert_array_equal(ids[row], alone[0][0])
            atol = rounding.of_scores(model.config, 35)
            np.testing.assert_allclose(log_probs[row], alone[1][0], rtol=0, atol=atol)
        self.assertGreater(len({row.tobytes() for row in ids}), 2)

    def test_turns_equal_one_text(self):
        model = make_model(mem_len=64)
        session = Session(make_decoder(model, GREEDY), 1)
        session.read([PROMPT[:2]])
        first, _ = write(session, 3)
        session.read([PROMPT[2:]])
        second, _ = write(session, 6)
        whole = np.concatenate([PROMPT[:2], first[0], PROMPT[2:]])
        np.testing.assert_array_equal(second, run(model, [whole], 6)[0])

    def test_rows_stop_independently(self):
        model = make_model(mem_len=64)
        prompts = [PROMPT, helpers.draw_ids(4, seed=1)]
        free, _ = run(model, prompts, 12)
        stop = int(free[0, 3])
        session = Session(Decoder(KeyValueState(model), GREEDY, stop_ids=(stop,)), 2)
        session.read(prompts)
        ids, log_probs = write(session, 12)
        for row in range(2):
            ends = np.flatnonzero(free[row] == stop)
            end = ends[0] + 1 if len(ends) else 12
            np.testing.assert_array_equal(ids[row, :end], free[row, :end])
            self.assertTrue(np.all(ids[row, end:] == -1) and np.all(log_probs[row, end:] == 0))

    def test_stopped_session_writes_no_more(self):
        model = make_model(mem_len=64)
        session = Session(Decoder(KeyValueState(model), GREEDY, stop_ids=tuple(range(11))), 1)
        session.read([PROMPT])
        self.assertEqual(write(session, 40)[0].shape, (1, 1))
        self.assertEmpty(list(session.write(5)))

    def test_a_stopped_row_reads_on_from_its_stop(self):
        model = make_model(mem_len=64)
        prompts = [PROMPT, np.array([2, 2], "int32")]
        free, _ = run(model, prompts, 12)
        stop = int(free[0, 0])
        session = Session(Decoder(KeyValueState(model), GREEDY, stop_ids=(stop,)), 2)
        session.read(prompts)
        write(session, 6)
        session.read([PROMPT, PROMPT])
        again, _ = write(session, 1)
        whole = np.concatenate([PROMPT, [stop], PROMPT])
        self.assertEqual(again[0, 0], run(model, [whole], 1)[0][0, 0])

    def test_nothing_read_starts_from_the_start_id(self):
        model = make_model(mem_len=64)
        session = Session(make_decoder(model, GREEDY), 1, start_id=4)
        np.testing.assert_array_equal(write(session, 5)[0], run(model, [PROMPT[2:3]], 5)[0])

    def test_refusals(self):
        state = KeyValueState(make_model())
        decoder = Decoder(state, GREEDY)
        wrong = r"must lie in 0\.\.10 \(vocabulary of 11\), got 11"
        with self.assertRaisesRegex(ValueError, f"prompt ids {wrong}"):
            Session(decoder, 1).read([np.array([3, 11])])
        with self.assertRaisesRegex(ValueError, f"stop_ids {wrong}"):
            Decoder(state, GREEDY, stop_ids=(11,))
        with self.assertRaisesRegex(ValueError, f"banned_ids {wrong}"):
            Decoder(state, Sampling(banned_ids=(11,)))
        with self.assertRaisesRegex(ValueError, "segment_len must be at least 1, got 0"):
            Decoder(state, GREEDY, segment_len=0)
        with self.assertRaisesRegex(ValueError, r"seed must lie in 0\.\.2147483647, got -1"):
            Session(decoder, 1, seed=-1)


class SegmentsTest(absltest.TestCase):
    def test_cuts_all_rows_at_the_same_places(self):
        rows = [np.arange(1, 7), np.arange(1, 1), np.arange(1, 4)]
        (first, lengths), (second, rest) = segments.cut(rows, 4)
        np.testing.assert_array_equal(first, [[1, 2, 3, 4], [0, 0, 0, 0], [1, 2, 3, 0]])
        np.testing.assert_array_equal(lengths, [4, 0, 3])
        np.testing.assert_array_equal(second, [[5, 6], [0, 0], [0, 0]])
        np.testing.assert_array_equal(rest, [2, 0, 0])

    def test_meets_few_shapes(self):
        sizes = {next(segments.cut([np.arange(n)], 100))[0].shape[1] for n in range(1, 300)}
        self.assertEqual(sizes, {1, 2, 4, 8, 16, 32, 64, 100})

    def test_nothing_to_read_is_no_segment(self):
        self.assertEmpty(list(segments.cut([np.arange(0)], 4)))
        self.assertEmpty(list(segments.cut([], 4)))


if __name__ == "__main__":
    absltest.main()
