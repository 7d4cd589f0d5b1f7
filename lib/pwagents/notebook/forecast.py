"""GPU hours and US dollars that a notebook takes, estimated from its settings before anything is loaded.

All are estimates. Rates are what ``benchmarks/gpu_proof.py`` measured with seven billion parameters on an
H200 (bfloat16, an adapter, no vLLM, which writes several times as fast). Where language models are asked, a
notebook shows a closer estimate of their cost once its data are loaded.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from pwagents.llm.budget import Load, estimate

LEARNED, WRITTEN = 8_031, 523  # tokens a second: of fine-tuning, and of 32 episodes played at once
STEP_S, STEP_TOKENS = 27.2, 32 * 1_280  # a step of GRPO, and the tokens of its episodes
# PUMA's tokens a second: fine-tuned with whole embeddings, of both sequences of a pair, of 8 times 10 beams.
PUMA_LEARNED, PUMA_PREFERRED, PUMA_SAMPLED = 3_724, 4_027, 473
TRAIN, TEST = 6.896, 2.174  # tasks a user: PersonalWAB has 6,896 and 2,174 of 1,000 users
# Calls of a unit (a task, an episode or a user), tokens of a prompt and of a reply, as notebooks reckon them.
CALLS = {
    "profiler": (10, 1_200, 250),
    "updater": (4, 900, 150),
    "writer": (1.1, 900, 40),
    "judge": (4, 1_500, 10),
    "label_writer": (1, 12_000, 20),  # of a search, with up to a hundred purchases
    "teacher": (4, 2_500, 80),
    "user": (1.5, 1_200, 40),
    "policy": (2.6, 11_500, 60),  # notebook 03, both tracks
    "baseline": (4.5, 4_000, 60),  # notebook 06, multi-turn on compact pages; PUMA names the function first
    "navigator": (11, 2_000, 60),  # notebook 09's policy: steps of an episode, with the page
}


class Forecast(NamedTuple):
    """What a notebook takes, and how many models it leaves on the disk."""

    gpu_hours: float
    usd: float
    trainings: int

    def __str__(self) -> str:
        return f"Estimated: {self.gpu_hours:,.0f} GPU hours, {self.usd:,.0f} US dollars"


def forecast(notebook: str, values: Mapping[str, Any]) -> Forecast:
    """Estimate what a notebook takes; GPU hours where it trains a model that lies in a folder.

    Args:
        notebook: its name, such as "04_puma".
        values: of its settings, as nested dicts.
    """
    players, trains = values.get("players", {}), "/" in values.get("base", {}).get("model", "")
    asks = "openai:" in str([*players.values()])
    if not trains and not asks:
        return Forecast(0.0, 0.0, 0)
    units, seconds, trainings = _work(notebook[:2], values)
    loads = {}
    for role in units:
        specs = [players.get("policy" if role == "navigator" else role, "")]
        specs += players.get("more_policies", ()) if role == "policy" else ()
        for spec in players.get("policies", ()) if role == "baseline" else specs:
            loads[f"{role}, {spec}"] = Load(spec, units[role], *CALLS[role])
    usd = float(estimate(loads)["US dollars"].sum())
    return Forecast(seconds / 3600, usd, trainings) if trains else Forecast(0.0, usd, 0)


def _work(number: str, values: Mapping[str, Any]) -> tuple[Counter, float, int]:
    """Units of each role, seconds on a GPU, and models that are trained."""
    users, study = values.get("histories", values["data"])["n_users"], values.get("study", {})
    if number == "02":  # two instructions for each task; eight questions a user, half of CALLS' calls each
        return Counter(profiler=users // 2, writer=round(2 * (TRAIN + TEST) * users), judge=4 * users), 0.0, 0
    if number == "03":  # seven methods in the single-turn track, eleven with a user who answers
        play, policies = values["play"], 1 + len(values["players"].get("more_policies", ()))
        tasks = play["method_tasks"] or round(TEST * users)
        forms = {"published": len(play["published_items"]), "leak_free": 1}
        tasks *= sum(forms[protocol] for protocol in play["protocols"])
        return Counter(policy=18 * tasks, user=11 * tasks * policies), 0.0, 0
    if number == "04":
        # Each variant is fine-tuned on padded rows, samples, and learns from pairs.
        sft, dpo, all_of_them = values["sft"], values["dpo"], study["variants"] == "all"
        variants = 9 + len(study["memory_lengths"]) if all_of_them else 2
        train, test = study["train_tasks"] or round(TRAIN * users), study["test_tasks"] or round(TEST * users)
        most = study.get("max_new_tokens", 256)
        each = train * _of(sft, "num_train_epochs") * _of(sft, "max_length") / PUMA_LEARNED
        each += 2 * train * _of(dpo, "num_train_epochs") * _of(dpo, "max_length") / PUMA_PREFERRED
        each += train * dpo["candidates"] * most / PUMA_SAMPLED + test * most / WRITTEN
        seconds = variants * each
        return Counter(label_writer=train // 3), seconds, 2 * variants
    if number == "09":  # three levels of four ways to remember, some twice
        return Counter(navigator=15 * 3 * users, judge=15 * 3 * users), 0.0, 0
    if number not in ("05", "06", "07", "08"):
        return Counter(), 0.0, 0

    # Orion's: conversations to imitate, policies that are trained by rewards, tests of them on all tasks.
    rl, talks, profiled = values.get("rl", {}), 0, users + study["training_users"]
    policies, tests = 0, 0
    if number == "05":
        scaling = {values["role_play"]["n_trajectories"], *values["role_play"]["scaling"]}
        talks, tests = sum(scaling), 12 + len(scaling)
    elif number == "06":  # GRPO and PPO
        policies, tests = 2, 23
    elif number == "07":  # worlds and pipelines: each method; pipelines: GRPO without a part; variants once
        seeds, worlds, methods = len(rl["seeds"]), len(rl["worlds"]), len(rl["methods"])
        policies = (seeds + worlds) * methods + 3 * seeds + len(rl["variants"])
        talks = (seeds + worlds) * values["role_play"]["n_trajectories"]
        tests = policies + 8 * seeds + 2 * worlds
    else:
        tests = sum(map(len, study["sweep"].values()))
        profiled = users * tests
    rewarded = policies * rl["max_steps"] * rl["prompts_per_step"] * rl["num_generations"] if policies else 0
    played = 2 * talks + rewarded + tests * study["eval_tasks"]
    units = Counter(user=played, updater=played, teacher=2 * talks, judge=rewarded, profiler=profiled)
    if prompted := values["players"].get("policies"):  # five baselines each
        units["baseline"] = 5 * study["eval_tasks"]
        units["user"] += len(prompted) * units["baseline"]
    # In a test an episode has four turns, half as long as they may be.
    seconds = tests * study["eval_tasks"] * 4 * values["play"]["turn_tokens"] / 2 / WRITTEN
    seconds += rewarded * values["play"]["episode_tokens"] * STEP_S / STEP_TOKENS
    if talks:
        sft = values["sft"]
        seconds += talks * _of(sft, "num_train_epochs") * _of(sft, "max_length") / LEARNED
    return units, seconds, policies + (number in ("05", "07"))


def _of(group: Mapping[str, Any], name: str) -> Any:
    """A field of a training, in its group or among those of TRL's trainer."""
    return (group.get("trainer") or group)[name]
