"""A transformers model in this process (``local:FOLDER``); other decoders use it in memory, too."""

import hashlib
import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pydantic import Field, ValidationError

from pwagents.errors import DataError, InfrastructureError
from pwagents.files import file_hash
from pwagents.llm.chat import ChatModel, Reply, Request, alternating, key_of
from pwagents.llm.failures import ContextTooLongError, RefusedError, one_line
from pwagents.llm.fence import without_control_tokens
from pwagents.llm.folder import ADAPTER, dropped_by_template, read_model, read_tokenizer
from pwagents.schema import Record, Usage
from pwagents.seeds import derive_seed

# What decides a reply; checkpoints hold other files besides (optimizer state, logs).
_FILES = ("*.safetensors", "*config.json", "*.jinja", "tokenizer*", "vocab*", "merges*", "*tokens*.json")


class LocalModel(ChatModel):
    """A causal language model from a folder, loaded at the first call; on the GPU if there is one.

    A reply depends on its request alone, sampled ones too: the noise of each comes from its own key. Of the
    model's generation_config only the end tokens count: top_k or a repetition penalty there are no part of a
    request and would change replies unseen.

    :meth:`reply` raises ContextTooLongError for a prompt that fills the context; RefusedError for a sampling
    setting that is unknown or out of range, a broken model, a chat template that fails or drops functions;
    InfrastructureError when the memory does not suffice.

    Args:
        folder: config, weights (or a PEFT adapter) and a tokenizer with a chat template.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)

    @cached_property
    def name(self) -> str:
        """Return the folder's name and a hash of the model in it: another training, another name."""
        digest = hashlib.sha256()
        for path in sorted({path for pattern in _FILES for path in self.folder.glob(pattern)}):
            digest.update(f"{path.name} {_content_hash(path)}\n".encode())
        return f"{self.folder.resolve().name}@{digest.hexdigest()[:12]}"

    def reply(self, request: Request) -> Reply:
        import torch

        try:
            sampling = Sampling.model_validate(request.sampling)
        except ValidationError as error:
            first = error.errors()[0]
            raise RefusedError(f"{self.name}: sampling {first['loc'][0]}: {first['msg']}") from None
        loaded, prompt = self.loaded, self._prompt(request)
        if (space := loaded.context - len(prompt)) < 1:
            text = f"{self.name}: a prompt of {len(prompt):,} tokens; the context is {loaded.context:,}"
            raise ContextTooLongError(text)
        # Seeded by the request alone: a model's name changes with the code that made it, samples must not.
        seed = derive_seed(sampling.seed, key_of(request.content("local")))
        ids = torch.tensor([prompt], device=loaded.model.device)
        try:
            with loaded.lock, torch.inference_mode():
                out = loaded.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=min(sampling.max_tokens, space),
                    do_sample=False,  # sampling is the noise of sampler
                    logits_processor=sampler(sampling, seed),
                )
        except torch.OutOfMemoryError as error:
            raise InfrastructureError(f"{self.name}: {error}") from None
        written = out[0, len(prompt) :].tolist()
        end = next((i for i, token in enumerate(written) if token in loaded.ends), None)
        # Special tokens stay: some tokenizers count <tool_call> among them.
        text = loaded.tokenizer.decode(written[:end], skip_special_tokens=False).strip()
        tokens = len(written) if end is None else end + 1  # the end token is counted, as endpoints do
        usage = Usage(calls=1, prompt_tokens=len(prompt), completion_tokens=tokens)
        return Reply(text=text, finish_reason="length" if end is None else "stop", usage=usage)

    @cached_property
    def loaded(self) -> "Loaded":
        """Return the model in memory; roles with the same one share a copy, freed with the last of them."""
        with _loading:  # the first calls of several threads load once
            key = (self.folder, self.name)  # its hash: a new training in the same folder is loaded anew
            if (loaded := _in_memory.get(key)) is None:
                loaded = _in_memory[key] = _load(self.folder)
            return loaded

    def _prompt(self, request: Request) -> list[int]:
        """Return token ids of the conversation in the model's chat template, up to the model's turn."""
        tokenizer, tools = self.loaded.tokenizer, list(request.tools) or None
        if tools and self.loaded.dropped:
            text = f"{self.name}: the chat template cannot tell a conversation with tools: "
            raise RefusedError(text + ", ".join(self.loaded.dropped))

        # A copy, without halves of surrogate pairs, which tokenizers refuse, and without control tokens: a
        # title that holds "<|im_end|>" must not end the turn that quotes it. Templates want arguments as
        # objects; text that is no JSON stays text.
        messages = json.loads(json.dumps(request.messages, ensure_ascii=False).encode("utf-8", "replace"))
        for message in messages:
            message.pop("beside", None)
            message["content"] = without_control_tokens(tokenizer, message.get("content") or "")
            for call in message.get("tool_calls") or ():
                with suppress(ValueError, TypeError, RecursionError):
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])

        options = {"tools": tools, "tokenize": False, "add_generation_prompt": True}
        options["date_string"] = "26 Jul 2024"  # Llama's own default, if no date is given
        with self.loaded.lock:  # fast tokenizers are not safe to use from several threads
            try:
                try:
                    text = tokenizer.apply_chat_template(messages, **options)
                    first = messages[0]
                    if first["role"] == "system" and first["content"].strip() not in text:
                        raise ValueError("it drops the system message")
                except Exception:  # some templates want user and assistant in turns, and nobody else
                    text = tokenizer.apply_chat_template(alternating(messages), **options)
            except Exception as error:  # a template is a program of others: it may raise anything
                wrong = one_line(f"{type(error).__name__}: {error}")
                raise RefusedError(f"{self.name}: the chat template failed ({wrong})") from None
            return tokenizer(text, add_special_tokens=False)["input_ids"]


class Sampling(Record):
    """The sampling settings that a local model knows, with OpenAI's names and defaults."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(1024, ge=1)
    seed: int = 0


def sampler(sampling: Sampling, seed: int):
    """Return processors that turn a greedy choice into a sample by noise on the logits, the same on a GPU."""
    import torch
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

    if sampling.temperature == 0:
        return LogitsProcessorList()
    generator = torch.Generator().manual_seed(seed)

    def add_noise(_, scores):
        # The largest of logits plus Gumbel noise is a draw from their softmax, and -log of an exponential
        # variable is such noise. It is made on the CPU, so that a GPU draws the same.
        noise = torch.empty(scores.shape).exponential_(generator=generator).log_().neg_()
        return scores.float() + noise.to(scores.device)

    return LogitsProcessorList(
        [TemperatureLogitsWarper(sampling.temperature), TopPLogitsWarper(sampling.top_p), add_noise]
    )


@dataclass(frozen=True)
class Loaded:
    """A model in memory; ``lock`` lets one thread at a time use it."""

    model: Any
    tokenizer: Any
    ends: frozenset[int]
    context: int  # tokens
    dropped: list[str]  # by the chat template
    lock: threading.Lock


_in_memory: WeakValueDictionary[tuple[Path, str], Loaded] = WeakValueDictionary()
_loading = threading.Lock()


def _load(folder: Path) -> Loaded:
    import torch
    from transformers import GenerationConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of reading weights, a widget in each cell that loads a model
    gpu = torch.cuda.is_available()
    try:
        tokenizer = read_tokenizer(folder)
        if tokenizer.chat_template is None:
            raise RefusedError(f"{folder}: the tokenizer has no chat template; save one with it")
        model = read_model(folder, "auto" if gpu else torch.float32)
    except DataError as error:
        raise RefusedError(str(error)) from None
    model = model.to("cuda" if gpu else "cpu").eval()
    ends = model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(ends)
    model.generation_config = GenerationConfig(eos_token_id=sorted(ends), pad_token_id=pad)
    context = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    dropped = dropped_by_template(tokenizer)
    return Loaded(model, tokenizer, frozenset(ends | {pad}), context, dropped, threading.Lock())


def _content_hash(path: Path) -> str:
    """Return SHA-256 of a file of a model."""
    # An adapter names its base by a path of this machine, of which the folder's name alone counts, and its
    # modules in the random order of a set.
    if path.name == ADAPTER:
        config = json.loads(path.read_text("utf-8"))
        config["base_model_name_or_path"] = Path(config.get("base_model_name_or_path") or "").name
        if isinstance(modules := config.get("target_modules"), list):
            config["target_modules"] = sorted(modules)
        return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    return file_hash(path)
