"""What XLA:GPU measures is kept between processes, as safely as compiled programs; a CPU has nothing of it."""

import importlib.util
import json
import stat
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntk as C
from benchmarks.gpu_command import TARGETS
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla import autotuning
from cntkjax.engine.xla.cache import Store
from cntkjax.engine.xla.platform import lowering_for

KEY = "ab" * 32
TEXT = "version: 3\nresults { gemm { algorithm: 7 } }\n\xff"


@pytest.fixture
def entries(tmp_path):
    return Store(tmp_path / "store", 10**6)


def test_results_of_one_process_are_there_for_the_next(entries):
    first = autotuning.Results(entries, KEY)
    assert stat.S_IMODE(first.folder.stat().st_mode) == 0o700 and not list(first.folder.iterdir())
    (first.folder / "Zm9v_-.textproto").write_bytes(TEXT.encode("latin-1"))
    (first.folder / "tmp").mkdir()  # where XLA writes a file before it is whole
    first.save()
    second = autotuning.Results(entries, KEY)
    assert [path.name for path in second.folder.iterdir()] == ["Zm9v_-.textproto"]
    assert (second.folder / "Zm9v_-.textproto").read_bytes() == TEXT.encode("latin-1")
    assert not list(autotuning.Results(entries, "cd" * 32).folder.iterdir())  # another device


def test_processes_that_save_at_the_same_time_keep_what_each_has_measured(entries):
    first, second = autotuning.Results(entries, KEY), autotuning.Results(entries, KEY)
    (first.folder / "a").write_text("1")
    (second.folder / "b").write_text("2")
    first.save()
    second.save()
    assert {p.name: p.read_text() for p in autotuning.Results(entries, KEY).folder.iterdir()} == {"a": "1", "b": "2"}


def test_a_damaged_entry_and_names_with_paths_are_not_used(entries, tmp_path):
    entries.write(KEY, json.dumps({"../escaped": "1", "..": "2", "a/b": "3", "good": "4"}).encode())
    assert [path.name for path in autotuning.Results(entries, KEY).folder.iterdir()] == ["good"]
    (file,) = entries.folder.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert not list(autotuning.Results(entries, KEY).folder.iterdir())


def test_a_cpu_has_no_results(tmp_path, monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    assert autotuning.results() is None
    with lowering_for("gpu"):
        assert autotuning.results() is autotuning.results() is not None
        monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
        assert autotuning.results() is None


def test_programs_are_compiled_with_the_folder_of_results(tmp_path, monkeypatch):
    """XLA:CPU takes the option, too, and measures nothing."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    programs.clear()
    x = C.input_variable(3)
    with lowering_for("gpu"):
        assert (x * 2).eval({x: np.ones((1, 3), np.float32)}).tolist() == [[2, 2, 2]]
        assert autotuning.results().folder.is_dir()
    programs.clear()


def test_the_folder_ends_with_the_process(tmp_path):
    script = (
        "from pathlib import Path; from cntkjax.engine.xla import autotuning, cache; import sys; "
        "print(autotuning.Results(cache.Store(Path(sys.argv[1]), 10**6), 'ab' * 32).folder)"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    folder = run.stdout.strip()
    assert "cntkjax-autotuning-" in folder
    assert subprocess.run(["ls", folder], capture_output=True, check=False).returncode != 0


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None, reason="needs XLA's GPU compiler: pip install 'jax[cuda12]'"
)
def test_the_gpu_compiler_takes_the_folder(tmp_path):
    from jax.experimental import topologies

    target = (TARGETS / "h100.txtpb").read_text()
    device = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=target, topology="1x1x1"
    ).devices[0]
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(device))
    lowered = jax.jit(jnp.matmul).lower(x, x)
    assert "gemm" in lowered.compile({autotuning.OPTION: str(tmp_path)}).as_text()
    with pytest.raises(jax.errors.JaxRuntimeError, match="unknown_option"):
        lowered.compile({"xla_gpu_unknown_option": str(tmp_path)})
