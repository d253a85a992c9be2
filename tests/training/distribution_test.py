"""Any number of replicas equals one, and each row keeps its memory."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import replicas
import rounding
from txl_tf.training.distribution import Distribution, make_distribution

_FOLDER = pathlib.Path(tempfile.mkdtemp())
absltest.TestCase.addClassCleanup(shutil.rmtree, _FOLDER)


def start(replicas, path, *arguments, tf_config=None):
    """A process of replicas.py."""
    environment = os.environ | {"PYTHONPATH": f"{helpers.ROOT}{os.pathsep}{helpers.ROOT / 'tests'}"}
    environment |= {"CUDA_VISIBLE_DEVICES": ""}
    if tf_config:
        environment["TF_CONFIG"] = json.dumps(tf_config)
    command = [sys.executable, helpers.ROOT / "tests" / "replicas.py", str(replicas), path]
    command += map(str, arguments)
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(*processes):
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        if process.returncode:
            raise AssertionError(output)


@functools.cache
def steps_of(replicas, at_once=1, kind="causal"):
    """What twenty steps on so many replicas give."""
    path = _FOLDER / f"{replicas}-{at_once}-{kind}.npz"
    finish(start(replicas, path, at_once, kind))
    return dict(np.load(path))


def largest(found, expected):
    return {name: float(np.abs(found[name] - expected[name]).max()) for name in expected}


# Of losses, norms, memory and, as steps are smooth, of weights.
ATOL = rounding.of_gradients(helpers.tiny_config(**replicas.SIZES), replicas.ROWS * replicas.TOKENS)


@pytest.mark.slow
class ReplicasTest(parameterized.TestCase):
    def assert_same(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for name, difference in largest(found, expected).items():
            self.assertLess(difference, ATOL, name)

    @parameterized.parameters((2, 1), (4, 1), (1, 5), (2, 5))
    def test_give_the_numbers_of_one(self, replicas, at_once):  # AC21
        expected = steps_of(1)
        self.assert_same(steps_of(replicas, at_once), expected)
        rows = expected["memory_0"]
        for row in range(1, len(rows)):  # rows differ, so a mix-up would show
            self.assertGreater(np.abs(rows[row] - rows[0]).max(), 0.1)
        self.assertGreater(np.ptp(expected["metrics"][:, 0]), 0.1)

    def test_permutations_are_those_of_one(self):
        self.assert_same(steps_of(2, 1, "permutation"), steps_of(1, 1, "permutation"))

    @parameterized.parameters((2, 1), (2, 5))
    def test_centroids_are_those_of_one(self, replicas, at_once):
        expected = steps_of(1, kind="routing")
        self.assertIn((1, 3, 4), [x.shape for x in expected.values()])
        self.assert_same(steps_of(replicas, at_once, "routing"), expected)

    @parameterized.parameters(1, 5)
    def test_workers_give_the_numbers_of_one(self, at_once):
        path = _FOLDER / f"workers-{at_once}.npz"
        finish(*(start(1, path, at_once, tf_config=tf_config) for tf_config in helpers.cluster(2)))
        self.assert_same(dict(np.load(path)), steps_of(1))


@pytest.mark.slow
class RunTest(absltest.TestCase):
    """Whole runs, with the reader, validation and checkpoints."""

    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.data = helpers.write_data(self.folder / "data", train=300, valid=60)

    def train(self, name, steps, replicas=1, workers=1):
        path, model_dir = self.folder / "told.npz", self.folder / name
        configs = helpers.cluster(workers) if workers > 1 else [None]
        finish(*(start(replicas, path, self.data, model_dir, steps, tf_config=c) for c in configs))
        return np.load(path)["metrics"]

    def check(self, found, expected):
        np.testing.assert_allclose(found, expected, rtol=0, atol=ATOL)

    def test_resumed_on_other_numbers_of_replicas(self):
        *expected, valid = self.train("alone", 12)  # 9 steps an epoch
        self.assertGreater(np.ptp(expected), 0.1)
        self.check(self.train("moved", 4, replicas=2)[:-1], expected[:4])
        self.check(self.train("moved", 8, replicas=1)[:-1], expected[4:8])
        self.check(self.train("moved", 12, replicas=4), [*expected[8:], valid])

    def test_workers_share_a_run(self):
        *expected, valid = self.train("alone", 8)
        self.check(self.train("shared", 4)[:-1], expected[:4])
        self.check(self.train("shared", 8, workers=2), [*expected[4:], valid])
        names = sorted(p.name for p in (self.folder / "shared").iterdir())
        self.assertEqual(names, sorted(p.name for p in (self.folder / "alone").iterdir()))


class DistributionTest(parameterized.TestCase):
    def test_one_replica_hands_on_what_it_gets(self):
        one = Distribution(tf.distribute.get_strategy())
        value = tf.range(6)
        self.assertIs(one.deal_all(value), value)
        self.assertIs(one.gather(value), value)
        self.assertEqual(one.rows(6), (0, 6))
        self.assertTrue(one.any(True))

    def test_rows_that_cannot_be_shared(self):
        one = Distribution(tf.distribute.get_strategy())
        with self.assertRaisesRegex(
            ValueError, "batch_size must be a multiple of 1 replicas x 4 accumulate_steps, got 6"
        ):
            one.check_rows(6, 4)


class DevicesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("{", "TF_CONFIG must be a JSON object with a cluster, got '{'"),
        ("[]", "TF_CONFIG must be a JSON object with a cluster, got"),
        ("", "TF_CONFIG must name the workers for strategy multi_worker, as .* got none"),
    )
    def test_clusters_that_are_none(self, value, message):
        patched = absltest.mock.patch.dict(os.environ, TF_CONFIG=value)
        with patched, self.assertRaisesRegex(ValueError, message):
            make_distribution("multi_worker")

    def test_a_chief_comes_before_the_workers(self):
        """TensorFlow numbers tasks anew for each type: worker 0 is not the chief."""
        strategy = absltest.mock.Mock(num_replicas_in_sync=3)
        strategy.extended.worker_devices = ["/device:CPU:0"]
        cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
        tasks = ("chief", 0), ("worker", 0), ("worker", 1)
        found = []
        for kind, index in tasks:
            value = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
            strategy.cluster_resolver.task_id = index
            with (
                absltest.mock.patch.dict(os.environ, TF_CONFIG=value),
                absltest.mock.patch.object(
                    tf.distribute, "MultiWorkerMirroredStrategy", return_value=strategy
                ),
            ):
                made = make_distribution("auto")
            found.append((made.num_workers, made.is_chief, made.rows(6)))
        self.assertEqual(found, [(3, True, (0, 2)), (3, False, (2, 4)), (3, False, (4, 6))])

    def test_auto_is_one_device_where_there_is_one(self):
        self.assertEqual(make_distribution("auto").num_replicas, 1)

    def test_a_tpu_that_is_not_there(self):
        with self.assertRaisesRegex(ValueError, "tpu must be reachable, got 'local'"):
            make_distribution("tpu", "local")
        with self.assertRaisesRegex(ValueError, "tpu must be left out with strategy one_device"):
            make_distribution("one_device", "local")


if __name__ == "__main__":
    absltest.main()
