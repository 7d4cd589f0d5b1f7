"""What learns: the policy with its optimizer, and PPO's critic; placed where they compute."""

import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.files import seal
from pwagents.llm.folder import point_to_base
from pwagents.lm.load import hold_in_float32, load_model, with_adapter
from pwagents.rl.loss import add_scoring, token_losses
from pwagents.rl.rollout import Game, Rollout, loss_mask
from pwagents.seeds import derive_seed
from pwagents.settings import VLLM_MEMORY, GrpoSettings, PpoSettings, RlSettings

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator

# Of both methods; Orion prints none.
MAX_GRAD_NORM = 1.0  # the gradient is scaled down to it
VLLM_LENGTH = 8192  # tokens of an episode that vLLM has room for, prompt included
# Of PPO's critic, whose learning rate does not fall.
CRITIC_LEARNING_RATE = 1e-3
CRITIC_EPOCHS = 4  # passes over a step's tokens, four updates each
_TRUST = 3.0  # what a token of vLLM's counts at most, where it is likelier to the trainer (as in TRL)


def make_accelerator(config: RlSettings) -> "Accelerator":
    """Return where and how a training computes.

    Raises:
        ValueError: a step's tasks cannot be divided as the settings say.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # a training before may have had another precision; as transformers does
    on_gpu = torch.cuda.is_available()
    accelerator = Accelerator(cpu=not on_gpu, mixed_precision="bf16" if config.bf16 and on_gpu else "no")
    # Episodes of a task stay in one process, and in one minibatch: they are compared with each other.
    if getattr(config, "draws", 1) > 1 and accelerator.num_processes > 1:
        raise ValueError("draws: expected 1 where several processes train: each has to read equally much")
    share, rest = divmod(config.prompts_per_step, accelerator.num_processes)
    if rest or config.minibatches > share:
        raise ValueError(
            f"{config.prompts_per_step} prompts a step do not divide among {accelerator.num_processes} "
            f"processes and {config.minibatches} minibatches"
        )
    return accelerator


class Batch(NamedTuple):
    """A step's episodes: tensors (episodes, tokens), padded on the right, where no token looks.

    Attributes:
        ids: prompt and completion.
        scored: true for the tokens to learn from.
        temperatures: (episodes,) at which they were sampled.
        old: log-probabilities before the policy moved; None where it moves once, by fresh episodes.
        trust: what a token counts that vLLM sampled; None where the model itself played.
    """

    ids: "torch.Tensor"
    scored: "torch.Tensor"
    temperatures: "torch.Tensor"
    old: "torch.Tensor | None" = None
    trust: "torch.Tensor | None" = None

    def spread(self, values: Any) -> "torch.Tensor":
        """Return values of the tokens to learn from, where these stand in (episodes, tokens); 0 elsewhere."""
        import torch

        values = torch.as_tensor(values, dtype=torch.float32, device=self.ids.device)
        return torch.zeros(self.ids.shape, device=self.ids.device).masked_scatter(self.scored, values)


class Learner:
    """The policy, its optimizer, and PPO's critic.

    Attributes:
        critic: PPO's; None with GRPO.
        features: (tokens learned from, hidden size) of the last batch, for the critic.
    """

    def __init__(self, model: Any, config: GrpoSettings | PpoSettings, accelerator: "Accelerator"):
        import torch
        from accelerate.utils import set_seed
        from transformers import get_scheduler

        self.config, self.accelerator = config, accelerator
        set_seed(derive_seed(config.seed, "trainer") % 2**32)
        policy = with_adapter(load_model(model, config), config)
        if accelerator.mixed_precision == "bf16":
            policy.activation_checkpointing_enable()
        trained = hold_in_float32(policy)
        named = policy.named_parameters(remove_duplicate=False)
        frozen = {name for name, weights in named if not weights.requires_grad}
        optimizer = torch.optim.AdamW(trained, lr=config.learning_rate, weight_decay=0.0, fused=True)
        self.schedule = get_scheduler(
            config.lr_scheduler_type, optimizer, config.warmup_steps, config.max_steps
        )
        self.policy, self.optimizer = accelerator.prepare(add_scoring(policy), optimizer)
        self.policy.eval()  # nothing drops out while it plays and looks back: :meth:`update` alone trains
        is_ppo = isinstance(config, PpoSettings)
        self.critic = Critic(policy.config.hidden_size, accelerator) if is_ppo else None
        accelerator.register_for_checkpointing(self.schedule)

        def leave_out(models, weights, folder):  # of a checkpoint: what is not trained
            for each in weights:
                for name in [name for name in each if name.removeprefix("module.") in frozen]:
                    del each[name]

        accelerator.register_save_state_pre_hook(leave_out)
        self._vllm, self._base = None, []
        if config.use_vllm:
            if config.lora and config.sharding == "ddp":
                whole = [weights for weights in policy.parameters() if not weights.requires_grad]
                self._base = [(weights, weights.detach().to("cpu", copy=True)) for weights in whole]
            from trl.generation.vllm_generation import VLLMGeneration

            self._vllm = VLLMGeneration(
                accelerator.unwrap_model(self.policy),
                accelerator,
                None,  # prompts are tokens already
                gpu_memory_utilization=VLLM_MEMORY,
                max_model_length=VLLM_LENGTH,
                max_num_seqs=config.episodes // accelerator.num_processes,
            )

    @property
    def player(self) -> Any:
        """Return who plays: the model, or vLLM with the weights as they are."""
        if self._vllm is None:
            return self.accelerator.unwrap_model(self.policy)
        self._vllm.sync_weights()
        # It adds the adapter to its base and takes it off again, which bfloat16 does not survive.
        for weights, before in self._base:
            weights.data.copy_(before)
        return self._vllm.llm

    def look_back(self, rollouts: Sequence[Rollout]) -> Batch:
        """Return the episodes as tensors, and what the policy says to them before it moves."""
        import torch

        # Tokens, which of them are learned from, and at which log-probabilities these were sampled.
        config, device = self.config, self.accelerator.device
        ids = torch.zeros(len(rollouts), max(map(len, rollouts)), dtype=torch.long)
        scored, sampled = torch.zeros(ids.shape, dtype=torch.bool), torch.zeros(ids.shape)
        for i, rollout in enumerate(rollouts):
            start, end = len(rollout.prompt_ids), len(rollout)
            ids[i, :end] = torch.tensor([*rollout.prompt_ids, *rollout.completion_ids])
            scored[i, start:end] = torch.tensor(loss_mask(rollout), dtype=torch.bool)
            sampled[i, start:end] = torch.tensor(rollout.logprobs)
        ids, scored, sampled = ids.to(device), scored.to(device), sampled.to(device)
        batch = Batch(ids, scored, torch.tensor([r.temperature for r in rollouts], device=device))

        if self.critic or self._vllm or config.minibatches > 1:
            with torch.no_grad(), self.accelerator.autocast():
                parts = [
                    self.policy(ids[rows], scored=scored[rows], temperatures=batch.temperatures[rows])
                    for rows in torch.arange(len(ids)).split(config.per_device_train_batch_size)
                ]
            logprobs, _, self.features = (torch.cat(column).float() for column in zip(*parts, strict=True))
            batch = batch._replace(old=batch.spread(logprobs))
        if self._vllm:
            # Its probabilities differ a little from the trainer's, as if an older policy had played.
            batch = batch._replace(trust=(batch.old - sampled).exp().clamp(max=_TRUST))
        return batch

    def update(self, batch: Batch, advantages: "torch.Tensor", groups: "torch.Tensor") -> dict[str, float]:
        """Take one step of the optimizer from some of a batch's episodes; return means over tokens.

        Args:
            advantages: (episodes, tokens) of the whole batch.
            groups: (groups, episodes of each): which of its episodes.

        Returns:
            Among them ``cosine``, that of the gradients of two halves of the groups; NaN where there is none.
        """
        import torch

        config, accelerator = self.config, self.accelerator
        lengths, is_alone = batch.scored.sum(1), accelerator.num_processes == 1
        n = lengths[groups.flatten()].sum()
        # Gradients are averaged over processes: each one's sum is divided by the mean number of tokens.
        weight = 1 / accelerator.reduce(n.float(), "mean")
        sums = dict.fromkeys(("loss", "entropy", "clip_fraction", "approx_kl"), 0.0)
        size, before, cosine = config.per_device_train_batch_size, None, float("nan")
        halves = [half.flatten().split(size) for half in groups.tensor_split(2) if len(half)]
        trained = [weights for weights in self.policy.parameters() if weights.requires_grad]
        self.policy.train()  # else nothing is computed again, and all activations are kept
        for i, part in [(i, part) for i, half in enumerate(halves) for part in half]:
            # An episode without an advantage is read for the log alone. Several processes have to read
            # equally often: they exchange something each time.
            moves = advantages[part].ne(0).any(1).cpu() | (not is_alone)
            moves[0] |= not moves.any()  # a loss needs a gradient, if only of zeros
            with nullcontext() if part is halves[-1][-1] else accelerator.no_sync(self.policy):
                for chosen, learns in ((part[moves], True), (part[~moves], False)):
                    if not len(chosen):
                        continue
                    scored = batch.scored[chosen]
                    given = {"scored": scored, "temperatures": batch.temperatures[chosen]}
                    with torch.set_grad_enabled(learns):
                        logprobs, entropies, _ = self.policy(batch.ids[chosen], **given)
                    old, trust, gain = (
                        each if each is None else each[chosen][scored] for each in (*batch[3:], advantages)
                    )
                    old = logprobs.detach() if old is None else old
                    gain = gain if trust is None else gain * trust
                    losses = token_losses(logprobs, entropies, old, gain)
                    loss = losses.loss * weight
                    if learns:
                        accelerator.backward(loss.sum())
                    of_all = losses._replace(loss=loss.detach() * n)._asdict()
                    sums = {name: value + float(of_all[name].sum()) for name, value in sums.items()}
            # Do two halves of these groups ask for the same? Of several processes none has a whole gradient,
            # and on a GPU another copy of a large model's takes too much memory.
            is_small = bool(config.lora) or accelerator.device.type == "cpu"
            if is_alone and is_small and len(halves) == 2 and part is halves[i][-1]:
                gradient = torch.cat([weights.grad.flatten() for weights in trained])
                if i and before.any() and (other := gradient - before).any():
                    cosine = float(torch.cosine_similarity(before, other, dim=0))
                before = gradient
        norm = accelerator.clip_grad_norm_(self.policy.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.policy.eval()
        means = {name: value / int(n) for name, value in sums.items()}
        return means | {"grad_norm": float(norm), "cosine": cosine}

    def evaluate(self, game: Game, tokenizer: Any) -> dict[str, float]:
        """Return the numbers of an evaluation, means over all processes."""
        import torch

        measured = game.evaluate(self.player, tokenizer)
        values = torch.tensor(list(measured.values()), dtype=torch.float64, device=self.accelerator.device)
        means = self.accelerator.reduce(values, "mean").tolist()
        return {f"eval_{name}": value for name, value in zip(measured, means, strict=True)}

    def save_checkpoint(self, checkpoint: Path) -> None:
        """Write a checkpoint beside its place and move it there; then the one before it may go."""
        accelerator = self.accelerator
        aside = checkpoint.with_name(f".{checkpoint.name}")  # the same in all processes: each adds its part
        accelerator.save_state(str(aside), safe_serialization=False)  # tied weights stay tied
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            seal(aside)
            os.replace(aside, checkpoint)
            for old in set(checkpoint.parent.glob("checkpoint-*")) - {checkpoint}:
                shutil.rmtree(old)
        accelerator.wait_for_everyone()

    def save(self, tokenizer: Any, folder: Path) -> None:
        """Write the trained model and its tokenizer beside ``folder``, then move them there.

        Where an adapter was trained, that alone is written: merged into weights in bfloat16, small updates
        would be lost. ``AutoModelForCausalLM.from_pretrained(folder)`` puts it on its base model, whose place
        it names.
        """
        aside = folder.with_name(f".{folder.name}")
        weights = self.accelerator.get_state_dict(self.policy)  # in all processes: each may hold a part
        if self.accelerator.is_main_process:
            shutil.rmtree(aside, ignore_errors=True)  # of a save that a kill cut short
            self.accelerator.unwrap_model(self.policy).save_pretrained(aside, state_dict=weights)
            point_to_base(aside)
            tokenizer.save_pretrained(aside)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(aside, folder)
        self.accelerator.wait_for_everyone()


class Critic:
    """PPO's: the value of what comes next, from the policy's last hidden state; one hidden layer, 0 at first.

    It shares the policy's trunk and reads it only: the value loss does not reach the policy. A trunk of its
    own would double memory and time, which a 7B model does not allow; what fine-tuning put into the hidden
    state says enough about how an episode stands.
    """

    def __init__(self, hidden_size: int, accelerator: "Accelerator"):
        import torch
        from torch import nn

        self.accelerator = accelerator
        net = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, 1))
        nn.init.zeros_(net[2].weight)
        nn.init.zeros_(net[2].bias)
        optimizer = torch.optim.AdamW(net.parameters(), lr=CRITIC_LEARNING_RATE, weight_decay=0.0)
        self.net, self.optimizer = accelerator.prepare(net, optimizer)

    def values(self, features: "torch.Tensor") -> "torch.Tensor":
        """Return the values (tokens,) of hidden states (tokens, hidden size)."""
        import torch

        with torch.no_grad():
            return self.net(features)[:, 0]

    def fit(self, features: "torch.Tensor", returns: Any, seed: int) -> float:
        """Fit the values to the returns (tokens,) by squared error, in :data:`CRITIC_EPOCHS` passes.

        Returns:
            The explained variance: the share of the returns' variance that the values foresaw before.
        """
        import torch

        returns = torch.as_tensor(returns, dtype=torch.float32, device=features.device)
        missed = returns - self.values(features)
        explained = 1 - float(missed.var() / returns.var().clamp(min=1e-8))
        chance = torch.Generator().manual_seed(seed)
        for _ in range(CRITIC_EPOCHS):
            for part in torch.randperm(len(returns), generator=chance).tensor_split(4):
                self.optimizer.zero_grad()
                loss = (self.net(features[part])[:, 0] - returns[part]).square().mean() / 2
                self.accelerator.backward(loss)
                self.optimizer.step()
        return explained
