"""Settings of Orion's notebooks, 05 to 08: their groups, and what follows from several groups together."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pwagents.schema import TaskType
from pwagents.settings.group import (
    Group,
    Numbers,
    Players,
    S,
    Seeds,
    Share,
    Variants,
    Worlds,
    plain,
    player,
    values_of,
    variants_of,
)
from pwagents.settings.shared import NotebookSettings, ShopSettings
from pwagents.settings.training import BaseSettings, GrpoSettings, PpoSettings, SftSettings, use_vllm

# users/rules.py has the four in the middle.
User = Annotated[str, player("rules", "terse", "vague", "wrong", "impatient", "none")]
World = Literal["as it is", "one interest", "no drift", "explicit instructions"]
Counts = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class Success(Group):
    """What counts as success of an episode, at its last attempt: the paper does not say.

    A recommendation succeeds with the target anywhere among its ten.
    """

    success_rank: Annotated[int, Field(ge=1, le=10)] = S(3, "Of a search's target, at most.")
    # Users' own earlier reviews reach as much on average in the synthetic world.
    review_success: Annotated[float, Field(ge=-1, le=1)] = S(0.35, "A review succeeds from this cosine on.")


class ReturnSettings(Group):
    """What an episode earns beside success."""

    alignment_weight: NonNegativeFloat = S(1.0, "Of the judge's scores beside success. Orion, 4.3: 1.0.")


class RewardSettings(Success, ReturnSettings):
    """What an episode earns."""

    patience: NonNegativeFloat = S(0.0, "What each question costs. Orion, 4.3: a neutral action scores 0.")


class OrionPlayers(Players):
    """Who plays the roles around the policy."""

    writer: Annotated[str, player("offline")] = S("offline", "Writes instructions; offline: templates.")
    profiler: Annotated[str, player("offline")] = S("offline", "Writes users' profiles.")
    updater: Annotated[str, player("offline", "none")] = S("offline", "Updates the profile; or none.")
    user: User = S("rules", "Answers questions: terse, vague, wrong and impatient are rules, too; or none.")
    teacher: Annotated[str, player("offline")] = S("offline", "Plays the agent in the role-play.")
    judge: Annotated[str, player("offline")] = S("offline", "Scores actions for the alignment reward.")
    shown: PositiveInt = S(10, "Products of a search result that policy, teacher and judge are told about.")


class StudySettings(Group):
    """Who is trained on, and who is tested."""

    task_types: Annotated[tuple[TaskType, ...], Field(min_length=1)] = S(("search",), "The paper: all.")
    training_users: PositiveInt = S(..., "Users to train on, beside the n_users held out.")
    # Ambiguous: generic requests that only a profile or the user can resolve (Orion, 4.3).
    instructions: Literal["ambiguous", "explicit"] = S("ambiguous", "explicit: the source's, a control.")
    alpha: NonNegativeInt = S(..., "No interest clusters for histories of at most so many behaviors.")
    l_c: PositiveInt = S(..., "Behaviors of a cluster that its micro-profile is made from, at most.")
    micro_profiles: bool = S(True, "Whether the agent is told of interests; the user always knows them.")
    eval_tasks: NonNegativeInt = S(..., "Test tasks of held-out users, at most, at random; 0 takes all.")
    tasks_a_user: NonNegativeInt = S(0, "Test tasks of each held-out user, at most, the first; 0 takes all.")


class RolePlaySettings(Success):
    """The conversations that fine-tuning learns from: those that succeeded."""

    n_trajectories: PositiveInt = S(400, "Conversations to learn from. Orion, 4.3: 400.")
    ladder: Annotated[Numbers, Field(min_length=1)] = S(
        (0, 1, 2, 3, 4, 5, 6), "Numbers of questions that the teacher by rules is tried with."
    )
    ladder_tasks: PositiveInt = S(300, "Train tasks, and test tasks, that it is tried on.")
    not_updated: Share = S(0.0, "Mixed demonstrations: the share without an update; 0: none are made.")


class EpisodeSettings(Group):
    """How a policy plays an episode."""

    turn_tokens: PositiveInt = S(64, "Of a turn, at most; a longer one is cut off and its step lost.")
    episode_tokens: PositiveInt = S(1024, "An episode that is longer ends after its turn.")
    batch_size: PositiveInt = S(64, "Episodes at once.")
    temperature: NonNegativeFloat = S(1.0, "Of sampled episodes but reviews (1.0); 0: the most likely token.")


class Decoding(EpisodeSettings):
    """All that says how a policy's turns are sampled."""

    shown: PositiveInt = S(10, "Products of a search result that the policy is told about.")
    workers: PositiveInt = S(1, "Actions carried out at a time, for users behind an endpoint.")

    @property
    def greedy(self) -> Self:
        """Return the same with the most likely token at each place."""
        return self.changed(temperature=0.0)


class OnlineSettings(GrpoSettings, PpoSettings):
    """Reinforcement learning: GRPO's settings, PPO's, most of which are GRPO's too, and the rest."""

    alignment_weight: NonNegativeFloat | None = S(None, "Of the judge's scores; none: as in reward.")
    patience: NonNegativeFloat = S(0.0, "What each question costs.")
    use_vllm: Annotated[bool | None, Field(validate_default=True)] = S(
        False, "vLLM plays the episodes; none: where it is installed and there is a GPU."
    )
    log_tasks: NonNegativeInt = S(200, "Validation tasks of the evaluations on the way, at random; 0: all.")

    @property
    def grpo(self) -> GrpoSettings:
        """Return GRPO's settings alone."""
        return GrpoSettings(**values_of(GrpoSettings, self) | {"use_vllm": use_vllm(self.use_vllm)})

    @property
    def ppo(self) -> PpoSettings:
        """Return those of PPO: GRPO's recipe, and as many episodes as GRPO plays where it draws once.

        GRPO plays each task of a step several times, to compare; PPO, whose critic learns from many tasks
        better than from few, plays as many tasks once.
        """
        own = {"prompts_per_step": self.episodes, "num_generations": 1, "use_vllm": use_vllm(self.use_vllm)}
        return PpoSettings(**values_of(PpoSettings, self) | own)

    @property
    def configs(self) -> dict[str, GrpoSettings | PpoSettings]:
        """Return the settings of each method, by its name."""
        return {"GRPO": self.grpo, "PPO": self.ppo}

    @field_validator("use_vllm")
    @classmethod
    def _check_vllm(cls, wanted: bool | None, info: ValidationInfo) -> bool | None:
        # Of several GPUs, each holds a part of the weights under FSDP; episodes are played with whole ones.
        apart = info.data.get("sharding") == "fsdp" and info.data.get("n_gpus", 1) > 1
        if not use_vllm(wanted) and apart:
            raise ValueError("expected vLLM, which gets whole weights, where sharding is fsdp")
        return wanted


class OrionSettings(NotebookSettings):
    """What Orion's notebooks share. A study is made of it (:func:`pwagents.orion.study.make_study`)."""

    SECTION: ClassVar[str] = "orion"
    FOLLOWS: ClassVar[Mapping[str, str]] = {"sft.seed": "seed"}

    shop: ShopSettings
    players: OrionPlayers
    study: StudySettings
    base: BaseSettings
    reward: ReturnSettings
    role_play: RolePlaySettings
    sft: SftSettings
    play: EpisodeSettings

    @property
    def success(self) -> Success:
        """Return which conversations of the role-play succeed."""
        return Success(**values_of(Success, self.role_play))

    @property
    def earned(self) -> RewardSettings:
        """Return what an episode earns: for success, as the role-play has it, and for alignment."""
        return RewardSettings(**values_of(Success, self.role_play), **plain(self.reward))

    @property
    def one_by_one(self) -> bool:
        """Return whether trainings follow one another: none is made, or roles' models share a budget."""
        return self.stored_runs_only or self.players.are_models

    @property
    def decoding(self) -> Decoding:
        """Return how a policy plays episodes, and what it is shown in them."""
        return Decoding(**plain(self.play), shown=self.players.shown, workers=self.players.workers)


class CurveSettings(RolePlaySettings):
    """The role-play of notebook 05, which learns from several numbers of conversations."""

    scaling: Numbers = S((), "Other numbers of conversations to compare with.")

    @property
    def numbers(self) -> list[int]:
        """Return all numbers of conversations that are learned from."""
        return sorted({self.n_trajectories, *self.scaling})


class SftNotebook(OrionSettings):
    """Notebook 05."""

    role_play: CurveSettings


class ReinforcedNotebook(OrionSettings):
    """What the notebooks on reinforcement learning share."""

    FOLLOWS: ClassVar[Mapping[str, str]] = {
        "sft.seed": "seed",
        "rl.seed": "seed",
        "rl.temperature": "play.temperature",  # episodes are sampled in training as in the test
    }

    rl: OnlineSettings

    @model_validator(mode="after")
    def _check_modules(self) -> Self:
        # Such modules are held in float32, and episodes are played without autocast, all else in bfloat16.
        if self.sft.modules_to_save and self.rl.bf16 and self.rl.lora:
            raise ValueError("sft.modules_to_save: expected none where rl has lora and bf16")
        return self

    @property
    def paid(self) -> RewardSettings:
        """Return what the training pays: :attr:`earned`, but for what ``rl`` has otherwise."""
        weight = self.rl.alignment_weight
        own = {} if weight is None else {"alignment_weight": weight}
        return self.earned.changed(patience=self.rl.patience, **own)

    def seeded(self, seed: int) -> Self:
        """Change the seed of all samples and trainings; data loaded with it are those of another world.

        What is made with another has a folder of its own, so that worlds can be made beside each other. Where
        language models play roles, worlds follow one another and share their replies and their budget.
        """
        folder = self.output_dir
        if seed != self.seed and not self.players.are_models:
            folder = folder / "worlds" / str(seed)
        return self.changed(seed=seed, output_dir=folder, sft={"seed": seed}, rl={"seed": seed})


class RepeatedSettings(OnlineSettings):
    """Reinforcement learning in notebook 06: by GRPO and, where it is wanted, by PPO, in further worlds."""

    worlds: Worlds = S((), "Seeds of whole synthetic worlds, data and trainings; none: only this world.")
    methods: tuple[Literal["GRPO", "PPO"], ...] = S(..., "What is trained from the same fine-tuned model.")

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        if "GRPO" not in methods:
            raise ValueError("expected GRPO among methods")
        return methods


class PromptedPlayers(OrionPlayers):
    """The players of notebook 06, with the models behind the prompt baselines of Orion's Table 1."""

    policies: tuple[Annotated[str, player()], ...] = S((), "Models that play each baseline, if any.")


class GrpoNotebook(ReinforcedNotebook):
    """Notebook 06."""

    players: PromptedPlayers
    rl: RepeatedSettings


class AblationSettings(OnlineSettings):
    """Reinforcement learning in notebook 07: several trainings of each way, from one fine-tuned model."""

    seeds: Seeds = S(..., "Of the trainings by rewards; the first is notebook 06's where it is the run's.")
    variants: Variants = S((), "GRPO with one thing changed: a name each, and what differs of this group.")
    design: Worlds = S((), "Seeds of whole pipelines with and without asking and update; none: not made.")

    @property
    def varied(self) -> dict[str, Self]:
        """Return the name of each variant -> its settings."""
        return variants_of(self, taken=("SFT", "GRPO", "permuted returns"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, rl in self.varied.items():  # raises where one has settings that there are not
            ours, theirs = ((each.grpo, each.alignment_weight, each.patience) for each in (self, rl))
            if (theirs[0].changed(seed=self.seed), *theirs[1:]) == ours:
                raise ValueError(f"expected variants that change something of GRPO, as {name!r} does not")
        return self


class AblationsNotebook(ReinforcedNotebook):
    """Notebook 07."""

    rl: AblationSettings


class SweepSettings(Group):
    """What notebook 08 varies, each beside its value in study, players and reward."""

    alpha: tuple[NonNegativeInt, ...] = S(..., "Clustering thresholds; Orion's Figure 4.")
    l_c: Counts = S(..., "Behaviors that a micro-profile is made from, at most; Orion's Figure 4.")
    last: Counts = S(..., "Behaviors known of each history, the last.")
    users: Annotated[tuple[User, ...], Field(min_length=1)] = S(..., "Simulated users (players.user).")
    trained_alpha: tuple[NonNegativeInt, ...] = S(..., "Of trainings: clustering thresholds.")
    trained_l_c: tuple[PositiveInt, ...] = S(..., "Of trainings: context sizes.")
    patience: tuple[NonNegativeFloat, ...] = S(..., "Of trainings: what a question costs.")
    worlds: Annotated[tuple[World, ...], Field(min_length=1)] = S(..., "The world, or easier in one way.")


class SweptStudy(StudySettings):
    """The study of notebook 08."""

    sweep: SweepSettings


class SensitivityNotebook(ReinforcedNotebook):
    """Notebook 08."""

    study: SweptStudy
