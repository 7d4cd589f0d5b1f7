"""The judge that reads an episode's text by rules, without a model, ids, log or state.

Its rules hold for any site: a wish counts as applied where the text of what was acted on names it, a site as
used where the agent says so or its address is on the page.
"""

import re
from collections.abc import Iterable, Sequence

from pwagents.persona2web.domains import names_value
from pwagents.persona2web.judge import ENOUGH, Score, Scores, overall
from pwagents.persona2web.page_text import read_page
from pwagents.persona2web.transcript import Did, Look, Transcript, Wish

_WORDS = {  # of what is acted on, or of the last page's address, once an operation was done
    "cart": r"^click .*\b(add|put|buy)\b",
    "booking": r"^click .*\b(hold|save|make)\b",
    "compare": r"^click .*\bcompare: ",
    "search": r"^stop\b",
    "lookup": r"^stop\b.*\d",
}
_PAGES = {
    "cart": r"\.test/cart\b",
    "booking": r"\.test/bookings\b",
    "compare": r"\.test/(compare|search)\b",
    "search": r"\.test/search\b",
    "lookup": r"\.test/item/",
}
_FAULT = "Please try again"


def judge_by_rules(transcript: Transcript) -> Scores:
    """Scores of one transcript, from what its view shows."""
    return {
        "reasoning_aware": _reasoning_aware,
        "action_wise": _action_wise,
        "outcome": _outcome,
    }[transcript.view](transcript)


def _reasoning_aware(seen: Transcript) -> Scores:
    site = max((_sure(look, seen.host) for look in seen.looks), default=0.0)
    found = overall([_found(seen.looks, wish) for wish in seen.masked.values()])
    return Scores(
        website_retrieval=site if "website" in seen.to_find else None,
        website_utilization=_site_used(seen),
        preference_retrieval=found if "preferences" in seen.to_find else None,
        preference_utilization=_applied(seen.did, seen.masked.values()),
        intent=_intent(seen),
    )


def _sure(look: Look, host: str) -> Score:
    """How many of the records that a look found are of the site: three or more, some, none."""
    count = sum(line.endswith(f"| {host}") for line in look.records.splitlines())
    if host not in look.answer:
        return 0.5 if count else 0.0
    return 1.0 if count >= ENOUGH else 0.5 if count else 0.0


def _found(looks: Sequence[Look], wish: Wish) -> Score:
    """Whether a look into three records or more was read as the wish; records do not say values outright."""
    read = [look for look in looks if names_value(look.answer, wish.value)]
    return max((1.0 if len(look.records.splitlines()) >= ENOUGH else 0.5 for look in read), default=0.0)


def _site_used(seen: Transcript) -> Score:
    """1 where the last page is the site's and no other site was gone to; 1/2 where it was gone to at all."""
    hosts = [host for did in seen.did for host in re.findall(r"[\w-]+\.test\b", did.reason)]
    ended_there = f"//{seen.host}/" in seen.last_page.split("\n")[0]
    if ended_there and all(host == seen.host for host in hosts):
        return 1.0
    return 0.5 if ended_there or seen.host in hosts else 0.0


def _applied(did: Iterable[Did], wishes: Iterable[Wish]) -> Score:
    """Whether each wish is what some action that worked acted on."""
    actions = [each.action for each in did if not each.error]
    return overall(
        [1.0 if any(names_value(action, wish.value) for action in actions) else 0.0 for wish in wishes]
    )


def _intent(seen: Transcript) -> Score:
    """1 where the operation's words were acted on and the last page is one it ends on; 1/2 before a fault."""
    if _applied(seen.did, seen.stated.values()) < 1:
        return 0.0
    if _FAULT in seen.last_page:
        return 0.5
    done = any(re.search(_WORDS[seen.operation], each.action, re.IGNORECASE) for each in seen.did)
    return float(done and re.search(_PAGES[seen.operation], seen.last_page.split("\n")[0]) is not None)


def _action_wise(seen: Transcript) -> Scores:
    """By the reference route alone: what it did and this one did not is missing, whatever else led there."""
    done = {each.action for each in seen.did if not each.error}
    shared = [action in done for action in seen.reference]
    share = sum(shared) / len(shared) if shared else 0.0
    entered = seen.reference[:1] and seen.reference[0] in done
    return Scores(
        website_utilization=1.0 if entered else 0.0,
        preference_utilization=_applied(
            [each for each in seen.did if each.action in seen.reference], seen.masked.values()
        ),
        intent=1.0 if share == 1 else 0.5 if share >= 0.5 else 0.0,
    )


def _outcome(seen: Transcript) -> Scores:
    """By the last page and the answer: what is shown there fits, however it came to that."""
    first, text = seen.last_page.split("\n")[0], f"{_told(seen.last_page)}\n{seen.answer}"
    stated = overall([1.0 if names_value(text, wish.value) else 0.0 for wish in seen.stated.values()])
    ended = re.search(_PAGES[seen.operation], first) is not None
    return Scores(
        website_utilization=1.0 if f"//{seen.host}/" in first else 0.0,
        preference_utilization=overall(
            [1.0 if names_value(text, wish.value) else 0.0 for wish in seen.masked.values()]
        ),
        intent=stated if ended else 0.0,
    )


def _told(page: str) -> str:
    """What a page says: its texts and what is chosen on it, without what it merely offers."""
    lines = read_page(page).lines
    said = [x for x in lines if x.on or x.role in ("text", "heading", "combobox")]
    return "\n".join(x.value or x.name for x in said)
