"""What a user simulator reads off a session: what was said, and what the shop last did."""

from pwagents.schema import Task
from pwagents.web.environment import Exchange
from pwagents.web.functions import DETAILS_FUNCTION


def conversation(session: tuple[Exchange, ...]) -> list[tuple[str, str]]:
    """(what the agent said, what the user answered), oldest first; malformed calls reached nobody."""
    return [
        (exchange.action.arguments["content"], exchange.observation.text)
        for exchange in session
        if is_talk(exchange)
    ]


def is_talk(exchange: Exchange) -> bool:
    return exchange.action.name == "respond" and not exchange.error


def is_result(exchange: Exchange) -> bool:
    """Whether it is an answer of the shop to the task; looking a product up is the agent's own business."""
    return not is_talk(exchange) and not exchange.error and exchange.action.name != DETAILS_FUNCTION


def last_shown(session: tuple[Exchange, ...]) -> tuple[str, ...] | None:
    """The ids that the shop's last answer showed; None when the agent has not looked for anything yet."""
    shown = [e.observation.products for e in session if is_result(e)]
    return shown[-1] if shown else None


def last_review(task: Task, session: tuple[Exchange, ...]) -> str | None:
    """The review that the agent published last; None when the task asks for none or there is none yet."""
    texts = [
        exchange.action.arguments["review"]
        for exchange in session
        if exchange.action.name == "add_product_review" and not exchange.error
    ]
    return texts[-1] if texts and task.type == "review" else None
