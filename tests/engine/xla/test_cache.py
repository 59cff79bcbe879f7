"""The folder of compiled programs: entries are whole or not there, and whatever is wrong with it, everything runs."""

import errno
import os
import subprocess
import sys
import threading
import time
import warnings
from multiprocessing import get_context

import pytest

from cntkjax.engine.xla import cache
from cntkjax.engine.xla.cache import Store

KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache", 10_000)


@pytest.fixture(autouse=True)
def forgotten_folders():
    """What the process knows of folders, and that it has warned, is of one test only."""
    cache._store.cache_clear()
    cache._warn.cache_clear()
    yield
    cache._store.cache_clear()
    cache._warn.cache_clear()


def entry(store, key=KEY):
    return store.folder / f"{key}.program"


def test_what_is_written_is_read_in_another_object(store):
    store.write(KEY, b"content")
    again = Store(store.folder, store.limit)
    assert again.read(KEY) == b"content" and again.read(OTHER) is None
    assert again.usage().entries == 1


def test_only_the_user_can_read_and_write_the_folder(store):
    store.write(KEY, b"content")
    assert store.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1], lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data + b"\0",
    *(lambda data, i=i: data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in (0, 20, 50, 80, 100)),
])
def test_a_damaged_entry_is_not_read_and_makes_way_for_a_new_one(store, damage):
    store.write(KEY, b"content" * 9)
    entry(store).write_bytes(damage(entry(store).read_bytes()))
    assert store.read(KEY) is None and not entry(store).exists()
    store.write(KEY, b"content")
    assert store.read(KEY) == b"content"


def test_an_entry_under_the_name_of_another_is_not_read(store):
    store.write(KEY, b"content")
    entry(store).rename(entry(store, OTHER))
    assert store.read(OTHER) is None


def test_a_link_or_a_file_that_others_can_write_is_not_read(store):
    store.write(KEY, b"content")
    entry(store, OTHER).symlink_to(entry(store))
    assert store.read(OTHER) is None
    entry(store).chmod(0o666)
    assert store.read(KEY) is None


def test_entries_that_were_not_used_for_longest_are_removed_first(store):
    keys = [f"{i:02x}" * 32 for i in range(12)]
    for age, key in enumerate(keys[:9]):
        store.write(key, bytes(1000))
        os.utime(entry(store, key), (age, age))
    assert store.read(keys[0]) is not None  # used now
    store.write(keys[9], bytes(1000))
    assert store.usage().size <= store.limit
    assert store.read(keys[0]) is not None and store.read(keys[9]) is not None and store.read(keys[1]) is None


def test_an_entry_above_the_limit_is_not_stored(store):
    store.write(KEY, bytes(20_000))
    assert store.read(KEY) is None


def test_what_a_killed_process_left_is_removed_after_a_while(store):
    store.write(KEY, b"content")
    old, new = (store.folder / f"{cache._TEMPORARY_PREFIX}{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert store.usage().entries == 1
    assert not old.exists() and new.exists()


def test_clearing_removes_entries_only(store):
    store.write(KEY, b"content")
    (store.folder / "notes.txt").write_text("mine")
    assert store.clear().entries == 1
    assert [path.name for path in store.folder.iterdir()] == ["notes.txt"]


def test_a_folder_that_is_deleted_meanwhile_is_made_again(store):
    store.write(KEY, b"content")
    entry(store).unlink()
    store.folder.rmdir()
    assert store.read(KEY) is None
    store.write(KEY, b"content")
    assert store.read(KEY) == b"content"


def test_errors_of_the_file_system_are_warned_of_once(store, monkeypatch):
    """As on a full disk. (As root, permissions do not stop anybody.)"""
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device in .*CNTKJAX_CACHE_DIR"):
        store.write(KEY, b"content")
    with warnings.catch_warnings(action="error"):
        store.write(OTHER, b"content")
    assert store.read(KEY) is None and list(store.folder.iterdir()) == []


@pytest.mark.parametrize("make", [
    lambda path: path.write_text("a file"),
    lambda path: path.mkdir(mode=0o777) or path.chmod(0o777),
])
def test_a_file_or_a_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch, make):
    make(tmp_path / "cache")
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.warns(RuntimeWarning, match="is not a folder of this user, or everybody can write"):
        assert cache.store() is None
    with warnings.catch_warnings(action="error"):
        assert cache.store() is None


def test_an_empty_variable_turns_it_off(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    assert cache.store() is None


def test_the_users_cache_folder_of_jax_replaces_the_default_but_not_the_variable(tmp_path, monkeypatch):
    import jax

    monkeypatch.delenv("CNTKJAX_CACHE_DIR", raising=False)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert cache.store() is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path / "ours"))
    assert cache.store().folder == tmp_path / "ours"


@pytest.mark.parametrize("text, limit", [("0.5", 5e8), (None, 2e9), ("much", 2e9), ("-1", 2e9), ("nan", 2e9)])
def test_the_limit_is_set_in_gigabytes(tmp_path, monkeypatch, text, limit):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    if text is None:
        monkeypatch.delenv("CNTKJAX_CACHE_GB", raising=False)
    else:
        monkeypatch.setenv("CNTKJAX_CACHE_GB", text)
    with warnings.catch_warnings(action="ignore"):
        assert cache.store().limit == limit


def write_and_read(folder, number):
    store, failures = Store(folder, 30_000), 0
    for i in range(150):
        key = f"{i % 20:02x}" * 32
        content = store.read(key)
        failures += content not in (None, key.encode() * 50)
        store.write(key, key.encode() * 50)
        if number == 0 and i % 50 == 49:
            store.clear()
    return failures


def test_several_processes_share_a_folder_and_read_whole_entries_only(tmp_path):
    with get_context("spawn").Pool(2) as pool:
        assert pool.starmap(write_and_read, [(tmp_path / "cache", i) for i in range(2)]) == [0, 0]
    assert Store(tmp_path / "cache", 30_000).usage().size <= 30_000 + 2 * 4000  # each may be writing one more


def test_killed_processes_leave_no_broken_entries(tmp_path):
    folder = tmp_path / "cache"
    program = (
        "import sys; from pathlib import Path; from cntkjax.engine.xla.cache import Store\n"
        "store = Store(Path(sys.argv[1]), 10**9)\n"
        "print('ready', flush=True)\n"
        "while True: store.write('ab' * 32, b'x' * 10**6)"
    )
    for i in range(2):
        process = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.03 * (i + 1))
        process.kill()
        process.communicate()
        assert Store(folder, 10**9).read(KEY) in (None, b"x" * 10**6)


def test_threads_share_a_store(store):
    threads = [threading.Thread(target=store.write, args=(f"{i:02x}" * 32, b"content")) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.usage().entries == 8
