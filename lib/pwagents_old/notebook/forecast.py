"""GPU hours and US dollars that a notebook takes, estimated from its settings before anything is loaded.

All are estimates. Rates are what ``benchmarks/gpu_proof.py`` measured with seven billion parameters on an
H200 (bfloat16, an adapter, no vLLM, which writes several times as fast). Where language models are asked,
notebooks 02 to 04 and 09 show a closer estimate of their cost once their data are loaded.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.llm.budget import Load, estimate

if TYPE_CHECKING:
    import pandas as pd

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
    """What a notebook takes: tokens of all endpoints, paid or not; trainings are models left on the disk."""

    gpu_hours: float
    usd: float
    tokens: float
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
        return Forecast(0.0, 0.0, 0, 0)
    _, seconds, trainings = _work(notebook[:2], values)
    asked = estimate_calls(notebook, values)
    asked = asked[asked["model"].str.startswith("openai:")]
    cost = float(asked["US dollars"].sum()), int(asked[["prompt tokens", "reply tokens"]].to_numpy().sum())
    return Forecast(seconds / 3600, *cost, trainings) if trains else Forecast(0.0, *cost, 0)


def estimate_calls(notebook: str, values: Mapping[str, Any]) -> "pd.DataFrame":
    """Estimate what a notebook asks of language models at most, by :func:`~pwagents.llm.budget.estimate`.

    Args:
        notebook, values: as of :func:`forecast`.
    """
    players, loads = values["players"], {}
    # Some roles are played by several models, each of which has a row.
    policy = players.get("policy", "")
    several = {"navigator": [policy], "policy": [policy, *players.get("more_policies", ())]}
    several["baseline"] = players.get("policies", ())
    for role, n in _work(notebook[:2], values)[0].items():
        for spec in several.get(role, [players.get(role, "")]):
            loads[role if role not in several else f"{role}, {spec}"] = Load(spec, n, *CALLS[role])
    return estimate(loads)


def _work(number: str, values: Mapping[str, Any]) -> tuple[Counter, float, int]:
    """Units of each role, seconds on a GPU, and models that are trained."""
    users, study = values.get("histories", values["data"])["n_users"], values.get("study", {})
    if number == "02":  # six tasks twice; eight questions a user, half of CALLS' calls
        return Counter(profiler=users // 2, writer=12, judge=4 * users), 0.0, 0
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
        names = values["identify"]  # step 1, which all variants share
        seconds = train * _of(names, "num_train_epochs") * _of(names, "max_length") / PUMA_LEARNED
        seconds += variants * each
        # Preferences start from a whole model; a variant's two adapters, with embeddings, are a third of one.
        return Counter(label_writer=train // 3), seconds, variants + variants // 3
    if number == "09":  # three levels of four ways to remember, some twice
        return Counter(navigator=15 * 3 * users, judge=15 * 3 * users), 0.0, 0
    if number not in ("05", "06", "07", "08"):
        return Counter(), 0.0, 0

    return _orion_work(number, values)


def _orion_work(number: str, values: Mapping[str, Any]) -> tuple[Counter, float, int]:
    """As :func:`_work`, of 05 to 08: conversations to imitate, trainings by rewards, and all that is played.

    What notebook 05 makes for the others counts there alone. A language model as judge scores every episode
    but the conversations: each is paid, or its return is told.
    """
    rl, study, players = values.get("rl", {}), values["study"], values["players"]
    kept, users = values["role_play"]["n_trajectories"], values["data"]["n_users"]
    everybody, rungs = users + study["training_users"], len(values["role_play"]["ladder"])
    ladder = rungs * values["role_play"]["ladder_tasks"]  # on train tasks or on test tasks
    talks = learned = tuned = trainings = tests = further = written = 0
    profiled = everybody
    if number == "05":
        # Tests: five references, two models greedily and sampled, one with three other profiles.
        numbers = {kept, *values["role_play"]["scaling"]}
        talks, learned, tuned, written = max(numbers), sum(numbers), len(numbers), everybody
        tests, further = 11 + len(numbers), 2 * ladder
    elif number == "06":
        # Likewise; two policies with other profiles, and twice with other instructions. In each further world
        # base and fine-tuned model are made and tested, too.
        others = {*rl["worlds"]} - {values["seed"]} if values["data"]["source"] == "synthetic" else ()
        worlds, methods = len(others), len(rl["methods"])
        trainings, tuned, written = (1 + worlds) * methods, worlds, worlds * everybody
        talks = learned = worlds * kept
        tests, profiled = 15 + 2 * methods + worlds * (2 + methods), profiled * (1 + worlds)
        further = (1 + worlds) * ladder + 4 * study["complete_tasks"]
    elif number == "07":
        # Pipelines end in each method and in GRPO without each of three parts; variants are trained once.
        # Tested are base and fine-tuned models, too, GRPO's policies with three other profiles and without
        # each part, and with all parts two of those trained without one.
        seeds, methods = len(rl["seeds"]), len(rl["methods"])
        trainings, tuned = seeds * methods + 3 * seeds + len(rl["variants"]), seeds
        talks = learned = seeds * kept
        tests = trainings + 10 * seeds
        profiled *= 4
    else:
        # Lengths of histories are varied with and without clusters, each world has four parts; whoever is
        # trained with other profiles is compared with one that has the usual ones.
        sweep = study["sweep"]
        remade = sum(len(sweep[name]) for name in ("alpha", "l_c", "clusters", "last", "last", "noise"))
        remade += 4 * len(sweep["worlds"])
        others = len(sweep["trained_alpha"]) + len(sweep["trained_l_c"])
        trainings = len(sweep["patience"]) + others + bool(others)
        tests = remade + len(sweep["users"]) + trainings + 1
        profiled = users * remade + everybody * (others + 1)

    episodes = rl["prompts_per_step"] * rl["num_generations"] if rl else 0
    paid = trainings * rl["max_steps"] * episodes if rl else 0
    if rl and rl["eval_steps"]:  # before the first step, every so many, and after the last
        further += trainings * (2 + rl["max_steps"] // rl["eval_steps"]) * rl["log_tasks"]
    judged = paid + tests * study["eval_tasks"] + further
    played = 2 * talks + judged  # one conversation of two is kept
    units = Counter(user=played, updater=played, teacher=2 * talks, judge=judged, profiler=profiled)
    if number == "05":
        units["teacher"] += study["eval_tasks"]
    if written:  # all tasks of a world, once for all notebooks
        units["writer"] = round((TRAIN + TEST) * written)
    if prompted := players.get("policies"):  # five baselines each
        units["baseline"] = 5 * study["eval_tasks"]
        units["user"] += len(prompted) * units["baseline"]

    # In a test an episode has four turns, half as long as they may be.
    seconds = (judged - paid) * 4 * values["play"]["turn_tokens"] / 2 / WRITTEN
    seconds += paid * values["play"]["episode_tokens"] * STEP_S / STEP_TOKENS
    sft = values["sft"]
    seconds += learned * _of(sft, "num_train_epochs") * _of(sft, "max_length") / LEARNED
    return units, seconds, trainings + tuned


def _of(group: Mapping[str, Any], name: str) -> Any:
    """A field of a training, in its group or among those of TRL's trainer."""
    return (group.get("trainer") or group)[name]
