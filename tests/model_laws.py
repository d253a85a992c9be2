"""Laws of a causal model with memory, for any kind of position, attention and feed-forward.

A test class inherits them as a mixin, before `parameterized.TestCase`, and names its kinds.
"""

import keras
import numpy as np
import tensorflow as tf

import helpers
import rounding
from txl_tf.inference.decode_state import KeyValueState
from txl_tf.models.transformer_xl import TransformerXL


def _compiled(function):
    """Returns a compiled function, cheaper than ten eager runs."""
    return tf.function(function, autograph=False)


class Laws:
    """Mixin of laws; each test checks every kind.

    Attributes:
      KINDS: names, of which `make_model(kind, **changes)` makes models without dropout whose
        memory holds what a token sees.
      REMEMBERING: those that have a memory.
      LENGTH: tokens of a text; a multiple of 4.
    """

    KINDS: tuple[str, ...]
    REMEMBERING: tuple[str, ...]
    LENGTH = 12

    def each(self, kinds=None):
        """Yields (model, ids [2, LENGTH]) of each kind, in a subtest of its name."""
        for kind in self.KINDS if kinds is None else kinds:
            with self.subTest(kind):
                yield self.make_model(kind), helpers.draw_ids(2, self.LENGTH)

    def depends_on_segment(self, model):
        """Whether the laws of reading in one or another way do not hold for a model."""
        return model.config.depends_on_segment

    def check_reading(self, model, found, expected, atol):
        """Checks a law of reading; where a model is exempt from it, that it does not hold."""
        error = np.abs(np.asarray(found) - expected).max()
        if self.depends_on_segment(model):
            self.assertGreater(error, 1e-3)
        else:
            self.assertLessEqual(error, atol)

    def test_the_future_does_not_leak(self):
        for model, ids in self.each():
            scores = _compiled(lambda ids, model=model: model(ids)[0])
            before, earlier = np.asarray(scores(ids)), []
            for place in range(self.LENGTH):
                changed = ids.copy()
                changed[:, place] = (changed[:, place] + 1) % 11
                after = np.asarray(scores(changed))
                self.assertGreater(np.abs(after[:, place] - before[:, place]).max(), 1e-3)
                is_earlier = np.arange(self.LENGTH)[:, np.newaxis] < place
                earlier.append(np.where(is_earlier, after, before))
            self.check_reading(model, earlier, before, atol=0.0)

    def test_padding_is_not_seen(self):
        for model, ids in self.each():
            real = self.LENGTH - 2
            padded, _ = model(ids, lengths=np.array([self.LENGTH, real], "int32"))
            alone, _ = model(ids[1:, :real])
            atol = rounding.of_scores(model.config, self.LENGTH)
            np.testing.assert_allclose(padded[1:, :real], alone, rtol=0, atol=atol)

    def test_documents_are_on_their_own(self):
        for model, ids in self.each():
            starts = np.zeros(ids.shape, bool)
            starts[:, 5] = True
            whole, _ = model(ids, document_start=starts)
            alone, _ = model(ids[:, 5:])
            atol = rounding.of_scores(model.config, self.LENGTH)
            self.check_reading(model, whole[:, 5:], alone, atol)

    def test_segments_equal_one_pass(self):
        for model, ids in self.each(self.REMEMBERING):
            whole, _ = model(ids)
            mems, parts = None, []
            for start in range(0, self.LENGTH, 4):
                scores, mems = model(ids[:, start : start + 4], mems)
                parts.append(scores)
            atol = rounding.of_scores(model.config, self.LENGTH)
            self.check_reading(model, tf.concat(parts, axis=1), whole, atol)

    def test_keys_and_values_give_the_same(self):
        for model, ids in self.each():
            ids = ids[:, :4]
            state = KeyValueState(model, segment_len=2)
            carried, mems = state.initial(2), None
            for lengths in (np.array([4, 3], "int32"), np.array([2, 4], "int32")):
                found, carried = state.nll(ids, ids[:, ::-1], carried, lengths)
                expected, mems = model.nll(ids, ids[:, ::-1], mems, lengths=lengths)
                atol = rounding.of_scores(model.config, self.LENGTH)
                np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    def test_token_by_token_gives_the_same(self):
        for model, ids in self.each(self.REMEMBERING):
            whole, _ = model(ids)
            state = KeyValueState(model, segment_len=4)
            looped, step = state.to_ring_buffer(state.initial(2)), _compiled(state.next_scores)
            found = []
            for place in range(self.LENGTH):  # round the ring, and round again
                scores, looped = step(tf.constant(ids[:, place]), looped)
                found.append(scores)
            atol = rounding.of_scores(model.config, self.LENGTH)
            self.check_reading(model, tf.stack(found, axis=1), whole, atol)

    def test_saved_and_loaded(self):
        for model, ids in self.each():
            path = helpers.temp_dir(self) / "model.keras"
            model.save(path)
            again = keras.models.load_model(path)
            self.assertEqual(again.config, model.config)
            np.testing.assert_array_equal(again(ids)[0], model(ids)[0])

    def test_compiled_equals_eager(self):
        for model, ids in self.each():
            compiled = tf.function(lambda ids, model=model: model(ids)[0], jit_compile=True)
            expected = model(ids)[0]
            atol = rounding.of_scores(model.config, self.LENGTH)
            np.testing.assert_allclose(compiled(ids), expected, rtol=0, atol=atol)

    def test_bfloat16(self):
        for exact, ids in self.each():
            model = TransformerXL(exact.config, dtype="mixed_bfloat16")
            for weight, value in zip(model.variables, exact.variables, strict=True):
                weight.assign(value)
            error = np.abs(model(ids)[0] - exact(ids)[0]).mean()
            self.assertLess(error, rounding.typical_of_scores(model.config, self.LENGTH))

    def test_every_weight_learns(self):
        for kind in self.KINDS:
            with self.subTest(kind):
                model, ids = self.make_model(kind, dropout=0.1), helpers.draw_ids(2, self.LENGTH)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(model.nll(ids, ids[:, ::-1], training=True)[0])
                weights = model.trainable_variables
                gradients = tape.gradient(loss, [weight.value for weight in weights])
                for weight, gradient in zip(weights, gradients, strict=True):
                    self.assertIsNotNone(gradient, weight.path)
                    self.assertGreater(np.abs(tf.convert_to_tensor(gradient)).max(), 0, weight.path)
