# SPDX-License-Identifier: Apache-2.0
"""optimize/folder.py: locks that die with their holder, records replaced whole, listings that survive debris."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.candidate import Candidate
from kernelwright.errors import ReferenceFails, RunFolderBusy, RunFolderError
from kernelwright.ledger import open_ledger
from kernelwright.optimize import folder as folders


def test_a_lock_is_seen_by_other_processes_and_dies_with_its_holder(tmp_path: Path) -> None:
    """A killed run leaves nothing that has to be cleaned up by hand."""
    code = (
        "import sys; from pathlib import Path; from kernelwright.optimize import folder;"
        "held = folder.create(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdin is not None
    assert "held\n" == child.stdout.readline()
    with pytest.raises(RunFolderBusy):
        folders.create(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"status": "running"}')
    assert ["running"] == [record["status"] for _, record in folders.listed(tmp_path)]
    child.kill()
    child.communicate()
    assert ["stopped"] == [record["status"] for _, record in folders.listed(tmp_path)]
    (tmp_path / "run" / "run.json").unlink()
    folders.create(tmp_path / "run").close()


def test_a_users_own_files_are_not_overwritten(tmp_path: Path) -> None:
    """An optimized.py that no run left there may be hand-made; other files are no reason to refuse."""
    (tmp_path / "notes.txt").write_text("mine")
    folders.create(tmp_path).close()
    (tmp_path / "optimized.py").write_text("mine")
    with pytest.raises(RunFolderBusy, match="overwrite") as caught:
        folders.create(tmp_path)
    assert "optimized.py" == caught.value.got
    assert "mine" == (tmp_path / "optimized.py").read_text()


def test_a_run_of_which_there_is_nothing_to_keep_leaves_no_folder(tmp_path: Path) -> None:
    """Nor anything in one that was there; the first event makes it worth keeping."""
    (tmp_path / "mine").mkdir()
    for name, stays in (("free", False), ("mine", True), ("told", True)):
        run = folders.create(tmp_path / name)
        run.write({"status": "failed"})
        run.ledger.write_text("")
        if name == "told":
            run.event({"kind": "note"})
        run.discard()
        run.close()
        assert stays == (tmp_path / name).is_dir()
    assert not list((tmp_path / "mine").iterdir()) and (tmp_path / "told" / "run.json").is_file()


def test_the_record_is_replaced_whole_and_events_are_appended(tmp_path: Path) -> None:
    """A reader sees the old record or the new one."""
    run = folders.create(tmp_path / "run")
    for number in range(3):
        run.write({"number": number})
        run.event({"number": number})
    run.close()
    assert {"number": 2} == folders.read(tmp_path / "run")
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [0, 1, 2] == [json.loads(line)["number"] for line in lines]


def test_kept_candidates_lie_in_folders_of_their_digest(tmp_path: Path) -> None:
    """With their sub-folders."""
    candidate = Candidate(
        task="t", language="cpp", entry="a.py::M", sources=(("a.py", "x"), ("deep/k.cpp", "y")), proposer="p"
    )
    run = folders.create(tmp_path / "run")
    place = run.keep(candidate)
    run.close()
    assert (tmp_path / "run" / "candidates" / candidate.digest(), "y") == (place, (place / "deep/k.cpp").read_text())


def test_listing_shows_newest_first_and_what_cannot_be_read_as_that(tmp_path: Path) -> None:
    """A damaged record hides no run, not even its own."""
    for name, started in (("old", 1.0), ("new", 2.0)):
        run = folders.create(tmp_path / name)
        run.write({"started_at": started})
        run.close()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "run.json").write_text("[]")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run.json").write_text('{"started_at": null}')
    listed = folders.listed(tmp_path)
    assert ["new", "old", "broken", "list", "odd"] == [path.name for path, _ in listed]
    assert ["broken", "list"] == [path.name for path, data in listed if data.get("status") == "unreadable"]
    assert "cannot be read" in listed[2][1]["message"]
    for name in ("broken", "list"):
        with pytest.raises(RunFolderError):
            folders.read(tmp_path / name)


def test_fresh_names_are_free_and_plain(tmp_path: Path) -> None:
    """A task's name may hold anything."""
    first = folders.fresh_name(tmp_path, "a b/../c")
    first.mkdir()
    second = folders.fresh_name(tmp_path, "a b/../c")
    assert first != second
    assert {tmp_path} == {first.parent, second.parent}


FAILED = {"status": "failed", "error": ReferenceFails("The reference of x fails (forward).", "no").to_json()}


def test_a_folder_whose_run_failed_by_its_task_is_not_to_be_resumed(tmp_path: Path) -> None:
    """The record keeps the task as it was: a user who has mended the file would resume the broken one."""
    for name, data, words in (("bad", FAILED, "Remove the folder"), ("good", {"status": "stopped"}, "--resume")):
        run = folders.create(tmp_path / name)
        run.write(data)
        (run.path / folders.CANDIDATES).mkdir()
        run.close()
        with pytest.raises(RunFolderBusy) as caught:
            folders.create(tmp_path / name)
        assert words in caught.value.what_next
    (tmp_path / "good" / "run.json").write_text("{")
    with pytest.raises(RunFolderError) as unread:
        folders.read(tmp_path / "good")
    assert "another folder" in unread.value.what_next


def test_a_run_that_its_task_ended_before_any_trial_makes_room_for_the_next(tmp_path: Path) -> None:
    """Who has mended the file types the same command again; a user's own files stay."""
    run = folders.create(tmp_path / "run")
    run.write(FAILED)
    run.event({"kind": "phase"})
    open_ledger(run.ledger).close()
    (run.path / "report.html").write_text("why")
    (run.path / "notes.txt").write_text("mine")
    run.close()
    folders.create(tmp_path / "run").close()
    assert {"lock", "notes.txt"} == {path.name for path in (tmp_path / "run").iterdir()}


def test_a_file_where_the_folder_should_be_is_refused_and_another_place_advised(tmp_path: Path) -> None:
    """A slip of the completion: the task's own file as --out."""
    (tmp_path / "task.py").write_text("")
    with pytest.raises(RunFolderError, match="is a file(?s:.*)\n  next: choose another --out"):
        folders.create(tmp_path / "task.py")
