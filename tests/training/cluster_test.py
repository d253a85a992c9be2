"""Tests of TF_CONFIG: the roles of workers, and rejected clusters."""

import json
import os

from absl.testing import absltest, parameterized

from txl_tf.training import cluster

WORKERS = {"worker": ["a:1", "b:1"]}


class ClusterTest(parameterized.TestCase):
    def read(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        with absltest.mock.patch.dict(os.environ, TF_CONFIG=text):
            return cluster.from_environment()

    @parameterized.parameters(
        (WORKERS, "worker", 1, ("a:1", "b:1"), 1),
        (WORKERS | {"chief": ["c:1"]}, "chief", 0, ("c:1", "a:1", "b:1"), 0),
        (WORKERS | {"chief": ["c:1"]}, "worker", 0, ("c:1", "a:1", "b:1"), 1),
        (WORKERS | {"chief": ["c:1"]}, "worker", "1", ("c:1", "a:1", "b:1"), 2),
        (WORKERS | {"evaluator": ["e:1"]}, "worker", 0, ("a:1", "b:1"), 0),
    )
    def test_the_chief_is_the_first(self, jobs, kind, index, addresses, expected):
        found = self.read({"cluster": jobs, "task": {"type": kind, "index": index}})
        self.assertEqual(found, cluster.Cluster(addresses, expected))

    @parameterized.parameters("", "{}", '{"environment": "cloud"}', '{"cluster": {}}')
    def test_none(self, text):
        self.assertIsNone(self.read(text))

    @parameterized.parameters(
        ("{", "TF_CONFIG must be a JSON object with a cluster, got '{'; its form is {.cluster"),
        ({"cluster": ["a:1"]}, "TF_CONFIG must be a JSON object with a cluster, got"),
        ({"cluster": {"worker": "a:1"}}, "have a list of addresses for worker, got 'a:1'"),
        ({"cluster": {"worker": [1]}}, r"have a list of addresses for worker, got \[1\]"),
        ({"cluster": {"chief": ["a:1", "b:1"]}}, "must have at most one chief, got .*'b:1'"),
        ({"cluster": WORKERS}, "TF_CONFIG must have a task of type worker, got None"),
        (
            {"cluster": WORKERS, "task": {"type": "chief", "index": 0}},
            "of type worker, got 'chief'",
        ),
        (
            {"cluster": WORKERS, "task": {"type": "worker"}},
            "index below the 2 of worker, got 'None'",
        ),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "2 of worker, got '2'"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": -1}}, "2 of worker, got '-1'"),
    )
    def test_refused_by_name(self, value, message):
        with self.assertRaisesRegex(ValueError, message):
            self.read(value)


if __name__ == "__main__":
    absltest.main()
