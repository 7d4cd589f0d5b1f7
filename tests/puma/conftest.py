"""Settings of notebook 04 for the tests' small world and models, and the world that is made by hand."""

from dataclasses import replace

import pytest

from pwagents.lm.small import make_small_model
from pwagents.notebook.settings import settings_values
from pwagents.puma.settings import PumaNotebook
from pwagents.puma.study import PumaStudy
from pwagents.puma.worlds import load_worlds

from . import by_hand

SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """The preset smoke; results go to a folder of the tests."""
    values = settings_values("04_puma", PumaNotebook, {"preset": "smoke"})
    return PumaNotebook(**values | {"output_dir": tmp_path_factory.mktemp("puma")})


@pytest.fixture(scope="session")
def tiny(smoke, tokenizer, tmp_path_factory):
    """A world and trainings of seconds that learn: eight users, and four more to train on."""
    base = tmp_path_factory.mktemp("base")
    make_small_model(tokenizer, 0, SIZE).save_pretrained(base)
    tokenizer.save_pretrained(base)
    shop = replace(smoke.shop, recommender=replace(smoke.shop.recommender, epochs=1))
    fast = {"learning_rate": 2e-2, "per_device_train_batch_size": 4, "max_steps": 12}
    sft = replace(smoke.sft, lora=(4, 8), trainer=smoke.sft.trainer | fast)
    fast |= {"per_device_train_batch_size": 2, "max_steps": -1, "num_train_epochs": 4.0}
    few = {"candidates": 3, "train_tasks": 8, "variants": (), "held_out": 0.0}
    return replace(
        smoke,
        base=replace(smoke.base, model=str(base)),
        data=replace(smoke.data, n_users=8, n_products=200),
        shop=shop,
        study=replace(smoke.study, max_new_tokens=12, training_users=4, test_tasks=6, seeds=(0,)),
        identify=sft,
        sft=sft,
        dpo=replace(smoke.dpo, lora=(4, 8), trainer=smoke.dpo.trainer | fast, **few),
    )


@pytest.fixture(scope="session")
def study(tiny):
    return PumaStudy(load_worlds(tiny), tiny, tiny.base.folder(tiny.output_dir))


@pytest.fixture(scope="session")
def world():
    """Made by hand, as are the next two."""
    return by_hand.make_benchmark()


@pytest.fixture(scope="session")
def memory(world):
    return by_hand.memory_of(world)


@pytest.fixture(scope="session")
def begun(world):
    """By the name of the task."""
    return by_hand.begun_of(world, "train") | by_hand.begun_of(world, "test")
