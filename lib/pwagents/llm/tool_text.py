"""Tool calls in the text of a local model: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

The form of Qwen and Hermes chat templates. Endpoints parse it themselves; local models leave it to us.
"""

import json
import re

from pwagents.llm.chat import ToolCall

# A call that is not closed reaches to the end of the text: the model was cut off, or forgot.
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*(.*)', re.DOTALL)


def parse_tool_calls(text: str, id_prefix: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Split what a model wrote into the text beside its calls and the calls.

    Malformed JSON stays as it was written: ``arguments`` is then what follows ``"arguments":``, or all of it,
    and the name what could be made out, or "".
    """
    bodies = _CALL.findall(text)
    calls = tuple(_parse_call(body.strip(), f"{id_prefix}_{i}") for i, body in enumerate(bodies))
    return _CALL.sub("", text).strip(), calls


def _parse_call(body: str, call_id: str) -> ToolCall:
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        name, arguments = _NAME.search(body), _ARGUMENTS.search(body)
        return ToolCall(
            id=call_id,
            name=name.group(1) if name else "",
            arguments=arguments.group(1) if arguments else body,
        )
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ToolCall(id=call_id, name="", arguments=body)
    arguments = call.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=call_id, name=call["name"], arguments=arguments)
