"""TensorFlow and JAX compute the same, share checkpoints, and work without each other."""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from benchmarks.parity import cases
from benchmarks.tables import check, compiled, places
from ga3c import backend
from ga3c.backend import Column
from ga3c.experience.memory import DEVICE
from ga3c.experience.ring import Experience, RingShape
from ga3c.learning.model import Model
from ga3c.service.assembly import small_model
from tests.commands import ROOT

FRAMEWORKS = ("tensorflow", "jax")
OTHER = {"tensorflow": "jax", "jax": "tensorflow"}
CASES = ["a3c small", "a3c mlp", "a3c paper", "dqn dueling", "dqn parr", "dqn adam"]
CASES += ["a3c control", "ppo-control", "dpg-control", "apex-dpg"]
CORRIDOR = ["--game", "tests.tiny:Corridor-v0", "--algorithm", "a3c"]
CORRIDOR += ["--agents", "2", "--envs-per-agent", "8"]


def under(framework: str, *program: str) -> subprocess.CompletedProcess[str]:
    """Run Python with KERAS_BACKEND set to `framework`."""
    return subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": framework, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_both_compute_the_same_from_equal_weights_batches_and_draws(tmp_path: Path) -> None:
    """Initial weights, probabilities, values, losses, gradient norms and updated weights agree.

    Each framework runs while the other cannot be imported. CASES are some of those in
    `benchmarks.parity`, which cover all networks.
    """
    found = []
    for framework in FRAMEWORKS:
        file = tmp_path / f"{framework}.npz"
        program = f"import runpy, sys; sys.modules[{OTHER[framework]!r}] = None; "
        program += "runpy.run_module('benchmarks.parity', run_name='__main__')"
        done = under(framework, "-c", program, str(file), *CASES)
        assert done.returncode == 0, done.stderr
        found.append(dict(np.load(file)))
    assert set(found[0]) == set(found[1])
    assert len(found[0]) > 60
    for name, ours in found[0].items():
        scale = max(np.abs(ours).max(), 1e-3)
        np.testing.assert_allclose(found[1][name] / scale, ours / scale, atol=1e-4, err_msg=name)
        if ":first:weights/" in name:
            np.testing.assert_array_equal(found[1][name], ours, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["a3c", "dqn"])
def test_a_run_learns_under_one_and_goes_on_under_the_other(algorithm: str, tmp_path: Path) -> None:
    given = [*CORRIDOR, "--algorithm", algorithm, "--scheduler", "off", "--seed", "1"]
    if algorithm == "dqn":
        given += ["--replay-min-steps", "1000", "--update-size", "100", "--epsilon-steps", "3000"]
    names = ["--runs-dir", str(tmp_path), "--name", "mine", "--json"]
    # The limit is six times the steps needed. Schedules are so long that nothing is annealed.
    ends = ["--score", "0.9", "--steps", "25000", "--schedule-steps", "10000000"]
    ends += ["--seconds", "180"]
    done = under("tensorflow", "-m", "ga3c", "train", *given, *names, *ends, "--backend", "jax")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout.splitlines()[-1])
    assert first["score_mean_100"] >= 0.9
    assert json.loads((tmp_path / "mine" / "meta.json").read_text())["backend"] == "jax"
    more = ["--resume", str(tmp_path / "mine"), "--backend", "tensorflow", "--score", "2"]
    more += ["--steps", str(first["steps"] + 3000)]
    done = under("jax", "-m", "ga3c", "train", *more)
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["updates"] > first["updates"]
    assert last["score_mean_100"] >= 0.8, "what was learned is still there"
    if algorithm == "dqn":
        return  # the rest does not depend on the algorithm
    refused = under("jax", "-m", "ga3c", "export", str(tmp_path / "mine"), "--out", "exported")
    assert refused.returncode == 2
    assert "export with jax: needs TensorFlow, which can read this run too" in refused.stderr
    evaluated = under("jax", "-m", "ga3c", "evaluate", str(tmp_path / "mine"), "--episodes", "10")
    assert evaluated.returncode == 0, evaluated.stderr


@pytest.mark.slow
def test_a_run_with_tensorflow_does_not_import_jax(tmp_path: Path) -> None:
    program = "import sys; from ga3c.__main__ import main; code = main(); "
    program += "sys.exit(code or 'jax' in sys.modules)"
    given = [*CORRIDOR, "--algorithm", "dqn", "--runs-dir", str(tmp_path), "--steps", "2000"]
    done = under("tensorflow", "-c", program, "train", *given)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_without_tensorflow_a_run_is_made_with_jax_where_nothing_is_chosen(tmp_path: Path) -> None:
    """The run would fail if it imported TensorFlow."""
    program = "import sys; sys.modules['tensorflow'] = None; "
    program += "from ga3c.__main__ import main; sys.exit(main())"
    given = ["train", *CORRIDOR, "--algorithm", "dqn", "--steps", "2000"]
    given += ["--runs-dir", str(tmp_path), "--name", "mine"]
    done = under("", "-c", program, *given)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "mine" / "meta.json").read_text())["backend"] == "jax"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_missing_framework_is_reported_in_one_line(framework: str) -> None:
    program = f"import sys; sys.modules[{framework!r}] = None; "
    program += "from ga3c.__main__ import main; sys.exit(main())"
    done = under(framework, "-c", program, "train", *CORRIDOR, "--steps", "1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{framework} is missing; in your checkout of ga3c, run " in line


ON_CORES = """
import os, sys
import keras

for cores in (1, 96, 1024):
    if not os.fork():
        os.sched_getaffinity = lambda process: set(range(cores))
        from benchmarks.parity import cases
        from ga3c.settings.machine import CORES
        os._exit((CORES, len(cases())) != (cores, 18))
    assert os.wait()[1] == 0, cores
"""


def test_presets_and_parity_s_cases_are_made_on_any_number_of_cores() -> None:
    done = under("tensorflow", "-c", ON_CORES)
    assert done.returncode == 0, done.stderr


MATRICES = """
import sys
from ga3c import __main__ as command

def threads(arguments):
    import numpy, psutil
    numpy.linalg.qr(numpy.eye(500))
    print(psutil.Process().num_threads())
    return 0

command.COMMANDS["runs"] = threads
sys.argv = ["ga3c", "runs"]
command.program()
"""


def test_the_command_limits_numpy_s_blas_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thread per core, weights are drawn ten times slower while agents are starting."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    done = under("tensorflow", "-c", MATRICES)
    assert done.stdout == "1\n", done.stderr


def test_importing_ga3c_does_not_limit_the_caller_s_blas_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    done = under("tensorflow", "-c", "import os, ga3c; ga3c.train; print(sorted(os.environ))")
    assert "TF_CPP_MIN_LOG_LEVEL" in done.stdout, done.stderr
    assert "OPENBLAS_NUM_THREADS" not in done.stdout


def test_an_unknown_framework_is_refused() -> None:
    done = under("torch", "-m", "ga3c", "runs")
    assert done.returncode == 2
    assert "backend torch: must be tensorflow or jax" in done.stderr


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Adam", {"epsilon": 1e-5}),
        ("RMSprop", {"rho": 0.99, "epsilon": 0.01}),
        ("RMSprop", {"rho": 0.95, "momentum": 0.9}),
        ("RMSprop", {"rho": 0.95, "centered": True}),
        ("RMSprop", {"rho": 0.95, "centered": True, "momentum": 0.9}),
    ],
)
def test_our_optimizers_match_kerass_in_steps_and_state(
    kind: str, settings: dict[str, Any]
) -> None:
    random = np.random.default_rng(0)
    first = [random.normal(size=shape).astype(np.float32) for shape in ((7, 5), (5,), (1,))]
    found = []
    for place in (backend, keras.optimizers):
        optimizer = getattr(place, kind)(0.01, name="mine", **settings)
        variables = [keras.Variable(value, name=f"v{i}") for i, value in enumerate(first)]
        optimizer.build(variables)
        gradients = np.random.default_rng(1)
        for rate in (0.01, 0.02, 0.005):
            optimizer.learning_rate.assign(rate)
            steps = [gradients.normal(size=v.shape).astype(np.float32) for v in variables]
            optimizer.apply([keras.ops.convert_to_tensor(step) for step in steps], variables)
        found.append(
            {v.path: keras.ops.convert_to_numpy(v) for v in (*variables, *optimizer.variables)}
        )
    ours, kerass = found
    assert list(ours) == list(kerass)
    for path, value in kerass.items():
        np.testing.assert_allclose(ours[path], value, rtol=2e-5, atol=1e-6, err_msg=path)
    assert all(np.abs(ours[f"v{i}"] - value).max() > 1e-2 for i, value in enumerate(first))


def table_ops(model: Model) -> list[Any]:
    """All operations of a TensorFlow model's functions, which include all uses of its tables."""
    functions = [model._act, model._learn, *vars(model.source).values()]
    traced = [getattr(function, "traced", function) for function in functions]
    graphs = [function.graph for function in traced if hasattr(function, "graph")]
    return [op for graph in graphs for op in graph.get_operations()]


@pytest.mark.skipif(backend.FRAMEWORK == "jax", reason="of TensorFlow's kernels")
@pytest.mark.parametrize(
    ("name", "eviction"),
    [("a3c small", "fifo"), ("dqn dueling", "fifo"), ("dqn mlp", "priority")],
)
def test_tensorflow_s_tables_are_used_with_64_bit_rows_and_have_no_int32_variable(
    name: str, eviction: Any
) -> None:
    config, spaces = cases()[name]
    replay = replace(config.replay, replay_draws="prioritised", eviction=eviction)
    config = replace(config, replay=replay)
    ops = table_ops(small_model(config, spaces, DEVICE))
    used = [op for op in ops if op.type in ("ResourceGather", "ResourceScatterUpdate")]
    assert len(used) > 10
    for op in used:
        assert op.get_attr("Tindices").name == "int64", op
        assert op.get_attr("dtype").name != "int32", op


@pytest.mark.parametrize("capacity", [304_349, 2**31 // 1000])
def test_rows_of_a_large_ring_do_not_overflow(capacity: int) -> None:
    """Row numbers equal those of exact arithmetic, also at the end of the largest ring."""
    ring = RingShape(1000, capacity, (84, 84), "uint8", 4)

    def rows(lanes: Any, slots: Any, ages: Any) -> list[Any]:
        lanes, slots, ages = (DEVICE.cast(x, DEVICE.row_dtype) for x in (lanes, slots, ages))
        return ring.stack_rows(lanes, slots, ages, keras.ops.minimum)

    lanes = np.array([0, 1, ring.lanes - 1, ring.lanes - 1], np.int32)
    slots = np.array([capacity - 1, 0, 1, capacity - 1], np.int32)
    ages = np.full(4, 3, np.int32)
    found = backend.compiled(rows, [((None,), "int32")] * 3)(lanes, slots, ages)
    for back, row in zip((3, 2, 1, 0), found):
        exact = [
            int(lane) * capacity + (int(slot) - back) % capacity
            for lane, slot in zip(lanes, slots, strict=True)
        ]
        assert np.asarray(row).tolist() == exact


@pytest.mark.parametrize("kept_as", ["int32", "int64"])
def test_a_kept_table_of_any_integer_type_is_taken_over(kept_as: str) -> None:
    columns: dict[str, Column] = {"age": ((), "int32"), "pair": ((2,), "int32")}
    values = {
        "age": np.array([3, 0, -1]),
        "pair": np.array([[1, 2], [2**31 - 1, -(2**31)], [0, 7]]),
    }
    table = backend.DeviceTable(columns, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.restore({name: value.astype(kept_as) for name, value in values.items()})
    read = table.read()
    gather = backend.compiled(lambda rows: table.gather("pair", rows), [((None,), "int32")])
    assert np.asarray(gather(np.array([1, 2], np.int32))).tolist() == values["pair"][1:].tolist()
    for name, value in values.items():
        assert read[name].dtype == np.int32, "as it has always been kept"
        assert read[name].tolist() == value.tolist()


MEASURED = """
import re
from pathlib import Path
import numpy as np
from ga3c import backend
def most_mb():  # unlike getrusage's, it does not begin with that of the process before it
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
rows, drawn = 30_000, np.random.default_rng(0)
table = backend.DeviceTable({"frame": ((7056,), "uint8"), "age": ((), "int32")}, rows)
for first in range(0, rows, 1000):
    frames = drawn.integers(256, size=(1000, 7056), dtype=np.uint8)
    some = np.arange(first, first + 1000)
    table.write(some, {"frame": frames, "age": some})
before_mb = most_mb()
values = table.read()
read_mb = most_mb() - before_mb
table.restore(values)
restored_mb = most_mb() - before_mb - read_mb
again = table.read()
assert all((values[name] == again[name]).all() for name in values)
print(values["frame"].nbytes / 2**20, read_mb, restored_mb)
"""


@pytest.mark.skipif(backend.FRAMEWORK == "jax", reason="JAX copies a table once to read it")
def test_a_table_is_read_and_restored_without_an_extra_copy() -> None:
    """A replay may take nearly half of the memory, and its copy for a checkpoint as much."""
    done = under("tensorflow", "-c", MEASURED)
    assert done.returncode == 0, done.stderr
    table_mb, read_mb, restored_mb = map(float, done.stdout.split())
    assert table_mb > 200
    assert table_mb * 0.9 < read_mb < table_mb * 1.4, "the copy itself, and little more"
    assert restored_mb < table_mb * 0.4


@pytest.mark.skipif(backend.FRAMEWORK == "jax", reason="JAX has one way for all devices")
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("stack", [1, 2, 4])
def test_frames_are_stacked_on_a_gpu_as_on_a_processor(stack: int, dtype: str) -> None:
    from ga3c.backend.tensorflow import concatenated

    random = np.random.default_rng(0)
    frames = [random.integers(256, size=(3, 35)).astype(dtype) for _ in range(stack)]
    expected = np.stack(frames, axis=-1)
    signature = [((None, 35), dtype)] * stack
    both = backend.compiled(
        lambda *each: (concatenated(each), backend.channels_last(each)), signature
    )
    for found in both(*frames):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_the_check_of_large_tables_detects_overflowing_rows() -> None:
    ring = RingShape(4, 3000, (8, 8), "uint8", 4)
    call = compiled(Experience(ring, {}, DEVICE))
    overflowing = call._replace(
        write=lambda rows, frames, ages: call.write(rows % np.int32(5000), frames, ages)
    )
    said = "\n".join(check(overflowing, ring)["wrong"])
    assert "frame of row 11,999" in said
    assert "row 1,999, not written, is not 0" in said
    assert "row 11,999, written, is 0" in said
    assert not check(compiled(Experience(ring, {}, DEVICE)), ring)["wrong"]


def test_each_column_says_where_it_lies() -> None:
    found = places()
    assert {"frame", "age", "log_prob"} <= set(found["a3c small"])
    columns = {name.split(" of table ")[0] for name in found["dqn dueling"]}
    assert {"frame", "action", "slot", "count", "draws", "largest", "sum"} <= columns
    assert all(device for devices in found.values() for device in devices.values())
