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
from pwagents.settings.rl import GrpoSettings, PpoSettings, use_vllm
from pwagents.settings.shared import BaseSettings, NotebookSettings, SftSettings, ShopSettings

Paid = Literal["both", "task", "alignment"]
# users/rules.py has the four in the middle.
User = Annotated[str, player("rules", "terse", "vague", "wrong", "impatient", "none")]
World = Literal["as it is", "one interest", "no drift", "explicit instructions"]
Counts = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class Success(Group):
    """What counts as success of an episode: the paper does not say."""

    success_rank: Annotated[int, Field(ge=1, le=10)] = S(
        3, "A search succeeds with the target at this rank or better, in the last attempt."
    )
    recommendation_rank: Annotated[int, Field(ge=1, le=10)] = S(
        10, "A recommendation likewise: most requests for one say little, so that among the ten is much."
    )
    review_success: Annotated[float, Field(ge=-1, le=1)] = S(
        0.35,
        "A review succeeds from this cosine with the real one on. Users' own earlier reviews reach as "
        "much on average in the embedded data, without a look at the product.",
    )


class ReturnSettings(Group):
    """What an episode earns beside success."""

    alignment_weight: NonNegativeFloat = S(1.0, "Of the judge's scores beside success. Orion, 4.3: 1.0.")
    patience: NonNegativeFloat = S(0.0, "What each question costs. Orion, 4.3: a neutral action scores 0.")


class RewardSettings(Success, ReturnSettings):
    """What an episode earns."""

    use: Paid = S("both", "The whole reward, or one half of it.")


class OrionPlayers(Players):
    """Who plays the roles around the policy."""

    writer: Annotated[str, player("offline")] = S(
        "offline",
        "Writes the ambiguous instructions, from the target back to the request; offline: templates.",
    )
    profiler: Annotated[str, player("offline")] = S("offline", "Writes users' profiles.")
    updater: Annotated[str, player("offline", "none")] = S(
        "offline", "Follows an episode and updates its contextual profile; none: the profile stays as it was."
    )
    user: User = S(
        "rules",
        "Answers the agent's questions; terse, vague, wrong and impatient: rules that make it harder "
        "(users/rules.py); none: nobody does.",
    )
    teacher: Annotated[str, player("offline")] = S(
        "offline", "Plays the agent in the role-play that the policy learns from."
    )
    judge: Annotated[str, player("offline")] = S(
        "offline", "Scores actions for the alignment reward, in reinforcement learning."
    )
    shown: PositiveInt = S(10, "Products of a search result that policy, teacher and judge are told about.")


class StudySettings(Group):
    """Who is trained on, and who is tested."""

    task_types: Annotated[tuple[TaskType, ...], Field(min_length=1)] = S(
        ("search",), "Tasks to train and to test on; the paper has all three."
    )
    training_users: PositiveInt = S(
        ..., "Users to train on, beside the n_users held out; where the source has fewer, both shrink alike."
    )
    validation: Share = S(
        0.05, "Share of these that are held out from all training: its progress is measured on them."
    )
    instructions: Literal["ambiguous", "explicit"] = S(
        "ambiguous",
        "Ambiguous: generic requests that only a profile or the user can resolve (Orion, 4.3); explicit: "
        "the source's own, as a control.",
    )
    alpha: NonNegativeInt = S(
        ..., "No interest clusters, and so no micro-profiles, for histories of at most so many behaviours."
    )
    l_c: PositiveInt = S(..., "Behaviours of a cluster that its micro-profile is made from, at most.")
    micro_profiles: bool = S(
        True,
        "Whether the agent is told of interests; false: of the global profile alone. The user knows both.",
    )
    eval_tasks: NonNegativeInt = S(
        ..., "Test tasks of held-out users, at most, drawn at random; 0 takes all."
    )
    tasks_a_user: NonNegativeInt = S(
        0, "Test tasks of each held-out user, at most, the first; 0 takes all. Who has bought much has more."
    )
    seed_noise: dict[str, NonNegativeFloat] | None = S(
        None,
        "How far pipelines of one method with other seeds differ in result accuracy, at most, on each "
        "type of task and overall: notebook 07 measures it, 05 and 06 use it; none: not measured at this "
        "preset.",
    )


class RolePlaySettings(Success):
    """The conversations that fine-tuning learns from: those that succeeded."""

    n_trajectories: PositiveInt = S(400, "Conversations to learn from. Orion, 4.3: 400.")
    questions: NonNegativeInt | None = S(
        None,
        "The teacher by rules asks at most so many; none: as many of ladder as give the highest return on"
        " train tasks.",
    )
    ladder: Annotated[Numbers, Field(min_length=1)] = S(
        (0, 1, 2, 3, 4, 5, 6), "Numbers of questions that the teacher by rules is tried with."
    )
    ladder_tasks: PositiveInt = S(300, "Train tasks, and test tasks, that it is tried on.")


class EpisodeSettings(Group):
    """How a policy plays an episode."""

    turn_tokens: PositiveInt = S(64, "Of a turn, at most; a longer one is cut off and its step lost.")
    episode_tokens: PositiveInt = S(1024, "An episode that is longer ends after its turn.")
    batch_size: PositiveInt = S(64, "Episodes at once.")
    temperature: NonNegativeFloat = S(
        1.0, "Of sampled episodes; 0 takes the most likely token. Orion, 5.1: 0.6."
    )
    review_temperature: NonNegativeFloat = S(1.0, "Of sampled review tasks. Orion, 5.1: 1.0.")


class Decoding(EpisodeSettings):
    """All that says how a policy's turns are sampled."""

    shown: PositiveInt = S(10, "Products of a search result that the policy is told about.")
    workers: PositiveInt = S(
        1, "Actions carried out at a time: several pay where user or updater are behind an endpoint."
    )

    def temperature_of(self, type_: TaskType) -> float:
        return self.review_temperature if type_ == "review" else self.temperature

    @property
    def greedy(self) -> Self:
        """Return the same with the most likely token at each place."""
        return self.changed(temperature=0.0, review_temperature=0.0)


class OnlineSettings(GrpoSettings, PpoSettings):
    """Reinforcement learning: GRPO's settings, PPO's, most of which are GRPO's too, and the rest."""

    alignment_weight: NonNegativeFloat | None = S(
        None, "Of the judge's scores beside success; none: that of reward."
    )
    patience: NonNegativeFloat | None = S(None, "What each question costs; none: that of reward.")
    reward: Paid = S("both", "What is paid for: success and alignment, or one of the two alone.")
    use_vllm: Annotated[bool | None, Field(validate_default=True)] = S(
        False, "vLLM plays the episodes; none: where it is installed and there is a GPU."
    )
    log_tasks: NonNegativeInt = S(
        200, "Tasks of validation users that the evaluations on the way are on, at random; 0: all."
    )

    @property
    def grpo(self) -> GrpoSettings:
        """Return GRPO's settings alone."""
        return GrpoSettings(**values_of(GrpoSettings, self) | {"use_vllm": use_vllm(self.use_vllm)})

    @property
    def ppo(self) -> PpoSettings:
        """Return those of PPO with equal means: as many updates, from as many episodes, at the same rate.

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
        # Episodes are sampled in training as in the test.
        "rl.temperature": "play.temperature",
        "rl.review_temperature": "play.review_temperature",
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
        own = {"alignment_weight": self.rl.alignment_weight, "patience": self.rl.patience}
        own = {name: value for name, value in own.items() if value is not None}
        return self.earned.changed(use=self.rl.reward, **own)

    def seeded(self, seed: int) -> Self:
        """Change the seed of all samples and trainings; data loaded with it are those of another world.

        What is made with another has a folder of its own, so that worlds can be made beside each other. Where
        language models play roles, worlds follow one another and share their replies and their budget.
        """
        folder = self.output_dir
        if seed != self.seed and not self.players.are_models:
            folder = folder / "worlds" / str(seed)
        return self.changed(seed=seed, output_dir=folder, sft={"seed": seed}, rl={"seed": seed})


class ComparedSettings(OnlineSettings):
    """Reinforcement learning by GRPO and, where it is wanted, by PPO."""

    methods: tuple[Literal["GRPO", "PPO"], ...] = S(
        ..., "What is trained from the same fine-tuned model; GRPO is always among them."
    )

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        if "GRPO" not in methods:
            raise ValueError("expected GRPO among methods")
        return methods


class RepeatedSettings(ComparedSettings):
    """Reinforcement learning in notebook 06, repeated in other worlds."""

    worlds: Worlds = S((), "Seeds of whole embedded worlds, data and trainings; none: only this world.")


class PromptedPlayers(OrionPlayers):
    """The players of notebook 06, with the models behind the prompt baselines of Orion's Table 1."""

    policies: tuple[Annotated[str, player()], ...] = S(
        (),
        "Models that play each of the baselines on the test tasks, in rows of their own; none: not played.",
    )


class GrpoNotebook(ReinforcedNotebook):
    """Notebook 06."""

    players: PromptedPlayers
    rl: RepeatedSettings


class AblationSettings(ComparedSettings):
    """Reinforcement learning in notebook 07: several whole pipelines, and of the first GRPO with one thing
    changed."""

    seeds: Seeds = S(
        ...,
        "Of pipelines: base model, role-play, fine-tuning and reinforcement learning; data and users stay.",
    )
    variants: Variants = S(
        (), "GRPO with one thing changed: a name each, and what differs of GRPO's settings in this group."
    )

    @property
    def varied(self) -> dict[str, Self]:
        """Return the name of each variant -> its settings."""
        return variants_of(self, taken=("SFT", "GRPO"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, rl in self.varied.items():  # raises where one has settings that there are not
            ours, theirs = (
                (each.grpo, each.reward, each.alignment_weight, each.patience) for each in (self, rl)
            )
            if (theirs[0].changed(seed=self.seed), *theirs[1:]) == ours:
                raise ValueError(f"expected variants that change something of GRPO, as {name!r} does not")
        return self


class AblationsNotebook(ReinforcedNotebook):
    """Notebook 07."""

    rl: AblationSettings


class SweepSettings(Group):
    """What notebook 08 varies."""

    alpha: tuple[NonNegativeInt, ...] = S(
        ..., "Clustering thresholds, beside that of study; Orion's Figure 4."
    )
    l_c: Counts = S(
        ..., "Behaviours that a micro-profile is made from, at most, beside study.l_c; Orion's Figure 4."
    )
    last: Counts = S(..., "Behaviours known of each history, the last.")
    users: Annotated[tuple[User, ...], Field(min_length=1)] = S(..., "Simulated users (players.user).")
    trained_alpha: tuple[NonNegativeInt, ...] = S(
        ..., "Clustering thresholds with which the policy is trained again, beside that of study."
    )
    trained_l_c: tuple[PositiveInt, ...] = S(
        ..., "Context sizes with which the policy is trained again, beside that of study."
    )
    patience: tuple[NonNegativeFloat, ...] = S(
        ..., "What a question costs where the policy is trained again, beside what it costs in reward."
    )
    worlds: Annotated[tuple[World, ...], Field(min_length=1)] = S(
        ..., "The embedded world as it is, and without one of its difficulties each."
    )


class SweptStudy(StudySettings):
    """The study of notebook 08."""

    sweep: SweepSettings


class SensitivityNotebook(ReinforcedNotebook):
    """Notebook 08."""

    study: SweptStudy
