"""Tests of txl_tf.inference.beam_search."""

import functools
import itertools

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.inference.beam_search import BeamSearch
from txl_tf.inference.decode_state import KeyValueState
from txl_tf.models.transformer_xl import TransformerXL

PROMPT = np.array([2, 0, 3, 1], "int32")
V = 5


@functools.cache
def make_model(**changes):
    config = helpers.tiny_config(vocab_size=V, mem_len=16, **changes)
    return helpers.loud(TransformerXL(config), seed=2)


def search(model, length, num_beams, prompts=(PROMPT,), length_penalty=0.0, **options):
    state = KeyValueState(model)
    rows = np.array(prompts)
    past = state.advance(rows[:, :-1], state.initial(len(rows)))
    return BeamSearch(state, **options).search(
        rows[:, -1], past, length, num_beams=num_beams, length_penalty=length_penalty
    )


def log_probs(model, prompt, hypotheses):
    """The log-probability of each of them after a prompt, in one pass over prompt and all."""
    longest = max(map(len, hypotheses))
    rows = [[*prompt, *ids, *[0] * (longest - len(ids))] for ids in hypotheses]
    text = np.array(rows, "int32")
    nll, _ = model.nll(text[:, :-1], text[:, 1:])
    places = zip(np.asarray(nll)[:, len(prompt) - 1 :], hypotheses, strict=True)
    return {ids: -float(row[: len(ids)].sum()) for row, ids in places}


def found(beams):
    """Beams as a dict like that of `log_probs`, in their order."""
    return {tuple(beam.ids.tolist()): beam.log_prob for beam in beams}


def all_hypotheses(length, stop=None):
    """Every sequence of `length` ids, cut after its first `stop`."""
    found = set()
    for ids in itertools.product(range(V), repeat=length):
        end = ids.index(stop) + 1 if stop in ids else length
        found.add(ids[:end])
    return found


class BeamSearchTest(parameterized.TestCase):
    def assert_close(self, beams, expected):
        for ids, log_prob in found(beams).items():
            atol = len(ids) * rounding.of_scores(make_model().config)
            self.assertAlmostEqual(log_prob, expected[ids], delta=atol)

    @parameterized.parameters((None, 0.0), (1, 0.0), (1, 1.0), (3, 2.0))
    def test_wide_search_is_exhaustive(self, stop, length_penalty):
        model = make_model()
        stops = () if stop is None else (stop,)
        (beams,) = search(model, 3, 125, stop_ids=stops, length_penalty=length_penalty)
        expected = log_probs(model, PROMPT, sorted(all_hypotheses(3, stop)))
        best = sorted(expected, key=lambda ids: -expected[ids] / len(ids) ** length_penalty)
        self.assertLen(beams, len(best))
        self.assertEqual(list(found(beams))[:10], best[:10])
        self.assert_close(beams, expected)

    @parameterized.parameters(1, 2, 4)
    def test_equals_a_plain_search_without_memory(self, width):
        model, expected = make_model(), {(): 0.0}
        for _ in range(6):
            longer = [(*ids, i) for ids in expected for i in range(V)]
            scores = log_probs(model, PROMPT, longer)
            expected = {
                ids: scores[ids] for ids in sorted(longer, key=lambda i: -scores[i])[:width]
            }
        (beams,) = search(model, 6, width)
        self.assertEqual(list(found(beams)), list(expected))
        self.assert_close(beams, expected)  # memory followed its beam, or it would be off

    def test_memory_of_another_beam_shows(self):
        class Stubborn(KeyValueState):
            def reorder(self, state, rows):  # widens once, then leaves every memory in its place
                same = state.length.shape == rows.shape
                return state if same else super().reorder(state, rows)

        state = Stubborn(make_model())
        past = state.advance(PROMPT[np.newaxis, :-1], state.initial(1))
        (beams,) = BeamSearch(state).search(PROMPT[-1:], past, 6, num_beams=4)
        expected = log_probs(make_model(), PROMPT, list(found(beams)))
        self.assertGreater(max(abs(found(beams)[ids] - expected[ids]) for ids in expected), 1e-3)

    def test_rows_are_searched_apart(self):
        prompts = [PROMPT, PROMPT[::-1]]
        both = search(make_model(), 5, 3, prompts)
        for row, prompt in zip(both, prompts, strict=True):
            (alone,) = search(make_model(), 5, 3, [prompt])
            self.assertEqual([b.ids.tolist() for b in row], [b.ids.tolist() for b in alone])

    def test_one_beam_is_greedy(self):
        model, text = make_model(), PROMPT
        ((best,),) = search(model, 5, 1)
        for _ in range(5):
            scores, _ = model(text[np.newaxis])
            text = np.append(text, np.argmax(scores[0, -1])).astype("int32")
        np.testing.assert_array_equal(best.ids, text[4:])

    def test_banned_ids_never_come(self):
        (beams,) = search(make_model(), 4, 8, banned_ids=(0, 3))
        self.assertTrue(beams)
        self.assertNotIn(0, np.concatenate([b.ids for b in beams]))
        self.assertNotIn(3, np.concatenate([b.ids for b in beams]))

    def test_no_more_beams_than_hypotheses(self):
        (beams,) = search(make_model(), 1, 9)
        self.assertLen(beams, V)
        self.assertLen({b.ids.tobytes() for b in beams}, V)

    def test_is_compiled_once_for_all_lengths(self):
        state, traced = KeyValueState(make_model()), []
        searcher = BeamSearch(state, stop_ids=(1,))
        extend = searcher._extend
        searcher._extend = lambda *args: traced.append(1) or extend(*args)
        past = state.advance(PROMPT[np.newaxis, :-1], state.initial(1))
        for length in (40, 3, 1):
            for penalty in (0.0, 1.5):
                (beams,) = searcher.search(
                    PROMPT[-1:], past, length, num_beams=2, length_penalty=penalty
                )
                self.assertLen(beams, 2)
                self.assertLessEqual(max(len(b.ids) for b in beams), length)
        self.assertLen(traced, 1)

    @parameterized.parameters(
        ({"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ({"length_penalty": -1.0}, "length_penalty must be at least 0 and at most 10, got -1.0"),
        (
            {"length_penalty": float("nan")},
            "length_penalty must be at least 0 and at most 10, got n",
        ),
        ({"stop_ids": (5,)}, r"stop_ids must lie in 0\.\.4 \(vocabulary of 5\), got 5"),
        ({"banned_ids": (-1,)}, r"banned_ids must lie in 0\.\.4 \(vocabulary of 5\), got -1"),
    )
    def test_refusals(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            search(make_model(), 2, **({"num_beams": 2} | options))


if __name__ == "__main__":
    absltest.main()
