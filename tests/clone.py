"""A clone of PersonalWAB's repository as far as prompts are read from it, with words of our own."""

from pathlib import Path

from pwagents.llm.prompts import CONSTANTS, FUNCTIONS, MEMORIES, PUMA

SINGLE, UTILS, *_ = CONSTANTS
_FORM = "<TITLE>|<PARENT_ASIN>|<PRICE>|<RATING>|<TEXT>|<NUM>"
_TEXTS = {  # those that hold more than the name that all have
    **dict.fromkeys(("HISTORY_PROMPT", "PRODUCT_PROMPT", "Product_Prompt"), _FORM),
    **dict.fromkeys(("MINI_HISTORY_PROMPT", "INTEREC_MEMORY_PROMPT"), "<TITLE>|<TEXT>"),
    **{f"TS_{name}_PROMPT": "<TITLE>|<ASIN>|<RATING>" for name in ("SEARCH", "REC", "REV")},
    "REFLECTION_INST": "<TASK>|<ACTIONS>|<FEEDBACK>",
    "INTEREC_UPDATE_MEM_PROMPT": "{conversation}",
    "USER_PROFILE_PROMPT": "{History}",
    "USER_PROMPT": "<PROFILE>|<PRODUCT>",
    "USER_PROMPT_REVIEW": "<PROFILE>|<PRODUCT>|<REVIEW>",
    "PARAM_PROMPT": "<Instruction>|<Memory>|<Tool>",
    "FUNCTION_PROMPT": "<Instruction>",
    "PROFILE_PROMPT": "<AGE>|<PRICE_SENSITIVITY>|<INTERACTION_STYLE>|<FOCUS>",
}
_WORDS = {"PRICE": {"High": "[dear]"}, "DIVERSITY": {}, "INTERACTION": {}}
_PARAMETERS = ("query", "product_sequence", "review", "product_asin")


def make_clone(folder: Path) -> Path:
    """Write the files; none of them can be executed."""
    for file, constants in CONSTANTS.items():
        lines = ["import torch_that_is_not_there", "raise SystemExit('executed')", "OTHER = 7"]
        for constant in (each.rpartition("=")[2] for each in constants):
            name = constant.removesuffix(".__info__")
            value = _WORDS.get(constant, f"[{constant} {_TEXTS.get(constant, '<NUM>')}]")
            lines.append(f"{constant} = {_tool(name) if name != constant else value!r}")
        _write(folder / file, lines)
    plain = "if memory == '{0}':\n    mem = '[mem {0} ' + history + ']'"
    calls = [plain.format(name) for name in (*MEMORIES, "recmind")]
    calls += [
        "if memory == 'interecagent':\n    mem = '[mem interecagent ' + history + ']'",
        "    mem = mem + str(like) + '[dislike]' + str(dislike)",
        "if memory == 'taskspe':\n    mem = f'[mem {task_type} {tool_name} '\n    mem = mem + history + ']'",
    ]
    _write(folder / "PersonalWAB/agents/gpt_function_calling_agent.py", calls)
    react = ["def __init__(self):\n    self.sys_prompt = sys_prompt + '[tools]' + tools + REACT_INST"]
    react += ["def act(self):\n    obs, info = env.reset()\n    obs = '[result] ' + obs"]
    react += [f"if memory == '{name}':\n    mem = '[react mem {name} ' + history + ']'" for name in MEMORIES]
    _write(folder / "PersonalWAB/agents/chat_react_agent.py", react)
    with (folder / PUMA).open("a") as file:
        lines = (
            "def generate_search_query():",
            "prompt = '[QUERY <Instruction>|<Memory>]'",
            "prompt = prompt.replace(a)",
        )
        file.write("\n    ".join(lines) + "\n")
    with (folder / "PersonalWAB/envs/user.py").open("a") as file:
        file.write("""
class LLMUserSimulationEnv:
    def reset(self):
        self.messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "What is it?"}]
        obs = f"Customer {user}: {task}"
        if review:
            obs += f"; it is {product}"
""")
    return folder


def _tool(name: str) -> dict:
    parameters = dict(zip(FUNCTIONS, _PARAMETERS, strict=False))
    kind = {"type": "array", "items": {"type": "string"}} if "history" in name else {"type": "string"}
    properties = {parameters[name]: kind} if name in parameters else {}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"type": "function", "function": {"name": name, "description": f"[{name}]", "parameters": schema}}


def _write(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
