"""Versions of the documentation: which one a checkout is, and the list that the pages' menu reads."""

import json
import subprocess

import pytest


@pytest.fixture(scope="module")
def versions(site_module):
    return site_module("versions")


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_a_tagged_checkout_is_a_release_and_any_other_one_is_development(versions, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.3.0"')
    assert versions.version_of(tmp_path) == "0.3.0"  # of an sdist
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "release")
    git(tmp_path, "tag", "v0.2.1")
    assert versions.version_of(tmp_path) == "0.2.1"
    git(tmp_path, "commit", "--allow-empty", "-m", "work")
    assert versions.version_of(tmp_path) == "dev"


def site(folder, *pages):
    for page in ("index.html", *pages):
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text("<html></html>")


def test_the_list_has_the_newest_version_first_and_the_entrance_leads_to_the_newest_release(versions, tmp_path):
    for name in ("0.9.0", "0.10.1", "dev", "0.10.0"):
        site(tmp_path / name, f"reference/of-{name}.html")
    (tmp_path / "no site").mkdir()
    versions.write_list(tmp_path)
    text = (tmp_path / "versions.js").read_text()
    entries = json.loads(text.removeprefix("window.cntkjaxVersions = ").rstrip(";\n"))
    assert [entry["name"] for entry in entries] == ["dev", "0.10.1", "0.10.0", "0.9.0"]
    assert entries[0]["pages"] == ["index.html", "reference/of-dev.html"]
    assert "url=0.10.1/index.html" in (tmp_path / "index.html").read_text()


def test_without_a_release_the_entrance_leads_to_the_development_version(versions, tmp_path):
    site(tmp_path / "dev")
    versions.write_list(tmp_path)
    assert "url=dev/index.html" in (tmp_path / "index.html").read_text()
