"""The keys of the old package: which files its rooms are, in both packages."""

import pytest
from pwagents_old import project
from pwagents_old.benchmark import own_agent


def test_each_room_is_there_and_what_moved_from_it_counts():
    rooms = own_agent._PLAYED
    files = project.files_of_rooms(*rooms)
    assert {"pwagents/schema.py", "pwagents/embedding.py", "pwagents/shop/search.py"} <= {*files}
    assert not any(file.endswith("/views.py") for file in files)
    assert len(project.code_hash(*rooms)) == 16


def test_each_name_that_moved_is_there():
    for room in project._MOVED:
        assert project.files_of_rooms(room)


def test_a_room_that_is_gone_is_an_error(monkeypatch):
    with pytest.raises(KeyError, match="nothing"):
        project.code_hash("nothing")
    monkeypatch.setitem(project._MOVED, "web", ("shop", "gone"))
    with pytest.raises(KeyError, match="web"):
        project.code_hash("web")
