"""Tests of preemption notices, with a fake metadata server."""

import os
import socket
import threading
import time

from absl.testing import absltest, parameterized

from gce_server import MetadataServer
from txl_tf.training import interruption
from txl_tf.training.interruption import StopRequest


def wait_until(fact):
    for _ in range(6000):  # a busy machine may be slow, and one that is not is done at once
        if fact():
            return
        time.sleep(0.01)
    raise AssertionError("waited for 60 seconds")


class GceTest(parameterized.TestCase):
    """With a server of its own, and a proxy that nobody may use."""

    def setUp(self):
        super().setUp()
        self.server = self.enter_context(MetadataServer())
        self.set_host(self.server.host)

    def set_host(self, host):
        environment = dict(GCE_METADATA_HOST=host, http_proxy="http://127.0.0.1:9", no_proxy="")
        self.enter_context(absltest.mock.patch.dict(os.environ, environment))

    def patch(self, name, value):
        self.enter_context(absltest.mock.patch.object(interruption, name, value))


class AnswerTest(GceTest):
    @parameterized.parameters(
        ("FALSE", "NONE", None),
        ("FALSE", "MIGRATE_ON_HOST_MAINTENANCE", None),
        (
            "FALSE",
            "TERMINATE_ON_HOST_MAINTENANCE",
            "maintenance-event=TERMINATE_ON_HOST_MAINTENANCE",
        ),
        ("FALSE\n", "NONE\n", None),
        ("TRUE", "NONE", "preempted=TRUE"),
        ("TRUE", 503, "preempted=TRUE"),
    )
    def test_reports_whether_the_machine_is_preempted(self, preempted, event, expected):
        self.server.answers |= {"preempted": preempted, "maintenance-event": event}
        self.assertEqual(interruption.NOTICES["gce"](), expected)
        interruption.check("gce")  # a notice is no reason to refuse


class RefusalTest(GceTest):
    def check_refused(self, reason):
        message = f"preemption_notice must be none on this machine, got 'gce': {reason}"
        with self.assertRaisesRegex(ValueError, message):
            interruption.check("gce")

    @parameterized.parameters("preempted", "maintenance-event")
    def test_errors(self, name):
        self.server.answers[name] = 503
        self.check_refused(f"{self.server.host}: HTTP Error 503: Service Unavailable$")

    def test_a_request_without_the_header(self):
        self.patch("_GCE_HEADERS", {})
        self.check_refused(f"{self.server.host}: HTTP Error 403: Forbidden$")

    def test_another_kind_of_server(self):
        self.server.answers["preempted"] = "<html>\n" + "Log in. " * 100
        self.check_refused(
            rf"{self.server.host}: preempted must be TRUE or FALSE, got '<html>\\nLog"
        )

    def test_an_unreachable_metadata_server_is_reported(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            host = f"127.0.0.1:{unused.getsockname()[1]}"
            self.set_host(host)
            self.check_refused(rf"{host}: \[Errno \d+\] Connection refused$")

    def test_no_answer(self):
        self.patch("_TIMEOUT_SECONDS", 0.1)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            host = f"127.0.0.1:{silent.getsockname()[1]}"
            self.set_host(host)
            self.check_refused(f"{host}: timed out$")

    def test_a_host_that_is_none(self):
        self.set_host("127.0.0.1:http")
        self.check_refused("127.0.0.1:http: nonnumeric port: 'http'$")

    def test_a_kind_that_is_none(self):
        with self.assertRaisesRegex(ValueError, "must be one of none, gce, got 'aws'"):
            interruption.check("aws")


class NotedTest(GceTest):
    def setUp(self):
        super().setUp()
        self.patch("_POLL_SECONDS", 0.01)

    def test_a_notice_that_comes_later(self):
        with (
            self.assertLogs(level="WARNING") as logs,
            StopRequest() as stop,
            interruption.noted("gce", stop),
        ):
            wait_until(lambda: self.server.asked > 6)
            self.assertIsNone(stop.name)
            self.server.answers["maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
            wait_until(lambda: stop.name)
        self.assertEqual(stop.name, "preemption")
        self.assertEqual(
            [record.getMessage() for record in logs.records],
            [
                "preemption notice: maintenance-event=TERMINATE_ON_HOST_MAINTENANCE",
                "preemption: saving after this step, then stopping",
            ],
        )

    def test_failures_are_logged_once_and_survived(self):
        with (
            self.assertLogs(level="WARNING") as logs,
            StopRequest() as stop,
            interruption.noted("gce", stop),
        ):
            wait_until(lambda: self.server.asked > 2)
            self.server.answers["preempted"] = 503
            wait_until(lambda: self.server.asked > 20)
            self.assertIsNone(stop.name)
            self.server.answers["preempted"] = "TRUE"
            wait_until(lambda: stop.name)
        self.assertLen(logs.records, 3)
        self.assertEqual(
            logs.records[0].getMessage(),
            "cannot poll for preemption notices, retrying: "
            f"{self.server.host}: HTTP Error 503: Service Unavailable",
        )

    def test_no_requests_after_the_end(self):
        with StopRequest() as stop, interruption.noted("gce", stop):
            wait_until(lambda: self.server.asked > 2)
            self.assertIn(interruption.STOP_NAME, [t.name for t in threading.enumerate()])
        self.assertNotIn(interruption.STOP_NAME, [t.name for t in threading.enumerate()])
        asked = self.server.asked
        time.sleep(0.05)
        self.assertEqual(self.server.asked, asked)

    def test_the_end_waits_for_no_poll(self):
        self.patch("_POLL_SECONDS", 1000.0)
        with StopRequest() as stop, interruption.noted("gce", stop):
            wait_until(lambda: self.server.asked == 2)

    def test_none_makes_no_request(self):
        interruption.check("none")
        with StopRequest() as stop, interruption.noted("none", stop):
            self.assertNotIn(interruption.STOP_NAME, [t.name for t in threading.enumerate()])
        self.assertEqual(self.server.asked, 0)


if __name__ == "__main__":
    absltest.main()
