"""What a user simulator reads off a session: what was said, and what the shop last did."""

from pwagents.schema import Task
from pwagents.web.environment import Exchange


def conversation(session: tuple[Exchange, ...]) -> list[tuple[str, str]]:
    """(what the agent said, what the user answered), oldest first; malformed calls reached nobody."""
    return [
        (exchange.action.arguments["content"], exchange.observation.text)
        for exchange in session
        if is_talk(exchange)
    ]


def is_talk(exchange: Exchange) -> bool:
    return exchange.action.name == "respond" and not is_error(exchange)


def is_error(exchange: Exchange) -> bool:
    return exchange.observation.text.startswith("Error: ")


def last_shown(session: tuple[Exchange, ...]) -> tuple[str, ...] | None:
    """The ids that the shop's last answer showed; None when the agent has not looked for anything yet."""
    shown = [e.observation.products for e in session if not is_talk(e) and not is_error(e)]
    return shown[-1] if shown else None


def last_review(task: Task, session: tuple[Exchange, ...]) -> str | None:
    """The review that the agent published last; None when the task asks for none or there is none yet."""
    texts = [
        exchange.action.arguments["review"]
        for exchange in session
        if exchange.action.name == "add_product_review" and not is_error(exchange)
    ]
    return texts[-1] if texts and task.type == "review" else None
