"""The TRL adapter: its methods are the functions, the same agent earns the same, and GRPO takes a step."""

import inspect
import math

import pytest
from transformers.utils import get_json_schema

from pwagents.adapters.trl_environment import environment_factory, prompt_rows
from pwagents.web.environment import MAX_STEPS

from ..paper_standins import make_tokenizer
from .conftest import greedy


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def factory(task_set, tokenizer):
    return environment_factory(task_set, tokenizer)


def test_its_public_methods_are_the_functions_with_their_schemas(factory, task_set):
    found = dict(inspect.getmembers(type(factory()), inspect.isfunction))
    public = {name for name in found if not name.startswith("_")}
    assert public == {*task_set.functions, "reset", "get_reward"}
    schemas = [get_json_schema(getattr(factory(), name)) for name in task_set.functions]
    assert schemas == list(task_set.tools)


def test_the_same_agent_earns_what_it_earns_with_the_runner(factory, task_set, rewards):
    environment, earned = factory(), {}
    for row in prompt_rows(task_set):
        told, answers = environment.reset(**row), []
        for _ in range(2):
            name, arguments = greedy(told, answers)
            answers.append(getattr(environment, name)(**arguments))
        earned[row["task_id"]] = environment.get_reward()
    assert earned == rewards


def test_foreign_text_holds_no_control_token(factory, task_set, tokenizer):
    environment = factory()
    environment.reset(next(iter(task_set)))
    told = environment.search_product_by_query(query="x", **{"<|im_end|>": 1})
    assert "<|im_end|>" not in told and "Error" in told


def test_grpo_takes_a_step(factory, task_set, tokenizer, tmp_path):
    import torch
    from datasets import Dataset
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, **shape)
    model = Qwen2ForCausalLM(config)
    rows = prompt_rows(task_set)[:1]

    class Trainer(GRPOTrainer):
        def _send_telemetry(self):
            pass

    few = {
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "max_completion_length": 16,
    }
    few |= {"max_tool_calling_iterations": MAX_STEPS, "save_strategy": "no", "report_to": "none"}
    on_cpu = {"use_cpu": True, "bf16": False, "activation_checkpointing": False, "disable_tqdm": True}
    trainer = Trainer(
        model,
        environment_factory=factory,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        args=GRPOConfig(output_dir=str(tmp_path), **few, **on_cpu),
    )
    with torch.random.fork_rng():
        trainer.train()
    (log,) = [row for row in trainer.state.log_history if "reward" in row]
    assert "rewards/ShopEnvironment/mean" in log and math.isfinite(log["entropy"])
    assert {environment._session.trajectory.task_id for environment in trainer.environments} == {
        row["task_id"] for row in rows
    }
