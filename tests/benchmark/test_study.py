"""A study on a small world: the same episodes on an engine."""


def test_an_engine_plays_the_same_episodes(study, ship, monkeypatch, tmp_path):
    def played():
        runs = [study.play(method, "multi_turn") for method in ("PUMA (prompted)", "InteRecAgent")]
        return [record.trajectory for records in runs for record in records]

    here = played()
    monkeypatch.setattr(study, "folder", tmp_path)
    ship()
    assert played() == here
