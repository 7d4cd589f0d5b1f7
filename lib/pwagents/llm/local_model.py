"""A transformers model in this process (``local:FOLDER``); other decoders use it in memory, too."""

import hashlib
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from pydantic import Field, ValidationError

from pwagents.errors import DataError, InfrastructureError
from pwagents.files import file_hash
from pwagents.llm.chat import ChatModel, Reply, Request, alternating, key_of
from pwagents.llm.failures import ContextTooLongError, RefusedError, one_line
from pwagents.llm.fence import without_control_tokens
from pwagents.llm.folder import ADAPTER, dropped_by_template, read_model, read_tokenizer
from pwagents.llm.parts import ends_with_call
from pwagents.schema import Record, Usage
from pwagents.seeds import derive_seed
from pwagents.settings.group import Dtype

# What decides a reply; checkpoints hold other files besides (optimizer state, logs).
_FILES = ("*.safetensors", "*config.json", "*.jinja", "tokenizer*", "vocab*", "merges*", "*tokens*.json")
GATHERING_S = 0.1  # a batch that no further call joins for so long begins


class LocalModel(ChatModel):
    """A causal language model from a folder, loaded at the first call; on the GPU if there is one.

    A reply depends on its request alone, sampled ones too: the noise of each comes from its own key. It ends
    where a call or a JSON object does. Of the model's generation_config only the end tokens count: top_k or a
    repetition penalty there are no part of a request and would change replies unseen.

    Calls that wait at one time are a batch. Which ones share it changes the last bits of sums, and so a reply
    only where two tokens are all but equally likely; with one worker, or on stored replies, nothing.

    :meth:`reply` raises ContextTooLongError for a prompt that fills the context; RefusedError for a sampling
    setting that is unknown or out of range, a broken model, a chat template that fails or drops functions;
    InfrastructureError when the memory does not suffice.

    Args:
        folder: config, weights (or a PEFT adapter) and a tokenizer with a chat template.
        dtype: stands in the name; None: that of the weights on a GPU, else float32.
        workers: calls in a batch, at most.
    """

    def __init__(self, folder: Path | str, dtype: Dtype | None = None, workers: int = 1):
        self.folder, self.dtype, self.workers = Path(folder), dtype, workers

    @cached_property
    def name(self) -> str:
        """Return the folder's name and a hash of the model in it: another training, another name."""
        digest = hashlib.sha256()
        for path in sorted({path for pattern in _FILES for path in self.folder.glob(pattern)}):
            digest.update(f"{path.name} {_content_hash(path)}\n".encode())
        return f"{self.folder.resolve().name}@{digest.hexdigest()[:12]}{f'-{self.dtype}' * bool(self.dtype)}"

    def reply(self, request: Request) -> Reply:
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
        call = _Call(prompt, min(sampling.max_tokens, space), sampler(sampling, seed), Future())
        loaded.waiting.append(call)
        loaded.writer.submit(self._write_waiting)
        written = call.written.result()
        usage = Usage(calls=1, prompt_tokens=len(prompt), completion_tokens=len(written))
        with loaded.lock:
            text, is_whole = loaded.read(call, written)
        return Reply(text=text.strip(), finish_reason="stop" if is_whole else "length", usage=usage)

    def _write_waiting(self) -> None:
        """Write the replies to calls that wait, once no further one comes or there are enough."""
        n, waiting = 0, self.loaded.waiting
        while n < len(waiting) < self.workers:
            n = len(waiting)
            time.sleep(GATHERING_S)
        if calls := waiting[: self.workers]:
            del waiting[: len(calls)]
            calls.sort(key=lambda call: call.prompt)  # not in the order of threads
            try:
                for call, written in zip(calls, self._generate(calls), strict=True):
                    call.written.set_result(written)
            except Exception as error:
                for call in calls:
                    call.written.set_exception(error)

    def _generate(self, calls: "list[_Call]") -> list[list[int]]:
        """Return the tokens that the model writes after each prompt, up to and with an end token."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        model, lengths = self.loaded.model, dict[int, int]()  # of rows that are over
        prompts = [torch.tensor(call.prompt, device=model.device) for call in calls]
        fill = partial(pad_sequence, batch_first=True, padding_side="left")  # all end at one place
        ids = fill(prompts, padding_value=model.generation_config.pad_token_id)

        def draw(ids, scores):
            rows = zip(calls, ids.split(1), scores.split(1), strict=True)
            return torch.cat([call.sampler(*row) for call, *row in rows])

        def are_over(all_ids, _, **__):
            for row, written in enumerate(all_ids[:, ids.shape[1] :].tolist()):
                if len(written) >= calls[row].most or self.loaded.read(calls[row], written)[1]:
                    lengths.setdefault(row, len(written))
            return torch.tensor([row in lengths for row in range(len(calls))], device=model.device)

        try:
            with self.loaded.lock, torch.inference_mode():
                out = model.generate(
                    ids,
                    attention_mask=fill([torch.ones_like(prompt) for prompt in prompts]),
                    max_new_tokens=max(call.most for call in calls),
                    do_sample=False,  # sampling is the noise of sampler
                    logits_processor=[draw],
                    stopping_criteria=[are_over],
                )
        except torch.OutOfMemoryError as error:
            raise InfrastructureError(f"{self.name}: {error} (fewer players.workers need less)") from None
        return [written[: lengths[row]] for row, written in enumerate(out[:, ids.shape[1] :].tolist())]

    @cached_property
    def loaded(self) -> "Loaded":
        """Return the model in memory; roles with the same one share a copy, freed with the last of them."""
        with _loading:  # the first calls of several threads load once
            key = (self.folder, self.name)  # its hash: a new training in the same folder is loaded anew
            if (loaded := _in_memory.get(key)) is None:
                loaded = _in_memory[key] = _load(self.folder, self.dtype)
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
            message.pop("extras", None)
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


class _Call(NamedTuple):
    """A prompt, the most tokens that may follow it, how they are drawn, and what has come of it."""

    prompt: list[int]
    most: int
    sampler: Any
    written: Future[list[int]]


@dataclass(frozen=True)
class Loaded:
    """A model in memory; ``lock`` lets one thread at a time use it, ``writer`` writes for all that wait."""

    model: Any
    tokenizer: Any
    ends: frozenset[int]
    context: int  # tokens
    dropped: list[str]  # by the chat template
    lock: threading.Lock
    writer: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))
    waiting: list[_Call] = field(default_factory=list)

    def read(self, call: _Call, written: list[int]) -> tuple[str, bool]:
        """Return what was written as text, and whether it is over: at an end token, or where a call ends."""
        is_over = written[-1] in self.ends
        # Special tokens stay: some tokenizers count <tool_call> among them.
        text = self.tokenizer.decode(written[:-1] if is_over else written, skip_special_tokens=False)
        return text, is_over or ends_with_call(text, self.tokenizer.decode(call.prompt[-8:]))


_in_memory: WeakValueDictionary[tuple[Path, str], Loaded] = WeakValueDictionary()
_loading = threading.Lock()


def _load(folder: Path, dtype: Dtype | None) -> Loaded:
    import torch
    from transformers import GenerationConfig

    gpu = torch.cuda.is_available()
    try:
        tokenizer = read_tokenizer(folder)
        if tokenizer.chat_template is None:
            raise RefusedError(f"{folder}: the tokenizer has no chat template; save one with it")
        model = read_model(folder, dtype or ("auto" if gpu else "float32"))
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
