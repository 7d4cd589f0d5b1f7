"""Orion's trainings from study to model folder, each made once and found again by what it was made from.

models = OrionModels(study)
kept = models.role_play(400, RewardConfig(...)).kept
base = models.base("small")
sft = models.sft(base, kept, SftSettings(...))                     supervised, on the role-play
grpo = models.reinforced("grpo", sft, GrpoSettings(...), RewardConfig(...), decoding)
curves = read_curves({"GRPO": grpo})                              the policy itself: grpo / "model"

Model cards of Orion's trained policies.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pwagents.errors import DataError
from pwagents.llm.local_model import LocalModel
from pwagents.lm.cache import KEY, cached_model, write_card
from pwagents.lm.launch import launch
from pwagents.lm.pretrain import LESSONS, base_model
from pwagents.lm.settings import SftSettings, Sharding, deciding
from pwagents.orion.base import BaseText, ids_and_titles
from pwagents.orion.judge import prompts
from pwagents.orion.play import Decoding, orion_example
from pwagents.orion.played import Played
from pwagents.orion.reward import RewardConfig
from pwagents.orion.role_play import RolePlay, play_roles
from pwagents.orion.study import Study
from pwagents.project import code_hash, project_path
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.schema import Action
from pwagents.web.episode import BeliefState

if TYPE_CHECKING:
    import pandas as pd


Stage = Literal["grpo", "ppo"]
# What decides, beside data and settings, what comes out.
ROLE_PLAY_CODE = (
    "agents/plain",
    "orion/played",
    "orion/reward",
    "orion/role_play",
    "orion/role_play",
    "orion/teacher",
    "orion/wishes",
)
SFT_CODE = ("lm/tokens", "orion/play", "lm/settings", "lm/sft")
RL_CODE = (
    "rl/advantages",
    "lm/decode",
    "lm/tokens",
    "orion/play",
    "rl/grpo",
    "rl/grpo_trainer",
    "orion/judge",
    "orion/rl_setting",
    "orion/play",
    "lm/load",
    "rl/ppo",
    "rl/ppo_loss",
    "orion/reward",
    "rl/rollout",
    "rl/settings",
    "lm/settings",
    "rl/scoring",
    "lm/decode",
    "orion/wishes",
)


@dataclass(frozen=True)
class OrionModels:
    """Makes the models of a study, or finds them in ``<output_dir>/models``; likewise what they learn from.

    Args:
        n_gpus: to train on; None takes all there are.
        sharding: over several GPUs.
        stored_only: train nothing; every model must be there.
    """

    study: Study
    n_gpus: int | None = None
    sharding: Sharding = "fsdp"
    stored_only: bool = False

    def base(self, name: str, steps: int = 0) -> Path:
        """The model that all trainings start from.

        Args:
            name: "small" makes the base model here (:mod:`pwagents.lm.pretrain`); anything else is
                the folder of a model.
            steps: of each lesson of the small model, at most; 0: as long as it takes.

        Raises:
            ValueError: there is no model in that folder.
        """
        if name != "small":
            folder = project_path(Path(name).expanduser())
            if not (folder / "config.json").exists():
                raise ValueError(
                    f"base_model {name!r}: {folder} holds no config.json; expected a saved model"
                )
            return folder
        lessons = [
            replace(each, most_steps=min(each.most_steps, steps or each.most_steps)) for each in LESSONS
        ]
        return base_model(self.study.output_dir / "models", self.base_text, self.study.seed, lessons)

    @property
    def base_text(self) -> BaseText:
        """What the small base model is pre-trained on."""
        study = self.study
        taken = ids_and_titles(study.benchmark.products)
        return BaseText(study.offline_updater, taken, study.seed)

    def role_play(self, n: int, success: RewardConfig) -> RolePlay:
        """``n`` trajectories to learn from; fewer are the first of more.

        Args:
            success: its rank and cosine count; what else it says does not matter here.

        Raises:
            DataError: see :func:`play_roles`.
        """
        study = self.study

        def nobody(state: BeliefState) -> Action:
            expected = "all of them stored; run once with stored_runs_only=False, same params, same data"
            raise DataError(store, f"user {state.user_id}", "role-play", "an episode missing", expected)

        store = study.output_dir / "runs" / "role_play.jsonl"
        facts = {"teacher": study.player("teacher"), "teacher's code": code_hash(*ROLE_PLAY_CODE)}
        return play_roles(
            study.benchmark,
            study.train_tasks,
            study.start,
            (lambda _: nobody) if self.stored_only else study.teacher,
            store,
            config=RewardConfig(success.success_rank, success.review_success),
            params={**study.facts, **facts},
            n=n,
            seed=study.seed,
            workers=study.roles.get("workers", 1),
        )

    def sft(self, start: Path, played: Sequence[Played], config: SftSettings, shown: int) -> Path:
        """Fine-tune the model in ``start`` on trajectories of the role-play.

        Args:
            shown: products of a result that the policy is told about, as in :class:`Decoding`.
        """
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(start, local_files_only=True)
        tasks = {task.task_id: task for task in self.study.train_tasks}
        ends = [each.states(self.study.benchmark, tasks[each.task_id])[-1] for each in played]
        examples = [orion_example(tokenizer, state, shown) for state in ends]

        def make(folder: Path) -> None:
            given = {"model": str(start), "examples": examples, "config": asdict(config)}
            given["out_folder"] = str(folder)
            launch("pwagents.lm.sft:train_on_plain", given, self._gpus, self.sharding)

        data = self.study.benchmark
        facts = {"data": f"{data.name}, {data.content_hash}", "trajectories": len(played), "shown": shown}
        facts |= {"examples": _digest(examples)}
        return self._cached("orion-sft", start, facts, config, SFT_CODE, make)

    def reinforced(
        self,
        stage: Stage,
        start: Path,
        config: GrpoSettings | PpoSettings,
        rewards: RewardConfig,
        decoding: Decoding,
        eval_tasks: int = 200,
    ) -> Path:
        """Train the policy in ``start`` by GRPO or PPO; the folder of the run.

        The trained policy is in ``<folder>/model``, the log is read by
        :func:`pwagents.rl.log.read_curves`.

        Args:
            decoding: of its episodes; the temperatures are those of ``config``.
            eval_tasks: test tasks for the evaluations of the log.

        Raises:
            ValueError: ``sharding`` leaves no whole weights to play episodes with.
        """
        hot = {"temperature": config.temperature, "review_temperature": config.review_temperature}
        params = {
            "study": dict(self.study.settings),
            "rewards": asdict(rewards),
            "decoding": asdict(decoding) | hot,
            "eval_tasks": eval_tasks,
        }

        def make(folder: Path) -> None:
            if self._gpus > 1:
                _check_sharding(config, self.sharding)
            given = {"stage": stage, "model": str(start), "config": asdict(config), "params": params}
            given["out_folder"] = str(folder)
            launch("pwagents.orion.rl_setting:reinforce", given, self._gpus, self.sharding)
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)

        facts = {name: params[name] for name in ("rewards", "decoding", "eval_tasks")}
        tasks = [task.task_id for task in (*self.study.train_tasks, *self.study.test_tasks)]
        judge = self.study.player("judge")
        if judge != "offline":
            judge |= {"prompt": _digest(prompts()), "code": code_hash("orion/judge")}
        facts |= {"study": self.study.facts, "judge": judge, "tasks": _digest(tasks)}
        return self._cached(f"orion-{stage}", start, facts, config, RL_CODE, make)

    def _cached(
        self,
        name: str,
        start: Path,
        facts: Mapping[str, Any],
        config: SftSettings | GrpoSettings | PpoSettings,
        code: Sequence[str],
        make: Callable[[Path], None],
    ) -> Path:
        def refuse(folder: Path) -> None:
            expected = "all trainings stored; run once with stored_runs_only=False, same params, same data"
            raise DataError(folder.parent, name, "model", "nothing", expected)

        def make_with_card(folder: Path) -> None:
            make(folder)
            write_orion_card(folder, name, parts)

        parts = {"start": LocalModel(start).name, "facts": facts, "settings": deciding(config)}
        parts |= {"code": code_hash(*code)}
        if self._gpus > 1:
            parts |= {"gpus": self._gpus, "sharding": self.sharding}
        made_by = refuse if self.stored_only else make_with_card
        return cached_model(self.study.output_dir / "models", name, parts, made_by)

    @property
    def _gpus(self) -> int:
        import torch

        return torch.cuda.device_count() if self.n_gpus is None else self.n_gpus


def _check_sharding(config: GrpoSettings | PpoSettings, sharding: Sharding) -> None:
    """Episodes are played with whole weights, of which FSDP and ZeRO-3 leave only a part on each GPU.

    vLLM gets whole ones from TRL; GRPO's trainer gathers them by itself under ZeRO-3.
    """
    if isinstance(config, PpoSettings) and sharding in ("fsdp", "deepspeed"):
        raise ValueError(f"ppo under {sharding} cannot play episodes: ddp, with an adapter where it must fit")
    if isinstance(config, GrpoSettings) and sharding == "fsdp" and not config.use_vllm:
        raise ValueError("grpo under fsdp needs vLLM, which gets whole weights: use_vllm: true, or ddp")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


WHAT = {
    "orion-sft": "Orion's agent after supervised fine-tuning on role-play: a thought, then one call.",
    "orion-grpo": "Orion's agent after GRPO on whole episodes, from the fine-tuned one.",
    "orion-ppo": "Orion's agent after PPO on whole episodes, from the fine-tuned one: the paper's baseline.",
}
POLICY = "model"  # in the folder of a run of reinforcement learning: the trained policy
_USE = """
from pwagents.orion.agent import OrionAgent
from pwagents.llm.local_model import LocalModel

agent = OrionAgent(LocalModel("path/to/this/folder"), shown={shown})  # belief state -> action
"""


def write_orion_card(
    folder: Path, name: str, parts: Mapping[str, Any], results: "pd.DataFrame | None" = None
) -> None:
    """Write the card of a model that :class:`pwagents.orion.train.OrionModels` made.

    Args:
        folder: of the model, or of the run that holds it.
        name: of its stage, one of :data:`WHAT`.
        parts: what it was made from: ``start``, ``facts``, ``settings``.
    """
    policy = folder / POLICY if (folder / POLICY).exists() else folder
    base = parts["start"].partition("@")[0]
    tags = ("orion", name.rpartition("-")[2])
    facts = parts["facts"]
    use = _USE.format(shown=facts["shown"] if "shown" in facts else facts["decoding"]["shown"])
    write_card(policy, name, WHAT[name], facts, parts["settings"], results, base=base, tags=tags, use=use)


def add_results(folder: Path, results: "pd.DataFrame") -> None:
    """Write a trained model's card anew, with measured numbers: a row for each comparison."""
    parts = json.loads((folder / KEY).read_text("utf-8"))
    write_orion_card(folder, folder.name.rpartition("-")[0], parts, results)
