"""Files are written atomically, and read from paths, bytes and open files."""

import io
import os
import subprocess
import sys
import time

import pytest

import cntkjax as C
from cntkjax.formats import files


def test_missing_folders_are_created_and_several_files_written(tmp_path):
    files.write((tmp_path / "new" / "a", [b"1", memoryview(b"2")]), (tmp_path / "b", [b"3"]))
    assert (tmp_path / "new" / "a").read_bytes() == b"12"
    assert (tmp_path / "b").read_bytes() == b"3"


def test_after_a_failure_both_files_are_as_before(tmp_path):
    def broken():
        yield b"half"
        raise OSError("disk full")

    first, second = tmp_path / "model", tmp_path / "model.ckp"
    first.write_bytes(b"old")
    with pytest.raises(OSError, match="disk full"):
        files.write((first, [b"new"]), (second, broken()))
    assert first.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize("name", ["", "folder", "file/model", "/dev/full"])
def test_what_cannot_be_written_is_an_error_of_cntks_type_with_the_path(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(RuntimeError, match=f"'.*{name}'") as caught:
        C.relu(C.parameter(2)).save(name)
    assert isinstance(caught.value, OSError)  # as Python's own are


def test_permissions_are_those_of_the_old_file_or_of_any_new_one(tmp_path):
    old, new, plain = tmp_path / "old", tmp_path / "new", tmp_path / "plain"
    old.write_bytes(b"")
    old.chmod(0o640)
    plain.write_bytes(b"")
    files.write((old, [b"x"]), (new, [b"x"]))
    assert old.stat().st_mode & 0o777 == 0o640
    assert new.stat().st_mode == plain.stat().st_mode


def test_links_and_devices_are_written_through(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    files.write((link, [b"new"]), (os.devnull, [b"gone"]))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert not os.path.isfile(os.devnull)


def test_one_at_a_time_saves_to_a_folder_and_a_stopped_one_is_reported(tmp_path):
    with files.locked(tmp_path):
        second = files.locked(tmp_path, timeout=0.05)
        with pytest.raises(TimeoutError, match=f"another process is saving here.*{tmp_path.name}"):
            second.__enter__()
        with files.locked(tmp_path.parent, timeout=0):
            pass
    with files.locked(tmp_path, timeout=0):
        assert not list(tmp_path.iterdir())


def test_leftovers_of_killed_writers_are_removed_and_files_of_living_ones_kept(tmp_path):
    target = tmp_path / "model"
    (tmp_path / ".model.12345678.tmp").write_bytes(b"killed")
    with files.staged((target, [b"new"])) as (temporary,):
        files.remove_leftovers(target)
        assert [str(path) for path in tmp_path.iterdir()] == [temporary]
        os.replace(temporary, target)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]


def test_paths_bytes_and_open_files_are_read(tmp_path):
    file = tmp_path / "m"
    file.write_bytes(b"abc")
    with file.open("rb") as opened:
        sources = [file, str(file), b"abc", bytearray(b"abc"), io.BytesIO(b"abc"), opened]
        assert [bytes(files.read(source, "model")[0]) for source in sources] == [b"abc"] * len(sources)


def test_unreadable_sources_raise_the_exceptions_of_cntk(tmp_path):
    with pytest.raises(ValueError, match=r"model '.*nowhere': there is no such file"):
        files.read(tmp_path / "nowhere", "model")
    with pytest.raises(RuntimeError, match="Is a directory"):
        files.read(tmp_path, "model")
    with pytest.raises(TypeError, match="mode 'rb'"):
        files.read(io.StringIO("abc"), "model")


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps folders that are in use")
def test_a_missing_file_is_named_though_the_working_directory_was_removed(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(ValueError, match=r"(?s)model 'nowhere': there is no such file.*directory is no longer there"):
        C.load_model("nowhere")


BIG = """
import os, resource, signal, sys
import numpy as np
import cntkjax as C
f = C.times(C.input_variable(1000), C.parameter((1000, 500), init=np.full((1000, 500), float(sys.argv[2]), np.float32)))
"""


def run(script, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", BIG + script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def saved(path, value):
    f = C.times(C.input_variable(3), C.parameter((3, 2), init=value))
    f.save(path)
    return path


@pytest.mark.parametrize("room", [10**6, 100])  # the last part of the file, and all of it, waits in Python's buffer
def test_a_full_disk_leaves_the_old_model(tmp_path, room):
    path = saved(tmp_path / "model", 1)
    full = run(
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"{'f' if room > 1000 else 'C.sin(C.input_variable(1))'}.save(sys.argv[1])",
        path, 2,
    )
    _, error = full.communicate(timeout=100)
    assert full.returncode == 1 and error.strip().endswith(f"File too large: '{path}'")
    assert C.load_model(path).parameters[0].value[0, 0] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_killed_writer_leaves_a_complete_model(tmp_path):
    path = saved(tmp_path / "model", 1)
    writer = run("print('begin', flush=True)\nwhile True: f.save(sys.argv[1])", path, 2)
    assert writer.stdout.readline() == "begin\n"
    for _ in range(5):  # seen while it writes
        assert C.load_model(path).parameters[0].value[0, 0] in (1, 2)
        time.sleep(0.02)
    writer.kill()
    writer.communicate()
    assert C.load_model(path).parameters[0].value[0, 0] in (1, 2)
