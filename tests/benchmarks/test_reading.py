"""The benchmark of reading, on small files: every kind is made, read and measured."""

import sys
from pathlib import Path

import pytest

from benchmarks.reading import OPENCV_WORKER, WORKER, WRITERS, Side, compare


def test_every_kind_of_file_is_read(tmp_path):
    pytest.importorskip("PIL", reason="makes images with Pillow")
    results = compare(list(WRITERS), 0.5, 1, {"cntkjax": Side(sys.executable, WORKER)}, tmp_path, ["--sweeps", "2"])
    assert set(results) == set(WRITERS)
    for of_kind in results.values():
        result = of_kind["cntkjax"]
        assert result["samples"] >= 2 and 0 < result["first"] <= result["sweep"] + 0.1 and result["memory"] > 0
        assert result["megabytes"] > 0.3


def test_a_side_that_cannot_read_a_file_is_left_out(tmp_path):
    assert compare(["htk"], 0.1, 1, {"other": Side("false", Path("worker.py"))}, tmp_path, []) == {"htk": {}}


def test_images_are_read_by_opencv_alone_too(tmp_path):
    pytest.importorskip("PIL", reason="makes images with Pillow")
    pytest.importorskip("cv2", reason="compares with OpenCV")
    side = Side(sys.executable, OPENCV_WORKER)
    results = compare(["images", "htk"], 0.1, 1, {"opencv": side}, tmp_path, ["--size", "3"])
    assert results["images"]["opencv"]["samples"] >= 2 and results["htk"] == {}
