"""Notebook 02's analyses: profiles judged by the truth, by searches, by their cost and by what users do."""

from pwagents.data.synthetic import make_world
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.offline import OfflineProfiler
from pwagents.schema import Review, Task
from pwagents.settings import WorldSettings
from pwagents.shop.search import Bm25Engine
from pwagents_old.benchmark import analyses_02 as analyses

TITLES = {"B1": "red oak stool", "B2": "blue oak stool", "B3": "steel kettle"}
TITLES |= {f"C{i}": f"{color} chair" for i, color in enumerate(("red", "blue") * 3)}
TASK = Task(
    task_id="t", user_id="u", type="search", timestamp=1, instruction="a blue stool", target="B2",
    review=Review(rating=5),
)  # fmt: skip


def test_the_right_interest_is_found_mostly_and_never_where_it_is_unknown(embedder):
    world = make_world(WorldSettings(n_users=30, n_products=400, history=(10, 60)), seed=0)
    benchmark, tasks = world.benchmark, world.benchmark.tasks["test"]
    histories = {task.user_id: benchmark.history(task, "test") for task in tasks}
    profiler = OfflineProfiler(Catalogue(benchmark.products))
    profiles = profile_users(histories, benchmark.products, embedder, profiler, 0)
    quality = analyses.profile_quality(world, profiles, histories, tasks, embedder)
    long = quality["behaviors"] > 15
    assert quality.loc[~long, "nearest"].isna().all() and quality.loc[long, "nearest"].mean() > 0.7
    assert not quality.loc[long & ~quality["known"], "holds"].any()
    assert (quality["right"] <= quality["lines"]).all() and (quality["named"] <= quality["preferences"]).all()
    table = analyses.by_length(quality)
    assert table["tasks"].sum() == len(quality) and table["precision"].between(0, 1).all()


def test_a_value_that_matters_pays_and_one_that_the_instruction_has_is_not_added():
    engine = Bm25Engine({asin: TITLES[asin] for asin in ("B1", "B2", "B3")})
    task = TASK.model_copy(update={"instruction": "an oak stool"})
    values = {"right": [["oak", "blue"]], "wrong": [["red"]]}
    frame = analyses.search_with_profiles(engine, [task], values)
    accuracy = frame.set_index(["method", "added"])["result_accuracy"]
    assert accuracy["right", 0] == accuracy["wrong", 0] == accuracy["wrong", 1] == 0.9
    assert accuracy["right", 1] == 1.0
