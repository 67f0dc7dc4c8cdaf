"""Fits on a Spark cluster of two executors, each a JVM of its own, that die or are slow on purpose.

``python -m tests.records.spark_cluster CASE FOLDER`` prints what came of a case as JSON; FOLDER has a ledger.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyspark
from pyspark import TaskContext
from pyspark.sql import SparkSession

from discreet import PrivateLogisticRegression, insecure_noise, on_progress
from discreet.records.bounds import Bounds
from discreet.records.clusters import spark
from discreet.records.clusters.base import WorkersLost
from discreet.solvers import NoisyGradientDescent

N, PARTS, STEPS = 2000, 4, 6
COLUMNS = ["sin(id) AS a", "cast(cos(3 * id) AS float) AS b", "cast(sin(id) + cos(7 * id) > 0 AS int) AS y"]


HOME = Path(pyspark.__file__).parent


def started(master="local-cluster[2,1,1024]", **settings):
    """A session on two executors of one core, both of which are there before anything runs."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(HOME)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    } | settings
    return SparkSession.builder.master(master).config(map=settings).getOrCreate()


@contextlib.contextmanager
def two_hosts(folder):
    """The address of a master whose two workers have different hosts: Spark runs a task twice on two hosts only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, run = f"spark://127.0.0.1:{port}", [str(HOME / "bin" / "spark-class")]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    commands = [[*run, *master, "--webui-port", "0"]] + [
        [*run, *worker, "--host", host, "--work-dir", str(folder / host), address]
        for host in ("127.0.0.2", "127.0.0.3")
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        yield address
    finally:
        for process in running:
            process.terminate()


def executors():
    """The JVMs of the executors, which are children of this process's JVM."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process)
    return found


def kill_executors():
    """Kill the JVMs that have Python processes, and these, and say how many JVMs."""
    count = 0
    for executor in executors():
        with contextlib.suppress(psutil.NoSuchProcess):
            started = executor.children(recursive=True)
            count += bool(started)
            for process in [*started, executor] if started else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
    return count


def fitted(frame, ledger=None):
    """What a fit releases, with the same noise each time that it is drawn once."""
    model = PrivateLogisticRegression(
        classes=[0, 1], delta=1e-6, solver=NoisyGradientDescent(n_iterations=STEPS), ledger=ledger
    )
    with insecure_noise(5):
        model.fit(frame, target="y")
    return [*map(float, model.coef_.ravel()), float(np.ravel(model.intercept_)[0])]


def ended(work):
    """How a fit ended that must not end well."""
    try:
        return {"released": work()}
    except WorkersLost as lost:
        return {"message": str(lost), "cause": repr(lost.__cause__), "hidden": lost.__suppress_context__}


def killed(folder):
    """The executors are killed in the middle of a fit, after its charge."""
    session, died = started(), []
    frame = session.range(0, N, 1, PARTS).selectExpr(*COLUMNS)
    undisturbed = fitted(frame)

    def kill_once(report):
        if report.step == STEPS // 2 and not died:
            died.append(kill_executors())

    with on_progress(kill_once):
        found = fitted(frame, folder / "budget")
    return {"undisturbed": undisturbed, "found": found, "killed": sum(died)}


def killed_again(folder):
    """All executors are killed in the middle of a fit, and so are those that are given their tasks."""
    session, died, over = started(**{"spark.task.maxFailures": "2"}), [], threading.Event()
    frame = session.range(0, N, 1, PARTS).selectExpr(*COLUMNS)

    def kill_on():
        while not over.is_set():
            died.append(kill_executors())
            time.sleep(0.2)

    killer = threading.Thread(target=kill_on)

    def begin(report):
        if report.step == STEPS // 2 and not died:
            died.append(kill_executors())
            killer.start()

    with on_progress(begin):
        found = ended(lambda: fitted(frame, folder / "budget"))
    over.set()
    killer.join()
    return found | {"killed": sum(died)}


def slow(folder, seconds=300.0):
    """The first attempt at one partition is slow, in opening rows and in a question asked by a job, and both finish."""
    spark.Lines.of = staticmethod(lambda settings: None)  # all questions are jobs
    eager = {"interval": "100ms", "multiplier": "1.1", "quantile": "0.5", "minTaskRuntime": "100ms"}
    settings = {f"spark.speculation.{name}": value for name, value in eager.items()}
    with two_hosts(folder) as address:
        session = started(address, **{"spark.speculation": "true"} | settings)
        return _twice(session, folder, seconds)


def _twice(session, folder, seconds):
    plain = session.range(0, N, 1, PARTS).selectExpr(*COLUMNS)

    def delayed(batches):
        _noted(folder, "opened", seconds)
        yield from batches

    def question(part):
        _noted(folder, "asked", seconds)
        return float(part.labels.sum())

    wanted = fitted(plain)
    released = fitted(plain.mapInArrow(delayed, plain.schema), folder / "budget")
    with spark.SparkRows(plain, "y", bad_rows="error") as rows:
        records = rows.records(np.where(rows.labels > 0, 1.0, -1.0), Bounds(), None)
        sums = [records._parts.ask(question) for _ in range(2)]
    attempts = {
        kind: sorted(int(path.name.split(" ")[1]) for path in folder.glob(f"{kind} *"))
        for kind in ("opened", "asked")
    }
    return {"found": released, "undisturbed": wanted, "sums": sums, "attempts": attempts}


def _noted(folder, kind, seconds):
    """Note an attempt at the last partition; the first one of all waits until Spark makes another."""
    task = TaskContext.get()
    if task.partitionId() == PARTS - 1:
        first = not any(folder.glob(f"{kind} *"))
        (folder / f"{kind} {task.attemptNumber()}").touch()
        end = time.monotonic() + seconds
        while first and len(list(folder.glob(f"{kind} *"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)


if __name__ == "__main__":
    case, place = (
        {"killed": killed, "killed-again": killed_again, "slow": slow}[sys.argv[1]],
        Path(sys.argv[2]),
    )
    print(json.dumps(case(place)), flush=True)
    os._exit(0)  # a context whose executors are gone may wait for them
