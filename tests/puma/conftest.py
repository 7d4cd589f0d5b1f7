"""Settings of notebook 04 for the tests' small world and models."""

from dataclasses import replace

import pytest

from pwagents.notebook.settings import preset_values
from pwagents.puma.settings import PumaNotebook

SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """The preset smoke; results go to a folder of the tests."""
    values = preset_values("04_puma", PumaNotebook, "smoke")
    return PumaNotebook(preset="smoke", output_dir=tmp_path_factory.mktemp("puma"), **values)


@pytest.fixture(scope="session")
def tiny(smoke):
    """Trainings of seconds that learn."""
    fast = {"per_device_train_batch_size": 4, "learning_rate": 2e-2}
    sft = replace(smoke.sft, lora=(4, 8), trainer=smoke.sft.trainer | fast | {"max_steps": 12})
    own = {"num_train_epochs": 4.0, "per_device_train_batch_size": 2}
    fields = smoke.dpo.trainer | fast | own
    dpo = replace(smoke.dpo, variants=(), lora=(4, 8), candidates=3, trainer=fields)
    study = replace(smoke.study, max_call_tokens=12)
    return replace(smoke, study=study, identify=sft, sft=sft, dpo=dpo)


@pytest.fixture(scope="session")
def tiny_world(tiny):
    """And a world of seconds: eight users, and four more to train on."""
    data = replace(tiny.data, n_users=8, n_products=200)
    shop = replace(tiny.shop, recommender=replace(tiny.shop.recommender, epochs=1))
    return replace(tiny, data=data, shop=shop, study=replace(tiny.study, training_users=4))
