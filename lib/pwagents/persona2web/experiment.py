"""Notebook 09's episodes: who plays which tasks under which conditions. Scores are worked out when read.

The offline agent reads records with a reader that was trained on users of the other group of phrases, never
on the user of the task. At level 2 its scores are the same in both architectures and both schemes with a
history, for its rules read either text without a mistake and ask the same questions at other moments: it
plays one of the four cells, and :meth:`Experiment.same_cells` says on how many tasks the others agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import pandas as pd

from pwagents.code import hash_of
from pwagents.embedding import Embedder
from pwagents.llm.budget import Load
from pwagents.llm.chat import ChatModel
from pwagents.llm.make import Models
from pwagents.persona2web.agents import clarify, recall
from pwagents.persona2web.agents.chat import ChatWebAgent
from pwagents.persona2web.agents.episode import Agent, Condition, WebEpisode, World, run_condition
from pwagents.persona2web.agents.offline import OfflineAgent, oracle
from pwagents.persona2web.judge.meta import judge_agents, judge_scripts, play_scripts, write_sheet
from pwagents.persona2web.judge.scores import scores_frame
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.history import History, make_histories
from pwagents.persona2web.world.history_llm import LlmHistorian
from pwagents.persona2web.world.queries import make_tasks
from pwagents.persona2web.world.released import read_released
from pwagents.persona2web.world.types import Architecture, Level, Scheme, WebTask
from pwagents.settings import HistorySettings, WebNotebook, plain, project_path

OFFLINE, ORACLE = "offline agent", "oracle"
NEW_PHRASES = "offline agent, new phrases"  # its reader learned from no record that stands in a test history
RULES = (OFFLINE, ORACLE, NEW_PHRASES)
ARCHITECTURES: tuple[Architecture, ...] = ("indexed", "occam")
SCHEMES: tuple[Scheme, ...] = ("none", "on_demand", "pre_execution")
LEVELS: tuple[Level, ...] = (0, 1, 2)
FAULTS = 0.2  # of the requests of repeated runs fail or come too late
LATER = 1  # the edition of the web "three months later"


def policies_of(settings: WebNotebook) -> list[str]:
    """Return the language models that play, as settings name them."""
    return [each for each in (settings.players.policy, *settings.players.more_policies) if each != "offline"]


def loads(settings: WebNotebook) -> dict[str, Load]:
    """Return what each language model will be asked, from the settings alone: nothing is made for it.

    An agent's step is one call, on demand two, each with the page; episodes take some eleven steps.
    """
    histories, players = settings.histories, settings.players
    tasks = histories.n_users * settings.queries.tasks_per_user
    cells = len(LEVELS) * len(ARCHITECTURES) * len(SCHEMES) + 1  # 1: clarification without a web
    further = 2 + settings.study.runs + 2  # other knowledge, failing pages, later: the first model alone
    roles = {}
    for i, policy in enumerate(policies_of(settings)):
        role = "policy" if not i else f"policy {i + 1}"
        roles[role] = Load(policy, (cells + (0 if i else further)) * tasks, 16, 3_000, 80)
    judged = 3 * 10 * min(settings.study.judged_tasks, tasks) + (1 + len(roles)) * settings.study.judged_tasks
    asked = histories.n_users * (1 + histories.n_domains) + histories.n_users * histories.records / 4
    return roles | {
        "judge": Load(players.judge, judged, 1, 1_500, 60),
        "historian": Load(players.historian, round(asked), 1, 300, 200),
    }


class Experiment:
    """Plays agents on the tasks of the notebook. Episodes that are stored already are not played again.

    Episodes are kept beside ``store``, the file of language models' replies.
    """

    def __init__(self, settings: WebNotebook, cache: Path, store: Path):
        self.settings, self.folder = settings, store.parent
        self.embedder = Embedder(cache, settings.study.max_tokens, batch_size=64)
        self._players = Models(settings.players, store)
        self.models = {model.name: model for model in map(self._players, policies_of(settings))}
        self._made: dict[str, dict[str, History]] = {}
        self.world = self.world_of(settings.histories)

    @property
    def agents(self) -> list[str]:
        """The agents that are measured: the offline one, and the language models."""
        return [OFFLINE, *self.models]

    # --- worlds ---

    def world_of(self, histories: HistorySettings, edition: int = 0) -> World:
        """Return histories made by other settings, or the web of another time; the same users and tasks."""
        settings = self.settings
        decides = [plain(histories), plain(settings.queries), settings.study.max_tokens, settings.seed]
        if settings.players.historian != "offline":
            decides.append(self._players.facts("historian"))
        data = hash_of(decides)
        if data not in self._made:
            writer = settings.players.historian
            if writer == "offline":
                self._made[data] = make_histories(histories, settings.seed)
            else:
                model = self._players(writer)
                self._made[data] = LlmHistorian(model, histories, settings.seed).histories()
        made, today = self._made[data], make_sites(settings.seed)
        tasks = make_tasks(made, today, settings.queries, settings.seed)
        return World(made, tasks, LocalWeb(make_sites(settings.seed, edition).values()), self.embedder, data)

    def embed(self) -> int:
        """Embed all records at once, so that no episode waits; return how many texts differ."""
        texts = {recall.record_text(e) for history in self.world.histories.values() for e in history.events}
        if not self.settings.stored_runs_only:
            self.embedder.encode(sorted(texts), show_progress=True)
        return len(texts)

    @cached_property
    def readers(self) -> dict[str, recall.Reader]:
        """By user, a reader that was trained on the users of the other group of phrases."""
        return recall.train_readers(self.world.histories, self.embedder, self.settings.seed)

    @cached_property
    def new_readers(self) -> dict[str, recall.Reader]:
        """The same, without all records that stand, word for word, in a history that it is tested on."""
        return recall.train_readers(self.world.histories, self.embedder, self.settings.seed, False)

    def shared_records(self) -> float:
        """Return the share of telling records that stand, word for word, in the reader's training."""
        told: dict[int, list[str]] = {0: [], 1: []}
        for history in self.world.histories.values():
            told[history.person.group] += recall.telling_texts([history])
        others = {0: {*told[1]}, 1: {*told[0]}}
        hits = [text in others[group] for group, texts in told.items() for text in texts]
        return sum(hits) / len(hits)

    # --- episodes ---

    def play(
        self, part: str, agents: Sequence[str], conditions: Sequence[Condition], world: World | None = None
    ) -> pd.DataFrame:
        """Return the scores of agents under conditions on all tasks, a row an episode (:func:`scores_frame`).

        Each ``part`` of the experiment keeps its episodes in a file of its own.
        """
        world = world or self.world
        frames = [
            scores_frame(self.episodes(part, agent, condition, world), world)
            for agent, condition in product(agents, conditions)
        ]
        return pd.concat(frames, ignore_index=True)

    def episodes(
        self, part: str, agent: str, condition: Condition, world: World | None = None
    ) -> list[WebEpisode]:
        """Return the episodes of one agent under one condition, in the order of the tasks."""
        # The offline agent learned from the notebook's own world, whichever is played.
        params = {"readers": self.world.data} if agent in (OFFLINE, NEW_PHRASES) else {}
        world = world or self.world
        players, is_model = self.settings.players, agent not in RULES
        options = {"model": agent if is_model else "none", "params": players.facts() if is_model else params}
        options |= {"workers": players.workers, "stored_runs_only": self.settings.stored_runs_only}
        options |= {"method": agent, "served": self._players.served}
        store, agent_of = self.folder / f"09_{part}.jsonl", self.agent(agent, condition, world)
        return run_condition(world, condition, agent_of, store, **options)

    def agent(self, name: str, condition: Condition, world: World) -> Callable[[WebTask], Agent]:
        """Return the agent for a task; only the oracle looks at more than the user."""
        architecture, scheme = condition.architecture, condition.scheme
        if name in (OFFLINE, NEW_PHRASES):
            readers = self.readers if name == OFFLINE else self.new_readers
            return lambda task: OfflineAgent(readers[task.user_id], architecture, scheme)
        if name == ORACLE:
            return partial(oracle, condition=condition, truth=world.truth(condition.memory))
        chat = ChatWebAgent(self.models[name], architecture, scheme, sample=condition.sample)
        return lambda task: chat

    def condition(self, scheme: Scheme = "on_demand", level: Level = 2, **more) -> Condition:
        """Return the notebook's condition, indexed DOM, under its driver and retriever."""
        usual = {"architecture": "indexed", "driver": self.settings.study.driver}
        usual["retrieval"] = recall.RetrievalSettings(retriever=self.settings.study.retriever)
        return Condition(scheme=scheme, level=level, **usual | more)

    # --- what tables are made of ---

    def levels(self) -> pd.DataFrame:
        """Return all levels; language models under all architectures and schemes, what has rules under one.

        At level 2 also an agent to whom every question brings the latest records.
        """
        frames = []
        for level in LEVELS:
            part, none, looks = f"level_{level}", self.condition("none", level), self.condition(level=level)
            latest = [self.condition(memory="recency")] if level == 2 else []
            frames.append(self.play(part, [OFFLINE], [none, *latest, looks]))
            cells = [
                self.condition(scheme, level, architecture=architecture)
                for architecture, scheme in product(ARCHITECTURES, SCHEMES)
            ]
            frames += [self.play(part, [name], cells) for name in self.models]
            frames.append(self.play(part, [ORACLE], [looks]))
        return pd.concat(frames, ignore_index=True)

    def same_cells(self) -> tuple[int, int]:
        """Return on how many of some tasks the offline agent scores the same in all four history cells."""
        few, scores = self._first(self.settings.study.judged_tasks), []
        for architecture, scheme in product(ARCHITECTURES, SCHEMES[1:]):
            condition = self.condition(scheme, architecture=architecture)
            frame = self.play("cells", [OFFLINE], [condition], few)
            compared = frame[["p_web", "p_pref", "intent", "success", "reached"]]
            scores.append([*compared.itertuples(index=False)])
        return sum(len(set(each)) == 1 for each in zip(*scores, strict=True)), len(few.tasks)

    def _first(self, n: int) -> World:
        return replace(self.world, tasks=self.world.tasks[:n])

    def knowledge(self) -> pd.DataFrame:
        """Return level 2 by a profile that says all outright, by words (BM25), and without shared phrases."""
        by_words = self.condition(retrieval=recall.RetrievalSettings(retriever="bm25"))
        agents = self.agents[:2]
        cells = [([NEW_PHRASES], self.condition()), ([OFFLINE], by_words)]
        cells.append((agents, self.condition(memory="explicit")))
        frames = [self.play("knowledge", names, [condition]) for names, condition in cells]
        return pd.concat(frames, ignore_index=True)

    def repeated(self) -> pd.DataFrame:
        """Return level 2 on demand, some runs each, in which pages fail at random; and the oracle."""
        runs = [self.condition(faults=FAULTS, sample=i) for i in range(self.settings.study.runs)]
        return self.play("failing_pages", [*self.agents[:2], ORACLE], runs)

    def later(self) -> pd.DataFrame:
        """Return levels 0 and 2 on the web some months later, which still has what tasks ask for."""
        world = self.world_of(self.settings.histories, LATER)
        conditions = [self.condition(level=level, edition=LATER) for level in (0, 2)]
        return self.play("later", [*self.agents[:2], ORACLE], conditions, world)

    def dialled(self) -> pd.DataFrame:
        """Return the offline agent in worlds that differ in one dial: columns ``dial, value``.

        The readers stay those of the notebook's own world.
        """
        frames = []
        for dial, values in plain(self.settings.study.dials).items():
            for value in values:
                world = self.world_of(self.settings.histories.changed(**{dial: value}))
                frame = self.play("dials", [OFFLINE], [self.condition(driver="html")], world)
                frames.append(frame.assign(dial=dial, value=value))
        return pd.concat(frames, ignore_index=True)

    def in_chromium(self) -> pd.DataFrame:
        """Return some tasks in both drivers, by the agent at level 2 and by the oracle at all.

        ``same``: whether both drivers gave the same trajectory.
        """
        few, frames = self._first(self.settings.study.chromium_tasks), []
        for agent, level in [(OFFLINE, 2), *((ORACLE, level) for level in LEVELS)]:
            conditions = [self.condition(level=level, driver=name) for name in ("html", "chromium")]
            runs = [self.episodes("chromium", agent, condition, few) for condition in conditions]
            same = [a.trajectory == b.trajectory for a, b in zip(*runs, strict=True)]
            frames += [scores_frame(records, few).assign(same=same) for records in runs]
        return pd.concat(frames, ignore_index=True)

    # --- clarification, judges ---

    def clarified(self) -> pd.DataFrame:
        """Return how well methods write out what level 2 leaves out, without a web: a row a method and task.

        On our tasks, and on the released ones whose histories ``data_dir`` holds.
        """
        world, seed, search = self.world, self.settings.seed, self.condition().retrieval
        ours = world.recalls("implicit", search)

        def methods_for(found: Mapping[str, recall.Recall]) -> dict[str, clarify.Method]:
            chat = {name: clarify.chat_method(model, found) for name, model in self.models.items()}
            return {"copies what the request finds": clarify.copying_method(found)} | chat

        methods = clarify.references(world, seed)
        methods["offline agent's reader"] = clarify.reader_method(self.readers, ours)
        methods |= methods_for(ours)
        frames = [clarify.clarify(clarify.our_requests(world), methods, "synthetic")]
        if folder := self.settings.data.data_dir:
            tasks, histories = read_released(project_path(folder))
            requests = clarify.released_requests(tasks, histories)
            found = {user: recall.search_of(h, search, self.embedder) for user, h in histories.items()}
            frames.append(clarify.clarify(requests, methods_for(found), "released"))
        return pd.concat(frames, ignore_index=True)

    @property
    def judge(self) -> ChatModel | None:
        """The language model that judges; None if nobody does."""
        name = self.settings.players.judge
        return None if name == "offline" else self._players(name)

    def judged_scripts(self) -> pd.DataFrame:
        """Return how judges agree with the truth on scripted episodes (:func:`judge_scripts`)."""
        n, stored = self.settings.study.judged_tasks, self.settings.stored_runs_only
        played = play_scripts(self.world, self.folder / "09_scripts.jsonl", n, stored)
        return judge_scripts(self.world, played, self.judge)

    def judged_agents(self, sheet: Path) -> pd.DataFrame:
        """Return how judges agree on the agents' own episodes; write a sheet for a person's labels."""
        few = self._first(self.settings.study.judged_tasks)
        played = [self.episodes("level_2", agent, self.condition(), few) for agent in self.agents]
        records = [each for episodes in played for each in episodes if each.trajectory]
        write_sheet(sheet, few, records)
        labels = self.settings.study.labels
        return judge_agents(few, records, self.judge, project_path(labels) if labels else None)
