"""A run over a paid model, killed for real: no episode lost, no stored reply asked for again."""

from .killed_run import kill_and_resume


def test_sigkill_loses_no_episode_and_pays_for_no_stored_reply_again(chat_server, tmp_path):
    server, amounts = chat_server(latency=0.02), {"episodes": 60, "steps": 3, "workers": 4, "kills": 2}
    result = kill_and_resume(server.url, tmp_path, lambda: dict(server.paid), **amounts)
    assert result["episodes_stored"] == 60
    assert result["episodes_lost"] == result["episodes_twice"] == 0
    assert result["requests"] == 60 * 3
    # What was under way at a kill had no reply yet: its endpoint may bill it, and it is asked again.
    assert result["paid_twice"] <= result["most_under_way"] == 8
