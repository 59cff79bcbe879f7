"""The harness of the benchmarks, on a network of ten small parameters. Speed is not tested."""

import json
import shutil
import sys

import pytest

from benchmarks import gpu_speed, overhead, report, startup
from benchmarks.__main__ import main
from benchmarks.compare import compare
from cntkjax.engine.xla import cache

JAX_AND_OURS = {"cntkjax": sys.executable, "jax": sys.executable}


def test_all_sides_are_measured_and_report_their_compilations():
    results = compare("tiny", JAX_AND_OURS, None, rounds=2, seconds=0)
    for result in results.values():
        assert len(result["milliseconds"]) == len(result["samples_per_second"]) == 2
        assert result["programs"] >= 1
        assert min(result["milliseconds"]) > 0


def test_a_side_that_fails_is_reported_and_the_others_continue(capsys):
    false = shutil.which("false")
    assert false
    results = compare("tiny", {"torch": false, "jax": sys.executable}, None, rounds=1, seconds=0)
    assert set(results["torch"]) == {"error"}
    assert len(results["jax"]["milliseconds"]) == 1
    assert "tiny: torch failed" in capsys.readouterr().err


def test_one_command_prints_a_table_and_writes_json_and_a_chart(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    numbers, chart = tmp_path / "numbers.json", tmp_path / "chart.png"
    main(["--quick", "--networks", "tiny", "--sides", "cntkjax", "jax", "--json", str(numbers), "--chart", str(chart)])
    assert "| Ten small parameters, batch 8 |" in capsys.readouterr().out
    results = json.loads(numbers.read_text())["networks"]["tiny"]
    assert [len(results[side]["milliseconds"]) for side in ("cntkjax", "jax")] == [1, 1]
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_the_table_shows_failures_missing_sides_and_ratios():
    def result(milliseconds):
        return {"milliseconds": [milliseconds], "samples_per_second": [9000 / milliseconds]}

    networks = {
        "fcn5": {"cntkjax": result(100.0), "cntk27": result(450.0), "torch": {"error": "no"}},
        "atis": {"cntkjax": result(0.5), "cntk27": result(2.0)},
    }
    assert report.table(networks).splitlines()[2:] == [
        "| FCN5, batch 1024 | 100.0 ms | 450.0 ms (4.50x) | failed |  |",
        "| ATIS tagging | 18,000 words/s | 4,500 words/s (4.00x) | – |  |",
    ]


def test_overhead_is_the_difference_to_the_bare_step():
    results = overhead.microseconds(rounds=1, seconds=0)
    assert results["overhead"] == pytest.approx(results["train_minibatch"] - results["bare jitted step"])


def test_a_second_process_compiles_nothing():
    first, second = startup.two_processes("tiny")
    assert first["cached"] == 0 < first["programs"]
    assert second["cached"] == second["programs"]


def test_memory_is_measured_with_the_number_of_programs(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    pytest.importorskip("psutil", reason="memory is measured with psutil")
    from benchmarks import memory

    results = memory.marks(minibatches=10, count=2)
    assert [megabytes > 10 for megabytes, _ in results] == [True, True]
    assert 1 <= results[0][1] <= results[1][1] <= 12


def test_a_long_run_tells_what_it_uses(tmp_path, monkeypatch):
    pytest.importorskip("psutil", reason="memory is measured with psutil")
    from benchmarks import long_run

    monkeypatch.setattr(long_run, "RESTORE_EVERY", long_run.SAVE_EVERY)
    first, second = long_run.marks(2 / 3600, 2, tmp_path)
    assert 0 < first.hours < second.hours and 1 <= first.steps < second.steps
    assert first.threads > 2 and second.files < first.files + 5  # some are open while programs are stored
    assert (tmp_path / "checkpoint").exists() == (second.steps >= long_run.SAVE_EVERY)


def test_a_long_run_goes_on_from_the_checkpoint_of_an_earlier_process(tmp_path, monkeypatch):
    pytest.importorskip("psutil", reason="memory is measured with psutil")
    from benchmarks import long_run

    monkeypatch.setattr(long_run, "SAVE_EVERY", 1)
    (earlier,) = long_run.marks(0.5 / 3600, 1, tmp_path)
    (later,) = long_run.marks(0.6 / 3600, 1, tmp_path)
    assert later.steps > earlier.steps and later.hours >= 0.6 / 3600


def test_a_file_that_another_process_removes_meanwhile_does_not_end_a_long_run(tmp_path, monkeypatch):
    pytest.importorskip("psutil", reason="memory is measured with psutil")
    from benchmarks import long_run

    store = cache.Store(tmp_path, 10**6)
    store.write("0" * 64, bytes(2**10))
    (tmp_path / ".program-removed").symlink_to(tmp_path / "nothing")  # as a file that is gone when its size is read
    monkeypatch.setattr(cache, "store", lambda: store)
    assert 2**10 / 2**20 <= long_run._cache_size() < 2 * 2**10 / 2**20


def test_peaks_are_those_of_the_described_gpus():
    peak = gpu_speed.peak_of("NVIDIA H100 80GB HBM3")
    assert peak.operations == pytest.approx(66.9e12, rel=1e-3) and peak.bandwidth == 3352320000000
    assert gpu_speed.peak_of("NVIDIA L4").operations == pytest.approx(30.3e12, rel=1e-2)
    assert gpu_speed.peak_of("NVIDIA L40S") is None and gpu_speed.peak_of("cpu") is None


def test_the_table_of_a_gpu_has_rates_and_shares_of_its_peak():
    result = compare("tiny", {"cntkjax": sys.executable}, None, rounds=1, seconds=0)["cntkjax"]
    peak = gpu_speed.Peak("a GPU", 1e12, 1e12, 10**9)
    lstm = result | {"milliseconds": [88.6], "memory": 5e6, "bytes": 22.15e9}
    measured = {"lstm64": {"cntkjax": lstm, "torch": {"error": "none"}}}
    *_, row = gpu_speed.rows(measured | {"tiny": {"jax": result}}, peak)
    assert row.startswith("| Ten small parameters, batch 8 | hand-written JAX | ") and row.endswith("|  |  |  |  |  |")
    assert "| LSTM, batch 64 | cntkjax | 88.60 | 0.50 | 50.0% | 250.0 | 25.0% | 5 |" in gpu_speed.rows(measured, peak)


def test_without_a_gpu_the_command_says_so():
    if gpu_speed.device_in_use()[0] != "cpu":
        pytest.skip("there is one")
    with pytest.raises(SystemExit, match="There is no GPU here: JAX sees only a cpu"):
        main(["--device", "gpu", "--networks", "tiny"])
