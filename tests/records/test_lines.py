"""Lines: who does not know the secret is not heard, and a line that breaks leaves its parts to a job."""

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import types
from multiprocessing.connection import Client

import cloudpickle
import pytest

from discreet.records.clusters import lines
from discreet.records.clusters.lines import Lines, answer_calls, me


@pytest.fixture
def driver(monkeypatch):
    module = types.ModuleType("pyspark")
    module.cloudpickle = cloudpickle
    monkeypatch.setitem(sys.modules, "pyspark", module)
    made = Lines.of({"spark.driver.host": "127.0.0.1"})
    yield made
    made.close()


def answer(message, parts):
    """What a process says: its name for every part."""
    if message == "fail":
        raise ValueError("somebody's row is 7")
    if message == "slow":
        time.sleep(0.5)
    if message == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return [(message, part) for part in parts]


def holder(call, pipe):
    for _ in range(2):  # the second call of the same process is none
        answer_calls(call, answer)
    pipe.send(me())
    pipe.recv()


@pytest.fixture
def processes(driver):
    context = multiprocessing.get_context("spawn")
    started = []
    for _ in range(2):
        here, there = context.Pipe()
        process = context.Process(target=holder, args=(driver.call, there), daemon=True)
        process.start()
        started.append((process, here))
    names = [here.recv() for _, here in started]
    waited(lambda: set(names) == set(driver._open))
    yield names
    for process, _ in started:
        process.kill()
        process.join()


def waited(done):
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_processes_answer_for_their_parts_until_one_is_gone(driver, processes):
    asked = {processes[0]: [1, 2], processes[1]: [3]}
    for message in ("a", "b"):
        assert sorted(driver.asked(asked, message)) == [(message, 1), (message, 2), (message, 3)]
    assert driver.asked({processes[0]: [1], b"nobody": [2]}, "a") == []
    meanwhile = []
    assert len(driver.asked(asked, "slow", lambda: meanwhile.append(1), 0.05)) == 3
    assert meanwhile
    assert driver.asked(asked, "fail") == []
    assert driver.asked({processes[0]: [1]}, "after") == [("after", 1)]
    assert driver.asked(asked, "die") == []
    assert driver._open == {}
    assert driver.asked(asked, "a") == []


def test_who_does_not_know_the_secret_is_not_heard(driver):
    host, port, secret = driver.call
    with pytest.raises((multiprocessing.AuthenticationError, OSError, EOFError)):
        Client((host, port), authkey=b"guessed").send_bytes(b"somebody")
    socket.create_connection((host, port)).close()
    line = Client((host, port), authkey=secret)  # nobody before kept the driver from listening
    line.send_bytes(b"a process")
    waited(lambda: b"a process" in driver._open)
    assert set(driver._open) == {b"a process"}


@pytest.mark.parametrize("word", ["true", "True", " TRUE "])  # str(True), and what Spark takes
@pytest.mark.parametrize("name", lines._SECURED)
def test_connections_that_spark_secures_are_left_to_spark(name, word):
    assert Lines.of({"spark.driver.host": "127.0.0.1", name: word}) is None
    assert Lines.of({}) is None


def test_an_answer_to_an_earlier_question_does_not_count(driver, processes):
    """Somebody stopped the driver between a question and its answers: the sum must not be that of other weights."""
    first, second = processes
    driver._open[first].send_bytes(pickle.dumps((driver._number, cloudpickle.dumps("before"), [1, 2])))
    assert driver.asked({first: [1], second: [2]}, "now") == [("now", 2)]
    assert set(driver._open) == {second}  # parts of the first are asked by a job
    assert driver.asked({second: [3]}, "then") == [("then", 3)]


def test_a_driver_that_does_not_answer_holds_up_no_task():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        called = threading.Thread(
            target=answer_calls, args=(lines.Call(*silent.getsockname(), b"secret"), answer), daemon=True
        )
        called.start()
        called.join(60)
        assert not called.is_alive()


def test_who_cannot_reach_the_driver_goes_on(driver):
    answer_calls(driver.call._replace(port=1), answer)
    assert driver._open == {}
