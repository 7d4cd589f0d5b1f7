"""PUMA's prompts: plain texts without a chat template, which a parameter or a function's name completes.

The form is the published one (PersonalWAB's repository, ``PUMA/utils.py``), the words are ours. Each ends
with a line end; the completion is the bare parameter or name, and the end token.
"""

JOB = "The instruction below asks for something in an online shop."
PARAMETER = "Write the parameter with which the tool does it."
FUNCTION = "Name the tool that does it."


def parameter_prompt(instruction: str, memory: str, tool: str) -> str:
    """Return the prompt of step 2, which the tool's parameter completes.

    Args:
        instruction: of a review, with the product's title, price, store and category behind it.
        memory: what is remembered, items joined by ``|``.
        tool: the function's name.
    """
    return (
        f"{JOB} {PARAMETER}\n### Instruction:{instruction}\n\nMemory: {memory}\n\nTool: {tool}\n\n"
        "### Tool Parameter:\n"
    )


def function_prompt(instruction: str) -> str:
    """Return the prompt of step 1, which the function's name completes."""
    return f"{JOB} {FUNCTION}\n### Instruction: {instruction}\n\n### Tool:\n"
