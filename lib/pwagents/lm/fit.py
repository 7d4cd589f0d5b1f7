"""Will it fit? Memory, tokens and hours of a training, before it runs out of memory after an hour.

    fit = require_fit("Qwen/Qwen2.5-7B-Instruct", Plan("sft", length=4096, bf16=True, n_gpus=2, sharded=True))
    print(fit.verdict)

Memory is added up by :mod:`pwagents.lm.memory_plan`. Hours come from counted operations at a stated
share of the GPU's peak (MFU), and for writing tokens from the bytes read at a stated share of its bandwidth:
an estimate for planning, not a measurement.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pwagents.lm.devices import GIB, Device, find_device
from pwagents.lm.memory_plan import Plan, memory_parts, peak
from pwagents.lm.model_size import ModelSize, model_size

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PretrainedConfig

MFU = 0.35  # share of the peak at which training passes run
BANDWIDTH_SHARE = 0.6  # share of the bandwidth at which tokens are written


class DoesNotFitError(RuntimeError):
    """The training would run out of memory; the message says what is missing and what would help."""


@dataclass(frozen=True)
class Fit:
    """The answer.

    Args:
        table: part, "training (GiB)" and, where episodes are played, "playing (GiB)", per GPU.
        need: bytes a GPU at the peak.
        tokens: of the whole training.
        hours: by the clock, all GPUs at work; None where the speed is unknown: no GPU, one unlisted,
            or something is computed in float32.
        fits: there is memory enough and there are GPUs enough.
        advice: where it does not fit, what would make it, one change a line, with the names of the stage's
            configuration (``SftSettings``, ``DpoSettings``, ``GrpoSettings``, ``PpoSettings``) or of
            ``Decoding``.
    """

    model: ModelSize
    plan: Plan
    device: Device
    table: "pd.DataFrame"
    need: int
    tokens: int
    hours: float | None
    fits: bool
    advice: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line for a notebook, more where it does not fit."""
        have, plan = f"{self.device.memory / GIB:.1f} GiB", self.plan
        gpus = "" if self.device.kind == "cpu" else f" on each of {plan.n_gpus}" if plan.n_gpus > 1 else ""
        what = f"{plan.stage} of {self.model.name} ({self.model.parameters:,} parameters)"
        line = f"{what} needs {self.need / GIB:.1f} GiB{gpus}; {self.device.name} has {have}"
        if self.fits:
            time = "" if self.hours is None else f", about {self.hours:.1f} hours"
            return f"{line}: it fits." + (f" {self.tokens:,} tokens{time}." if self.tokens else "")
        if plan.n_gpus > self.device.count:
            line += f", and {plan.n_gpus} GPUs are asked for, {self.device.count} found"
        helps = ["What would help:", *(f"- {each}" for each in self.advice)] if self.advice else []
        return "\n".join([f"{line}: it does not fit.", *helps])


def will_it_fit(
    model: "str | Path | PretrainedConfig | ModelSize", plan: Plan, device: Device | None = None
) -> Fit:
    """Add up what ``plan`` needs of ``device`` (the one found, where none is given).

    Raises:
        ValueError: the model is unknown (:func:`model_size`), or the plan names a choice that there is not.
    """
    import pandas as pd

    size = model if isinstance(model, ModelSize) else model_size(model)
    device = device or find_device()
    parts = memory_parts(size, plan, device)
    need = peak(parts)
    table = pd.DataFrame(
        [(name, train / GIB, play / GIB) for name, (train, play) in parts.items()],
        columns=["part", "training (GiB)", "playing (GiB)"],
    )
    table.loc[len(table)] = ["sum", *table.sum(numeric_only=True)]
    if not plan.plays:
        table = table.drop(columns="playing (GiB)")
    tokens = plan.sequences * plan.mean * (2 if plan.stage == "dpo" else 1)
    fits = need <= device.memory and (device.kind == "cpu" or plan.n_gpus <= device.count)
    advice = () if fits else tuple(_advice(size, plan, device))
    return Fit(size, plan, device, table, need, tokens, _hours(size, plan, device, tokens), fits, advice)


def require_fit(
    model: "str | Path | PretrainedConfig | ModelSize", plan: Plan, device: Device | None = None
) -> Fit:
    """:func:`will_it_fit`, which must.

    Raises:
        DoesNotFitError: it does not; the message holds the advice.
    """
    fit = will_it_fit(model, plan, device)
    if not fit.fits:
        raise DoesNotFitError(fit.verdict)
    return fit


def _hours(size: ModelSize, plan: Plan, device: Device, tokens: int) -> float | None:
    if device.flops is None or device.bandwidth is None or _in_float32(plan):
        return None
    forward = size.forward_flops(plan.mean)
    passes = 2 if plan.lora else 3  # the frozen weights' own gradients are spared
    passes += plan.gradient_checkpointing + (plan.reference or plan.stage == "dpo")
    passes += plan.stage == "ppo"  # what the critic reads
    training = tokens * passes * forward / (device.flops * MFU)
    return (training + _playing_seconds(size, plan, device)) / plan.n_gpus / 3600


def _in_float32(plan: Plan) -> bool:
    """Whether training or playing computes in float32, which is far slower than the device's listed speed."""
    playing = plan.plays and not plan.vllm_memory  # with the weights as they are
    return plan.weights == "float32" and (playing or not plan.bf16)


def _playing_seconds(size: ModelSize, plan: Plan, device: Device) -> float:
    """Reading every token once; writing: for each token of a batch, all weights and all keys and values."""
    if not plan.plays or not plan.sequences:
        return 0.0
    mean = plan.mean
    reading = plan.sequences * mean * size.forward_flops(mean) / (device.flops * MFU)
    together = max(plan.episodes, 1)
    a_step = size.parameters * 2 + together * mean * size.cache_bytes(2)
    steps = plan.sequences / together * plan.written
    return reading + steps * a_step / (device.bandwidth * BANDWIDTH_SHARE)


def _changes(plan: Plan, device: Device) -> Iterator[tuple[str, Plan]]:
    """Each single change that may save memory, those that change the result least first."""
    if not plan.gradient_checkpointing:
        text = "bf16: true (computing in bfloat16, and activations a second time)"
        weights = "bfloat16" if plan.lora else plan.weights
        yield text, replace(plan, bf16=True, gradient_checkpointing=True, weights=weights)
    if plan.episodes > 8:
        fewer = plan.episodes // 4
        text = f"batch_size: {fewer} episodes at once in place of {plan.episodes}"
        yield text, replace(plan, episodes=fewer)
    if plan.micro_batch > 1:
        yield f"per_device_train_batch_size: 1 in place of {plan.micro_batch}", replace(plan, micro_batch=1)
    if plan.vllm_memory > 0.3:
        yield "vllm_gpu_memory_utilization: 0.3", replace(plan, vllm_memory=0.3)
    if device.kind == "cuda" and not plan.sharded and _may_shard(plan):
        more = replace(plan, n_gpus=max(2, plan.n_gpus), sharded=True)
        yield f"n_gpus: {more.n_gpus} with sharding: fsdp (params/accelerate/fsdp.yaml)", more
    full = plan.optim != "adamw_bnb_8bit" and plan.lora is None
    if full and not plan.sharded and plan.stage in ("sft", "grpo"):  # which have the setting
        text = "optim: adamw_bnb_8bit (8-bit AdamW, package bitsandbytes)"
        yield text, replace(plan, optim="adamw_bnb_8bit")
    if not plan.lora:
        weights = "bfloat16" if plan.bf16 else plan.weights
        text = "lora: [16, 32] (an adapter in place of all weights)"
        yield text, replace(plan, lora=(16, 32), weights=weights)
    if plan.length > 1024:
        half, name = plan.length // 2, "episode_tokens" if plan.plays else "max_length"
        yield f"{name}: sequences of {half:,} tokens in place of {plan.length:,}", replace(plan, length=half)


def _may_shard(plan: Plan) -> bool:
    """Whether :func:`pwagents.lm.launch.run_job` takes the stage under FSDP, and FSDP the optimizer."""
    stage = plan.stage == "sft" or (plan.stage == "grpo" and plan.vllm_memory > 0)
    return stage and plan.optim != "adamw_bnb_8bit"


def _advice(size: ModelSize, plan: Plan, device: Device) -> Iterator[str]:
    """Single changes that suffice, each with what it comes to; else changes taken one after the other."""

    def need(changed: Plan) -> int:
        return peak(memory_parts(size, changed, device))

    def changes(changed: Plan) -> list[tuple[str, Plan]]:
        most = device.count if begin else max(2, plan.n_gpus)
        return [(text, each) for text, each in _changes(changed, device) if each.n_gpus <= most]

    begin = ""
    if device.kind == "cuda" and plan.n_gpus > device.count:
        begin = f"n_gpus: {device.count}"  # those that are there, first of all
        plan = replace(plan, n_gpus=device.count, sharded=plan.sharded and device.count > 1)
        if need(plan) <= device.memory:
            yield f"{begin}: {need(plan) / GIB:.1f} GiB"
            return
        begin += " and "
    enough = [
        f"{begin}{text}: {need(p) / GIB:.1f} GiB" for text, p in changes(plan) if need(p) <= device.memory
    ]
    if enough:
        yield from enough
        return
    taken = plan
    while need(taken) > device.memory:
        better = [(text, p) for text, p in changes(taken) if need(p) < 0.99 * need(taken)]
        if not better:
            yield f"even so {need(taken) / GIB:.1f} GiB: a smaller model, or a GPU with more memory"
            return
        joined = begin if taken is plan else "and "
        text, taken = better[0]
        yield f"{joined}{text}: {need(taken) / GIB:.1f} GiB"
