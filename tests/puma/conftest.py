"""Settings of notebook 04 for the tests' small world and models."""

from dataclasses import replace

import pytest

from pwagents.notebook.settings import settings_values
from pwagents.puma.settings import PumaNotebook

SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """The preset smoke; results go to a folder of the tests."""
    values = settings_values("04_puma", PumaNotebook, {"preset": "smoke"})
    return PumaNotebook(**values | {"output_dir": tmp_path_factory.mktemp("puma")})


@pytest.fixture(scope="session")
def tiny(smoke):
    """A world and trainings of seconds that learn: eight users, and four more to train on."""
    data = replace(smoke.data, n_users=8, n_products=200)
    shop = replace(smoke.shop, recommender=replace(smoke.shop.recommender, epochs=1))
    fast = {"per_device_train_batch_size": 4, "learning_rate": 2e-2, "max_steps": 12}
    sft = replace(smoke.sft, lora=(4, 8), trainer=smoke.sft.trainer | fast)
    trainer = smoke.dpo.trainer | {
        "learning_rate": 2e-2,
        "per_device_train_batch_size": 2,
        "num_train_epochs": 4.0,
    }
    dpo = replace(
        smoke.dpo, lora=(4, 8), candidates=3, train_tasks=8, variants=(), held_out=0.0, trainer=trainer
    )
    study = replace(smoke.study, max_new_tokens=12, training_users=4, test_tasks=6, seeds=(0,))
    return replace(smoke, data=data, shop=shop, study=study, identify=sft, sft=sft, dpo=dpo)
